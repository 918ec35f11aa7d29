//! `prefix_hash`: prompts that begin alike go to the same worker, and on to the next one when that has too much to do.
//!
//! Consistent hashing with bounded loads: the hash of the prompt's beginning names a place on a ring, and from there the
//! first worker is taken whose requests in flight are at most `factor` times the mean, counting this request.
//!
//! Here it differs from SGLang's gateway on purpose. The gateway, when the first worker is over the bound, scans all of
//! them for the least loaded. Walking on, as in the published algorithm (Mirrokni, Thorup and Zadimoghaddam, "Consistent
//! Hashing with Bounded Loads", 2018), sends what one prefix has too much to the same next worker each time: a hot prefix
//! fills the caches of as few workers as its load needs, instead of those of all in turn.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::config::PolicyConfig;
use super::options::{OptionKind, OptionSpec, OptionValue};
use super::ring::Ring;
use super::table::PolicyRow;
use super::{Candidate, Choice, Decision, Policy, Reason, Signals};
use crate::fleet::Worker;
use crate::prompt::{CHARS_PER_TOKEN, PromptView, starts_char, text_chars};
use crate::request::RouteRequest;
use crate::{Unroutable, WorkerId};

const HIT: Reason = Reason::new("ring_hit");
const WALK: Reason = Reason::new("load_balance_walk");
const NO_PROMPT: Reason = Reason::new("fallback_least_load");

pub(super) const TOKEN_COUNT: OptionSpec = OptionSpec {
    key: "prefix_token_count",
    kind: OptionKind::Integer { min: 1, max: 1 << 20 },
    default: OptionValue::Integer(256),
    help: "tokens at the beginning of a prompt that are hashed; of text four times as many characters",
    search: None,
};
const LOAD_FACTOR: OptionSpec = OptionSpec {
    key: "prefix_hash_load_factor",
    kind: OptionKind::Float { min: 1.0, max: f64::INFINITY },
    default: OptionValue::Float(1.25),
    help: "a worker with more than this times the mean of requests in flight is passed over",
    search: None,
};

pub(super) const ROW: PolicyRow = PolicyRow {
    name: "prefix_hash",
    summary: "Prompts that begin alike go to the same worker, or past it when it has too much to do.",
    options: &[TOKEN_COUNT, LOAD_FACTOR],
    reasons: &[HIT.as_str(), WALK.as_str(), NO_PROMPT.as_str()],
    needs_header: false,
    fewest_workers: 1,
    fits: |_| true,
    branch_metric: Some("smg_prefix_hash_policy_branch"),
    signals: |_| Signals::default(),
    build: |config| Box::new(PrefixHash::new(config)),
};

#[derive(Debug)]
struct PrefixHash {
    token_count: usize,
    load_factor: f64,
    ring: Ring,
}

impl PrefixHash {
    fn new(config: &PolicyConfig) -> Self {
        Self {
            token_count: config.integer(TOKEN_COUNT.key) as usize,
            load_factor: config.float(LOAD_FACTOR.key),
            ring: Ring::default(),
        }
    }

    /// Hash of the beginning of the prompt; `None` if there is nothing to read.
    fn hash(&self, prompt: PromptView<'_>) -> Option<u64> {
        match prompt {
            PromptView::Tokens([]) | PromptView::Text([]) | PromptView::Unreadable => None,
            PromptView::Tokens(ids) => Some(self.hash_ids(ids.iter().copied())),
            PromptView::Generated(run) => (!run.is_empty()).then(|| self.hash_ids(run.tokens())),
            PromptView::Text(text) => {
                Some(xxh3_64(first_chars(text, self.token_count * CHARS_PER_TOKEN as usize)))
            }
        }
    }

    fn hash_ids(&self, ids: impl Iterator<Item = u32>) -> u64 {
        let mut hasher = Xxh3::new();
        // Big-endian ids of the mock tokenizer are the text itself: a virtual run hashes what a live one does.
        ids.take(self.token_count).for_each(|id| hasher.update(&id.to_be_bytes()));
        hasher.digest()
    }
}

impl Policy for PrefixHash {
    fn choose<'d>(&self, decision: &'d Decision<'_>) -> Result<Choice<'d>, Unroutable> {
        let candidates = &decision.candidates;
        let total: u64 = candidates.iter().map(|row| row.load().requests).sum();
        let most = (total + 1) as f64 / candidates.len() as f64 * self.load_factor;
        let acceptable = |row: &Candidate<'_>| total == 0 || row.load().requests as f64 <= most;
        let hash = decision.place.or_else(|| self.hash(decision.request.prompt));
        let on_ring = hash.and_then(|hash| {
            let mut walk = self.ring.clockwise(hash).filter_map(|worker| candidates.get(worker));
            let own = walk.next()?;
            if acceptable(own) {
                return Some(Choice::new(own, HIT));
            }
            walk.find(|row| acceptable(row)).map(|row| Choice::new(row, WALK))
        });
        Ok(on_ring.unwrap_or_else(|| Choice::new(candidates.least_loaded(&mut decision.draws()), NO_PROMPT)))
    }

    fn place(&self, request: &RouteRequest<'_>) -> Option<u64> {
        self.ring.place(self.hash(request.prompt)?)
    }

    fn worker_added(&mut self, worker: &Worker) {
        self.ring.add(worker);
    }

    fn worker_removed(&mut self, worker: WorkerId) {
        self.ring.remove(worker);
    }
}

/// The first `count` characters of a text.
fn first_chars(text: &[u8], count: usize) -> &[u8] {
    let head = &text[..count.min(text.len())];
    if text_chars(head) == head.len() as u64 {
        return head;
    }
    let mut starts = (0..text.len()).filter(|at| starts_char(text[*at]));
    &text[..starts.nth(count).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_prompt_is_hashed() {
        let mut config = PolicyConfig::of(&ROW);
        config.set(TOKEN_COUNT.key, 2).expect("in range");
        let policy = PrefixHash::new(&config);
        let text = |text: &'static str| policy.hash(PromptView::Text(text.as_bytes()));
        assert_eq!(text("日本語四五六七八ab"), text("日本語四五六七八cd"), "eight characters, not bytes");
        assert_ne!(text("日本語四五六七八"), text("日本語四五六七九"));
        let tokens = |ids: &'static [u32]| policy.hash(PromptView::Tokens(ids));
        assert_eq!(tokens(&[1, 2, 3]), tokens(&[1, 2, 4]));
        assert_ne!(tokens(&[1, 2]), tokens(&[1, 3]));
        assert_eq!((text(""), tokens(&[]), policy.hash(PromptView::Unreadable)), (None, None, None));
    }
}
