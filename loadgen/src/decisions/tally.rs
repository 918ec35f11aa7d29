//! What two cores chose, compared.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use router::record::line::{Header, Plan, Request, RoleName};
use router_core::{Policies, Role};
use serde::Serialize;

use super::settled::{Finder, Settled};

/// Differences that are told one by one.
const TOLD: usize = 10;

/// What was decided about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// The workers; none: refused.
    pub(super) legs: Vec<(RoleName, u32)>,
    /// Why, for people.
    pub(super) reason: String,
    /// Prompt tokens that were believed to be cached.
    pub(super) predicted: u64,
}

/// Counted while the recording is read.
#[derive(Debug)]
pub(super) struct Tally {
    seen: Replayed,
    /// By worker: its URL, whether it computes prompts, prompt tokens as recorded and as replayed.
    workers: BTreeMap<u32, Worker>,
    finder: Finder,
}

#[derive(Debug)]
struct Worker {
    url: String,
    computes: bool,
    tokens: [u64; 2],
}

/// What a replay has found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replayed {
    /// The policies of the recording, with the roles behind the first one where they differ.
    pub recorded_policy: String,
    /// Those of the replay.
    pub replayed_policy: String,
    /// They are the same: all decisions should be, too.
    pub same_policy: bool,
    /// How often other policies or options took over while it was recorded.
    pub policy_changes: u64,
    /// The recording begins where the router did, and nothing is missing in it.
    pub whole: bool,
    /// How many files of the recording came before the first that was read.
    pub missing_parts: u64,
    /// The last line is not complete and was passed over.
    pub cut: bool,
    /// Lines that are missing.
    pub dropped: u64,
    /// Decisions that were compared.
    pub decisions: u64,
    /// Those for the same workers, or refused alike.
    pub identical: u64,
    /// `identical` of `decisions`; 1 without any.
    pub identical_share: f64,
    /// Of those, how many were made for another reason.
    pub other_reason: u64,
    /// Decisions about a prompt that is missing, which cannot be compared.
    pub unknown: u64,
    /// Decisions by the hash of a key or a prompt that is not recorded: which requests stay together is right, where is not.
    pub unplaced: u64,
    /// From where on they are identical; absent if they are not up to the end.
    pub settled: Option<Settled>,
    /// The first that differ.
    pub differences: Vec<Difference>,
    /// What was recorded.
    pub recorded: Side,
    /// What was replayed.
    pub replayed: Side,
    /// Cached prompt tokens as the engines told, of those that told; absent if none did.
    pub recorded_hit_rate: Option<f64>,
    #[serde(skip)]
    told: [u64; 2],
}

/// How one side spread the prompts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Side {
    /// Prompt tokens that were placed, as the router estimated them.
    pub prompt_tokens: u64,
    /// Those believed to be cached where they were placed, as a share.
    pub predicted_hit_rate: f64,
    /// Most prompt tokens of one worker, against the mean of all that compute prompts; 0 without workers.
    pub imbalance: f64,
    /// Prompt tokens by worker.
    pub workers: BTreeMap<String, u64>,
    /// Refused.
    pub refused: u64,
    #[serde(skip)]
    predicted: u64,
}

/// A decision that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The number of its look.
    pub n: u64,
    /// When, in nanoseconds of the router's clock.
    pub t_ns: u64,
    /// Its prompt, in tokens.
    pub prompt_tokens: u64,
    /// What was recorded.
    pub recorded: String,
    /// What was replayed.
    pub replayed: String,
}

impl Choice {
    fn recorded(plan: &Plan) -> Self {
        let reasons: Vec<&str> = plan.legs.iter().map(|leg| &*leg.reason).collect();
        let refused = plan.refused.as_ref().map(|no| format!("{}: {}", no.leg, no.why));
        Self {
            legs: plan.legs.iter().map(|leg| (leg.role, leg.worker)).collect(),
            reason: refused.unwrap_or_else(|| reasons.join(" + ")),
            predicted: plan.legs.first().and_then(|leg| leg.predicted).unwrap_or(0),
        }
    }
}

impl Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.legs.is_empty() {
            return write!(f, "refused ({})", self.reason);
        }
        let workers: Vec<_> = self.legs.iter().map(|(_, worker)| worker.to_string()).collect();
        write!(f, "worker {} ({})", workers.join(" + "), self.reason)
    }
}

impl Tally {
    pub(super) fn new(header: &Header, recorded: &Policies, replayed: &Policies, same_policy: bool) -> Self {
        debug_assert_eq!(header.policies.regular.name, recorded.get(Role::Regular).name());
        let seen = Replayed {
            recorded_policy: names(recorded),
            replayed_policy: names(replayed),
            same_policy,
            policy_changes: 0,
            whole: true,
            missing_parts: header.part,
            cut: false,
            dropped: 0,
            decisions: 0,
            identical: 0,
            identical_share: 1.0,
            other_reason: 0,
            unknown: 0,
            unplaced: 0,
            settled: None,
            differences: Vec::new(),
            recorded: Side::default(),
            replayed: Side::default(),
            recorded_hit_rate: None,
            told: [0; 2],
        };
        Self { seen, workers: BTreeMap::new(), finder: Finder::new() }
    }

    pub(super) fn worker(&mut self, id: u32, url: &str, role: Role) {
        let worker = Worker { url: url.to_owned(), computes: role != Role::Decode, tokens: [0; 2] };
        self.workers.insert(id, worker);
    }

    pub(super) fn missing(&mut self, lines: u64) {
        self.seen.dropped += lines;
    }

    pub(super) fn unknown(&mut self) {
        self.seen.unknown += 1;
    }

    pub(super) fn policies_changed(&mut self) {
        self.seen.policy_changes += 1;
    }

    /// `is_placed`: it rests on nothing but what is recorded.
    pub(super) fn decided(&mut self, plan: &Plan, replayed: &Choice, is_placed: bool) {
        let recorded = Choice::recorded(plan);
        let seen = &mut self.seen;
        let is_same = recorded.legs == replayed.legs;
        seen.decisions += 1;
        seen.identical += u64::from(is_same);
        seen.unplaced += u64::from(!is_placed);
        self.finder.decided((plan.n, plan.t), is_same, (seen.decisions, seen.identical));
        if is_same {
            seen.other_reason += u64::from(recorded.reason != replayed.reason);
        } else if seen.differences.len() < TOLD {
            seen.differences.push(Difference {
                n: plan.n,
                t_ns: plan.t,
                prompt_tokens: plan.tokens,
                recorded: recorded.to_string(),
                replayed: replayed.to_string(),
            });
        }
        for (at, choice, side) in [(0, &recorded, &mut seen.recorded), (1, replayed, &mut seen.replayed)] {
            let Some((_, computing)) = choice.legs.first() else {
                side.refused += 1;
                continue;
            };
            side.prompt_tokens += plan.tokens;
            side.predicted += choice.predicted;
            if let Some(worker) = self.workers.get_mut(computing) {
                worker.tokens[at] += plan.tokens;
                // A worker may have said only later what it does.
                worker.computes = true;
            }
        }
    }

    pub(super) fn ended(&mut self, request: &Request) {
        if let (Some(prompt), Some(cached)) = (request.prompt_tokens, request.cached_tokens) {
            self.seen.told[0] += cached.min(prompt);
            self.seen.told[1] += prompt;
        }
    }

    pub(super) fn end(self, is_cut: bool) -> Replayed {
        let Self { mut seen, workers, finder } = self;
        seen.whole = seen.missing_parts == 0 && seen.dropped == 0;
        seen.cut = is_cut;
        seen.settled = finder.end((seen.decisions, seen.identical));
        if seen.decisions > 0 {
            seen.identical_share = seen.identical as f64 / seen.decisions as f64;
        }
        let [cached, prompt] = seen.told;
        seen.recorded_hit_rate = (prompt > 0).then(|| cached as f64 / prompt as f64);
        for (at, side) in [(0, &mut seen.recorded), (1, &mut seen.replayed)] {
            if side.prompt_tokens > 0 {
                side.predicted_hit_rate = side.predicted as f64 / side.prompt_tokens as f64;
            }
            let computing: Vec<&Worker> = workers.values().filter(|worker| worker.computes).collect();
            let most = computing.iter().map(|worker| worker.tokens[at]).max().unwrap_or(0);
            if side.prompt_tokens > 0 {
                side.imbalance = most as f64 * computing.len() as f64 / side.prompt_tokens as f64;
            }
            for worker in computing {
                // A worker that came back has another id and the same URL.
                *side.workers.entry(worker.url.clone()).or_default() += worker.tokens[at];
            }
        }
        seen
    }
}

fn names(policies: &Policies) -> String {
    let [regular, prefill, decode] = Role::ALL.map(|role| policies.get(role).name());
    if prefill == regular && decode == regular {
        return regular.to_owned();
    }
    format!("{regular} (prefill {prefill}, decode {decode})")
}

impl Replayed {
    /// What keeps the decisions from being comparable.
    fn tell_limits(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.policy_changes > 0 {
            let obeyed = if self.same_policy { "they were, too, here" } else { "here they were not" };
            writeln!(
                f,
                "policies or options changed while it was recorded: {} times; {obeyed}",
                self.policy_changes
            )?;
        }
        if self.dropped > 0 {
            writeln!(
                f,
                "lines missing in the recording: {}; decisions behind them may differ",
                self.dropped
            )?;
        }
        if self.missing_parts > 0 {
            let parts = self.missing_parts;
            writeln!(
                f,
                "the recording begins in the middle, {parts} of its files came before: what was cached, in flight or stuck to \
                 keys then is not known"
            )?;
        }
        if !self.whole && self.same_policy {
            self.tell_settled(f)?;
        }
        if self.cut {
            writeln!(f, "the last line is cut and was passed over")?;
        }
        if self.unknown > 0 {
            writeln!(f, "decisions whose prompt is missing: {}", self.unknown)?;
        }
        if self.unplaced > 0 {
            writeln!(
                f,
                "decisions by the hash of a key or a prompt that is not recorded: {}; which requests stay together is right, \
                 but not where",
                self.unplaced
            )?;
        }
        Ok(())
    }

    fn tell_settled(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = super::LEAST_SHARE * 100.0;
        match self.settled {
            Some(Settled { after_look: 0, .. }) => {
                writeln!(f, "at least {least} % are identical from the beginning on all the same")
            }
            Some(Settled { after_look, after_ns, decisions, identical }) => {
                let at = after_ns as f64 / 1e9;
                writeln!(
                    f,
                    "exact behind look {after_look} ({at:.3} s): {identical} of {decisions} decisions are identical from there on"
                )
            }
            None => writeln!(
                f,
                "there is no place from which on {least} % are identical: it ends before all is known"
            ),
        }
    }
}

impl Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "recorded with {}, replayed with {}", self.recorded_policy, self.replayed_policy)?;
        let share = self.identical_share * 100.0;
        writeln!(f, "identical decisions: {} of {} ({share:.2} %)", self.identical, self.decisions)?;
        if self.other_reason > 0 {
            writeln!(f, "the same workers for another reason: {}", self.other_reason)?;
        }
        self.tell_limits(f)?;
        for Difference { n, t_ns, prompt_tokens, recorded, replayed } in &self.differences {
            let at = *t_ns as f64 / 1e9;
            writeln!(
                f,
                "  {at:.3} s, look {n}, {prompt_tokens} tokens: recorded {recorded}, replayed {replayed}"
            )?;
        }
        writeln!(
            f,
            "{:<10} {:>14} {:>14} {:>10} {:>9}",
            "", "prompt tokens", "predicted hit", "imbalance", "refused"
        )?;
        for (name, side) in [("recorded", &self.recorded), ("replayed", &self.replayed)] {
            let Side { prompt_tokens, predicted_hit_rate, imbalance, refused, .. } = side;
            writeln!(
                f,
                "{name:<10} {prompt_tokens:>14} {predicted_hit_rate:>14.4} {imbalance:>10.3} {refused:>9}"
            )?;
        }
        if let Some(rate) = self.recorded_hit_rate {
            writeln!(f, "hit rate that the engines told: {rate:.4}")?;
        }
        if !self.same_policy {
            writeln!(
                f,
                "note: loads, ends and failures are those that the recorded policy has met; for what another one would \
                 have brought about, run the recording as the trace of a scenario"
            )?;
        }
        Ok(())
    }
}
