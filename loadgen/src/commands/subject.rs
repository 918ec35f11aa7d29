//! What a search is about: a scenario, or a trace with a default scenario around it.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, assignment};
use crate::scenario::Template;
use crate::search::quoted;

/// The scenario and what is laid over it.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Subject {
    /// The scenario file (NAME.toml), or a trace, around which a default scenario is made
    #[arg(value_name = "SCENARIO|TRACE")]
    pub input: PathBuf,
    /// A key of the file and its new value, for example `--set arrival.rate=40`; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// The trace that the scenario replays; overrides the file
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Longest time to first token that is good enough, for example 2s; overrides the file
    #[arg(long, value_name = "TIME")]
    pub slo_ttft: Option<String>,
    /// Longest mean time per token after the first that is good enough, for example 50ms; overrides the file
    #[arg(long, value_name = "TIME")]
    pub slo_tpot: Option<String>,
    /// How many workers; overrides the file (8 around a trace)
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// The engine and model of the workers; overrides the file
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// KV cache of each worker, in tokens; overrides the file (the preset's own around a trace)
    #[arg(long, value_name = "TOKENS")]
    pub kv_tokens: Option<u64>,
    /// How much faster than recorded the trace is replayed; overrides the file
    #[arg(long, value_name = "FACTOR")]
    pub speedup: Option<f64>,
}

/// How many workers there are around a trace.
const WORKERS: u32 = 8;

impl Subject {
    /// Whether it is a trace alone.
    #[must_use]
    pub fn is_trace(&self) -> bool {
        self.input.extension().is_none_or(|ending| ending != "toml")
    }

    /// The scenario with everything laid over it, for these policies.
    ///
    /// # Errors
    /// A flag makes no sense, or the scenario cannot be read.
    pub(super) fn template(&self, policies: Option<&[String]>) -> Result<Template, Failure> {
        let opened = match (self.is_trace(), &self.trace) {
            (true, Some(_)) => {
                let twice = "--trace: the trace is named already; give a scenario, or leave it out";
                return Err(Failure::usage(twice));
            }
            (true, None) => {
                let name = Path::new("the scenario around the trace");
                Template::of(name, self.around(), &self.set, policies, None)
            }
            (false, trace) => Template::open(&self.input, &self.overrides(), policies, trace.as_deref()),
        };
        opened.map_err(Failure::usage)
    }

    /// The scenario around a trace, with what the flags say.
    fn around(&self) -> String {
        let path = std::path::absolute(&self.input).unwrap_or_else(|_| self.input.clone());
        let mut text = format!(
            "# Written by loadgen: a scenario around a trace.\nschema = 1\nname = {}\n",
            quoted(&name(&self.input))
        );
        let keys = [
            ("workload.kind", Some(quoted("trace"))),
            ("workload.path", Some(quoted(&path.display().to_string()))),
            ("workload.jitter", Some(quoted("grid"))),
            ("fleet.workers", self.workers.is_none().then(|| WORKERS.to_string())),
        ];
        let keys = keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let mut keys: Vec<(String, String)> = keys.chain(self.overrides()).collect();
        keys.push((
            "router.policies".to_owned(),
            "[\"round_robin\", \"power_of_two\", \"cache_aware\"]".to_owned(),
        ));
        for table in ["workload", "fleet", "router", "slo"] {
            let mine = || {
                keys.iter()
                    .filter_map(|(key, value)| Some((key.strip_prefix(table)?.strip_prefix('.')?, value)))
            };
            if mine().next().is_some() {
                text.push_str(&format!("\n[{table}]\n"));
            }
            text.extend(mine().map(|(key, value)| format!("{key} = {value}\n")));
        }
        text
    }

    /// The flags as assignments to keys. Those that have flags of their own come first, so that `--set` wins; around a trace
    /// that is laid over the text.
    fn overrides(&self) -> Vec<(String, String)> {
        let flags = [
            ("slo.ttft", self.slo_ttft.as_deref().map(quoted)),
            ("slo.tpot", self.slo_tpot.as_deref().map(quoted)),
            ("fleet.workers", self.workers.map(|value| value.to_string())),
            ("fleet.preset", self.preset.as_deref().map(quoted)),
            ("fleet.kv_tokens", self.kv_tokens.map(|value| value.to_string())),
            ("workload.speedup", self.speedup.map(|value| format!("{value:?}"))),
        ];
        let set = if self.is_trace() { &[][..] } else { &self.set[..] };
        let flags = flags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        flags.chain(set.iter().cloned()).collect()
    }
}

/// A name for the results that is made of letters which are safe in names of folders.
fn name(path: &Path) -> String {
    let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '-' };
    let name: String = stem.chars().map(plain).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "trace".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        subject: Subject,
    }

    #[test]
    fn flags_stand_in_the_scenario_around_a_trace() {
        let line = "x a/t.jsonl --workers 3 --speedup 2 --slo-ttft 1s --slo-tpot 50ms --set fleet.page=16";
        let subject = Line::parse_from(line.split(' ')).subject;
        let text: toml::Table = subject.around().parse().unwrap();
        assert_eq!(text["name"].as_str(), Some("t"));
        assert!(text["workload"]["path"].as_str().unwrap().ends_with("/a/t.jsonl"), "{text}");
        assert_eq!(text["workload"]["speedup"].as_float(), Some(2.0));
        assert_eq!(text["fleet"]["workers"].as_integer(), Some(3));
        assert_eq!(text["slo"]["tpot"].as_str(), Some("50ms"));
        assert!(text["fleet"].get("page").is_none(), "laid over it, like over any scenario");
        let plain = Line::parse_from(["x", "t.csv"]).subject.around();
        assert!(plain.contains("workers = 8\n") && !plain.contains("[slo]"), "{plain}");
    }

    #[test]
    fn a_trace_has_a_plain_name() {
        assert_eq!(name(Path::new("a/b c.jsonl")), "b-c");
        assert_eq!(name(Path::new(".x")), "x");
        assert_eq!(name(Path::new("ü.csv")), "-");
    }
}
