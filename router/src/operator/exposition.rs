//! The metrics of several workers as one page, in either of Prometheus' text formats. They are read in the older one.
//!
//! Each sample gets the label `worker_addr`, so that the same series of two workers stay apart. The samples of one family
//! stand together behind one `HELP` and one `TYPE`, as the format demands. A `:` in a name, which Prometheus keeps for
//! recording rules, becomes `_`. What a worker says that is not of the format is left out: one bad line would cost the
//! whole page. So are timestamps and exemplars: the page tells what is now.

mod sample;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use sample::Sample;

use crate::metrics::Format;

/// The label that tells whose sample it is: the worker's URL.
const WORKER: &str = "worker_addr";
/// The name that a worker's own label of that name gets, as Prometheus would rename it.
const EXPORTED: &str = "exported_worker_addr";

/// Suffixes of a histogram's series; a summary has the last two.
const HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

/// What a `TYPE` line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Untyped,
}

#[derive(Debug, Default)]
struct Family {
    name: String,
    /// As it came, escapes and all.
    help: Option<String>,
    kind: Option<Kind>,
    /// Whole lines.
    samples: String,
}

/// A page under construction: families in the order of their first appearance.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    families: Vec<Family>,
    places: HashMap<String, usize>,
}

/// What became of a worker's page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) samples: usize,
    /// Lines that were left out: not of the format, or against what another worker says of the family.
    pub(super) left_out: usize,
}

impl Taken {
    /// Whether anything in it was of the format.
    pub(super) fn is_a_page(self) -> bool {
        self.samples > 0 || self.left_out == 0
    }
}

impl Exposition {
    /// Adds what the worker at this URL exposes.
    pub(super) fn add(&mut self, worker: &str, text: &str) -> Taken {
        let worker = escaped(worker);
        let mut taken = Taken::default();
        // Families of which this worker says that they are of another kind.
        let mut disputed = HashSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let fits = match line.strip_prefix('#') {
                Some(comment) => self.describe(comment, &mut disputed),
                None => {
                    let put = self.put(&worker, line, &disputed);
                    taken.samples += usize::from(put);
                    put
                }
            };
            taken.left_out += usize::from(!fits);
        }
        taken
    }

    /// Adds a gauge of the router's own: 1 or 0 of each worker.
    pub(super) fn flags<'a>(&mut self, name: &str, help: &str, flags: impl Iterator<Item = (&'a str, bool)>) {
        let at = self.family(name);
        let family = &mut self.families[at];
        family.help = Some(help.to_owned());
        family.kind = Some(Kind::Gauge);
        for (worker, is_set) in flags {
            let (worker, value) = (escaped(worker), u8::from(is_set));
            let _ = writeln!(family.samples, "{name}{{{WORKER}=\"{worker}\"}} {value}");
        }
    }

    /// The page.
    pub(super) fn render(&self, format: Format) -> String {
        let length = self.families.iter().map(|family| family.samples.len() + 128).sum();
        let mut page = String::with_capacity(length);
        for family in self.families.iter().filter(|family| !family.samples.is_empty()) {
            match format {
                Format::Plain => family.render(&mut page),
                Format::OpenMetrics => self.render_open(family, &mut page),
            }
        }
        if format == Format::OpenMetrics {
            page.push_str("# EOF\n");
        }
        page
    }

    /// The family as OpenMetrics has it: a counter is named without the suffix of its series, and one that lacks the suffix,
    /// or whose name another family has, is of no kind that it knows.
    fn render_open(&self, family: &Family, page: &mut String) {
        let is_taken =
            |base: &str| self.places.get(base).is_some_and(|at| !self.families[*at].samples.is_empty());
        let base = family.name.strip_suffix("_total").filter(|base| !base.is_empty() && !is_taken(base));
        let (name, kind) = match (family.kind, base) {
            (Some(Kind::Counter), Some(base)) => (base, "counter"),
            (Some(Kind::Counter | Kind::Untyped) | None, _) => (family.name.as_str(), "unknown"),
            (Some(kind), _) => (family.name.as_str(), kind.word()),
        };
        let help = family.help.as_ref().map(|help| help.replace("\\\"", "\"").replace('"', "\\\""));
        family.render_as(name, kind, help.as_deref(), page);
    }

    /// Takes a `HELP` or `TYPE`; other comments say nothing. Whether it fits.
    fn describe(&mut self, comment: &str, disputed: &mut HashSet<usize>) -> bool {
        let mut words = comment.trim_start().splitn(3, [' ', '\t']);
        let (keyword, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let said = words.next().unwrap_or_default().trim();
        match keyword {
            "HELP" | "TYPE" if !sample::is_name(name) => false,
            "HELP" => {
                let at = self.family(name);
                self.families[at].help.get_or_insert_with(|| said.to_owned());
                true
            }
            "TYPE" => {
                let Some(kind) = Kind::parse(said) else { return false };
                let at = self.family(name);
                let fits = *self.families[at].kind.get_or_insert(kind) == kind;
                if !fits {
                    disputed.insert(at);
                }
                fits
            }
            _ => true,
        }
    }

    /// Takes a sample. Whether it fits.
    fn put(&mut self, worker: &str, line: &str, disputed: &HashSet<usize>) -> bool {
        let Some(sample) = Sample::parse(line) else { return false };
        let name = plain(sample.name);
        let at = self.family_of(&name);
        let family = &mut self.families[at];
        let is_bare = family.kind == Some(Kind::Histogram) && family.name == name;
        if is_bare || disputed.contains(&at) {
            return false;
        }
        family.samples.push_str(&name);
        let _ = write!(family.samples, "{{{WORKER}=\"{worker}\"");
        let is_exported = sample.labels.iter().any(|(label, _)| *label == EXPORTED);
        for (label, value) in &sample.labels {
            let label = match *label {
                WORKER if is_exported => continue,
                WORKER => EXPORTED,
                label => label,
            };
            let _ = write!(family.samples, ",{label}=\"{value}\"");
        }
        let _ = writeln!(family.samples, "}} {}", sample.value);
        true
    }

    /// The family that a series belongs to.
    fn family_of(&mut self, series: &str) -> usize {
        if let Some(at) = self.places.get(series) {
            return *at;
        }
        for suffix in HISTOGRAM {
            let Some(base) = series.strip_suffix(suffix).and_then(|base| self.places.get(base)) else {
                continue;
            };
            let kind = self.families[*base].kind;
            if kind == Some(Kind::Histogram) || (kind == Some(Kind::Summary) && suffix != "_bucket") {
                return *base;
            }
        }
        // OpenMetrics names a counter without the suffix of its series; the older format with it.
        let counter = series.strip_suffix("_total").and_then(|base| self.places.get(base).copied());
        let at = self.family(series);
        if let Some(base) = counter
            && self.families[base].kind == Some(Kind::Counter)
        {
            self.families[at].kind = Some(Kind::Counter);
            self.families[at].help = self.families[base].help.clone();
        }
        at
    }

    /// The family of this name; a new one if there is none.
    fn family(&mut self, name: &str) -> usize {
        let name = plain(name);
        if let Some(at) = self.places.get(&name) {
            return *at;
        }
        let at = self.families.len();
        self.families.push(Family { name: name.clone(), ..Family::default() });
        self.places.insert(name, at);
        at
    }
}

impl Family {
    fn render(&self, page: &mut String) {
        let kind = self.kind.unwrap_or(Kind::Untyped).word();
        self.render_as(&self.name, kind, self.help.as_deref(), page);
    }

    fn render_as(&self, name: &str, kind: &str, help: Option<&str>, page: &mut String) {
        if let Some(help) = help {
            let _ = writeln!(page, "# HELP {name} {help}");
        }
        let _ = writeln!(page, "# TYPE {name} {kind}");
        page.push_str(&self.samples);
    }
}

impl Kind {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "counter" => Self::Counter,
            "gauge" => Self::Gauge,
            "histogram" => Self::Histogram,
            "summary" => Self::Summary,
            // The others are OpenMetrics'; the older format has no such kinds.
            "untyped" | "unknown" | "info" | "stateset" | "gaugehistogram" => Self::Untyped,
            _ => return None,
        })
    }

    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Untyped => "untyped",
        }
    }
}

/// A name without what is kept for recording rules.
fn plain(name: &str) -> String {
    name.replace(':', "_")
}

/// A text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests;
