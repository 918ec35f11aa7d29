//! Winners as configuration files of the router.
//!
//! Every contest (the variants of a world that were given the same work) that was decided has a file: the policy with its
//! options as the router itself writes them, under remarks that say what it won and by how much. Contests are never
//! mixed, for what wins on two workers need not win on eight. Live runs of which one is void or disturbed have no winner. Where another
//! router was the best, the file is that of our best policy, and says which router is ahead of it and by how much.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use router_core::PolicyConfig;
use simworker_core::EngineRole;

use super::best::{Lead, RULE, best, best_among, is_level, lead, leaders};
use super::experiment::Experiment;
use super::metric::Metric;
use super::variant::{Variant, contests, label, work, work_keys, worlds};
use crate::run::{Run, World};
use crate::scenario::Pool;

/// What a winner's file begins with. Nothing else is taken for one when old results are replaced.
pub(super) const MARK: &str = "# Written by loadgen: the winner of ";

/// The figures that are told of winner and runner-up: those that the rule looks at, and what explains them.
const FIGURES: [&str; 5] = ["input_tok_s", "ttft_ms.p50", "ttft_ms.p99", "hit_rate", "failed"];

/// Longest part of a file's name that is made of swept values.
const LONGEST_WORDS: usize = 100;

/// The best variant of a contest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Winner {
    /// The name of its file: `winner.toml`, or with the world and the swept work in it where there are several.
    pub file: String,
    /// What tells its contest from the others, in words; empty where there is one.
    pub contest: String,
    /// The policy, and the settings that tell it from its siblings; the router that is ahead of it, if one is.
    pub label: String,
    /// Whether it makes no difference: all settings of its contest have the same figures.
    pub level: bool,
    /// The flags that name the workers to a router, by role.
    pub flags: String,
    /// The text of its file, which `router --config` takes.
    pub text: String,
}

/// The winners of all contests in which there was a choice, in the order of worlds and scenario.
#[must_use]
pub fn winners(experiment: &Experiment) -> Vec<Winner> {
    let variants = &experiment.variants();
    let worlds = worlds(variants);
    let mut taken = BTreeSet::new();
    let mut winners = Vec::new();
    for world in &worlds {
        for contest in contests(variants, *world) {
            let Some(first) = best(variants, &variants[contest[0]]) else { continue };
            let ours = contest.iter().copied().filter(|place| is_ours(experiment, &variants[*place]));
            let Some(place) = best_among(variants, ours.collect()) else { continue };
            let ahead = is_target(experiment, &variants[first]).then_some(first);
            let sheet = Sheet { experiment, variants, contest: &contest, place, ahead };
            let world = if worlds.len() > 1 { world.label() } else { "" };
            let words = work(variants, &variants[place]);
            winners.push(Winner {
                file: file(world, &work_keys(variants, &variants[place]), &mut taken),
                contest: format!("{world} {words}").trim().to_owned(),
                label: sheet.label(),
                level: is_level(variants, &contest),
                flags: worker_flags(&experiment.runs()[variants[place].typical_run()].pools),
                text: sheet.text(),
            });
        }
    }
    winners
}

/// The world in which there was a choice and nobody has won it, whatever the figures are, and why.
#[must_use]
pub fn undecided(experiment: &Experiment) -> Option<(World, &'static str)> {
    let variants = &experiment.variants();
    worlds(variants).into_iter().find_map(|world| {
        let had_choice = contests(variants, world).iter().any(|contest| contest.len() > 1);
        Some((world, experiment.undecided(world).filter(|_| had_choice)?))
    })
}

/// Whether a variant is of another router, for which there is no file of ours.
fn is_target(experiment: &Experiment, variant: &Variant<'_>) -> bool {
    experiment.runs()[variant.typical_run()].target.is_some()
}

/// Whether a variant is of our router, and did anything at all.
fn is_ours(experiment: &Experiment, variant: &Variant<'_>) -> bool {
    !is_target(experiment, variant) && variant.median("input_tok_s").is_some_and(|rate| rate > 0.0)
}

/// A name that no other winner has, of letters that need no quotes.
fn file(world: &str, words: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._=".contains(c) { c } else { '-' };
    let words: String = words.chars().map(plain).take(LONGEST_WORDS).collect();
    let parts = ["winner", world, &words].into_iter().filter(|part| !part.is_empty());
    let stem = parts.collect::<Vec<_>>().join("-");
    let later = (2_u32..).map(|number| format!("{stem}-{number}"));
    let mut names = std::iter::once(stem.clone()).chain(later);
    let name = names.find(|name| taken.insert(name.clone())).unwrap_or(stem);
    format!("{name}.toml")
}

/// What one file is made of.
struct Sheet<'t, 'a> {
    experiment: &'t Experiment,
    variants: &'t [Variant<'a>],
    contest: &'t [usize],
    /// The place among the variants of what the file holds: the best of ours.
    place: usize,
    /// The place of the winner, where that is another router.
    ahead: Option<usize>,
}

impl Sheet<'_, '_> {
    fn label(&self) -> String {
        let ours = label(self.variants, &self.variants[self.place]);
        match self.ahead {
            Some(first) => format!("{}, another router; best of ours: {ours}", self.named(first)),
            None => ours,
        }
    }

    fn text(&self) -> String {
        let mut remarks = self.introduction();
        remarks.push(String::new());
        remarks.extend(self.conditions());
        remarks.push(String::new());
        remarks.extend(self.decision());
        if self.policy(self.place).row().needs_header {
            remarks.push(String::new());
            remarks.push(
                "It goes by the header X-SMG-Routing-Key, which clients then have to send; in the".to_owned(),
            );
            remarks.push("scenario that is the number of a request's prefix group.".to_owned());
        }
        let mut out = String::new();
        for (place, remark) in remarks.iter().enumerate() {
            let lead = if place == 0 { MARK } else { "# " };
            // Names and paths may hold anything, and a file of TOML not.
            let remark = remark.replace(|c: char| c.is_control(), " ");
            let _ = writeln!(out, "{}", format!("{lead}{remark}").trim_end());
        }
        let policy = router::cli::policy_section(self.policy(self.place));
        out + "\n" + &configuration(policy, &self.run(self.place).settings)
    }

    fn introduction(&self) -> Vec<String> {
        let (name, world) = (&self.experiment.about().name, self.variants[self.place].world.label());
        vec![
            format!("the scenario {name}, {world}."),
            String::new(),
            format!("    router --config FILE {}", worker_flags(&self.run(self.place).pools)),
            String::new(),
            "The next run of the scenario replaces this file, and a router takes over a file that has"
                .to_owned(),
            "changed: give it a copy.".to_owned(),
        ]
    }

    /// What was run.
    fn conditions(&self) -> Vec<String> {
        let about = self.experiment.about();
        let mut lines: Vec<String> = about.facts.iter().map(|(name, fact)| line(name, fact)).collect();
        lines.extend(about.overrides.iter().map(|typed| line("Changed by", typed)));
        let work = work(self.variants, &self.variants[self.place]);
        if !work.is_empty() {
            lines.push(line("Here with", &work));
        }
        lines
    }

    /// Who won against whom, by which figure.
    fn decision(&self) -> Vec<String> {
        let settings = format!("{}, of {} settings", setting(self.policy(self.place)), self.contest.len());
        let mut lines = vec![line("Rule", RULE)];
        let (first, second, names) = match self.ahead {
            Some(first) => {
                lines.push(line(
                    "Winner",
                    &format!("{}, another router: this file is not of it", self.named(first)),
                ));
                lines.push(line("This file", &format!("the best of ours: {settings}")));
                (first, self.place, ["winner", "this file"])
            }
            None => {
                let second = leaders(self.variants, self.contest.to_vec(), 2).pop().unwrap_or(self.place);
                lines.push(line("Winner", &settings));
                lines.push(line("Runner-up", &self.named(second)));
                (self.place, second, ["winner", "runner-up"])
            }
        };
        lines.extend([line("Decided by", &self.reason(first, second)), String::new()]);
        lines.push(row("median", names.map(str::to_owned), ""));
        lines.extend(FIGURES.iter().filter_map(|name| {
            let metric = Metric::named(name)?;
            let unit = if metric.unit == "share" { "%" } else { metric.unit };
            let cell = |place: usize| {
                let spread = self.variants[place].spread(metric);
                spread.map_or_else(|| "-".to_owned(), |spread| metric.cell(spread.median))
            };
            Some(row(name, [first, second].map(cell), unit))
        }));
        lines
    }

    /// By which figure one is before the other, and by how much where the other is what the file holds.
    fn reason(&self, first: usize, second: usize) -> String {
        let by = |name: &str, word: &str| {
            let pair = [first, second].map(|place| self.variants[place].median(name));
            match (self.ahead, pair) {
                (Some(_), [Some(best), Some(ours)]) if ours > 0.0 => {
                    format!(", {:.1} % {word} than of this file", (best / ours - 1.0).abs() * 100.0)
                }
                _ => String::new(),
            }
        };
        if is_level(self.variants, self.contest) {
            let all = self.contest.len();
            return format!("nothing: no difference between the {all} settings, all have the same figures");
        }
        match lead(self.variants, self.contest, first, second) {
            Lead::Throughput => format!("input_tok_s{}", by("input_tok_s", "more")),
            Lead::Ttft => {
                let near = "as their input_tok_s are near enough";
                format!("ttft_ms.p50{}, {near}", by("ttft_ms.p50", "less"))
            }
            Lead::Defaults => "nothing but its defaults: both are equal in what the rule looks at".to_owned(),
            Lead::Order => {
                "nothing but the scenario's order: both are equal in what the rule looks at".to_owned()
            }
        }
    }

    /// The run that stands for a variant.
    fn run(&self, place: usize) -> &Run {
        &self.experiment.runs()[self.variants[place].typical_run()]
    }

    /// A variant in words.
    fn named(&self, place: usize) -> String {
        self.run(place).target.clone().unwrap_or_else(|| setting(self.policy(place)))
    }

    /// The policy of a variant, with the options that it ran with.
    fn policy(&self, place: usize) -> &PolicyConfig {
        &self.run(place).policy
    }
}

/// The section of a policy as a router's own file has it, and what else the router was told.
pub(crate) fn configuration(policy: String, settings: &[(&'static str, String)]) -> String {
    // The section of the policy comes first, as it is open.
    let (mut out, mut open) = (policy, "policy");
    for (section, line) in settings {
        if *section != open {
            let _ = writeln!(out, "\n[{section}]");
            open = section;
        }
        let _ = writeln!(out, "{line}");
    }
    out
}

/// The flags that name workers of these roles to a router; every one may stand there more than once.
pub(crate) fn worker_flags(pools: &[Pool]) -> String {
    let mut flags = Vec::new();
    if pools.iter().any(|pool| pool.role != EngineRole::Whole) {
        flags.push("--pd-disaggregation");
    }
    flags.extend(pools.iter().map(|pool| match pool.role {
        EngineRole::Prefill => "--prefill http://HOST:PORT BOOTSTRAP_PORT ...",
        EngineRole::Decode => "--decode http://HOST:PORT ...",
        EngineRole::Whole => "--worker-urls http://HOST:PORT ...",
    }));
    flags.join(" ")
}

/// A policy and the options that were set.
pub(crate) fn setting(policy: &PolicyConfig) -> String {
    let options = policy.overrides().map(|(key, value)| format!(" {key}={}", value.as_argument()));
    format!("{}{}", policy.name(), options.collect::<String>())
}

fn line(name: &str, text: &str) -> String {
    format!("{name:<10}  {text}")
}

fn row(name: &str, [first, second]: [String; 2], unit: &str) -> String {
    format!("{name:<12}{first:>12}{second:>12}  {unit}")
}

#[cfg(test)]
mod tests;
