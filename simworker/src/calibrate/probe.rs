//! What is asked of the worker: facts, prompts of many lengths, batches of many sizes.

use std::time::Duration;

use protocol::tokenizer::{Token, mix};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::CalibrateError;
use super::client::Client;
use super::facts::{Counters, Facts};
use super::fit::{DecodeSample, PrefillSample, is_time};
use super::plan::{MADE, Plan};
use super::robust::median;
use super::samples::Samples;

/// Bodies of longer prompts take a client and a worker some time of their own.
const LONGEST_TIMED: u64 = 8192;
/// Ids from here on are ordinary words with all tokenizers known.
const FIRST_ID: u64 = 1_000;
const IDS: u64 = 25_000;
/// How often the way to the worker and back is measured.
const ROUND_TRIPS: usize = 16;
/// How long the worker may take to show that it is idle, and how often that is looked at.
const SETTLE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A worker under measurement.
pub(super) struct Probe<'a> {
    client: Client,
    until: Instant,
    tell: &'a mut dyn FnMut(&str),
    /// It tells its step times. Otherwise they are measured from outside.
    has_counters: bool,
    drawn: u64,
    seed: u64,
    rank: Option<u32>,
}

impl<'a> Probe<'a> {
    pub(super) fn new(client: Client, until: Instant, seed: u64, tell: &'a mut dyn FnMut(&str)) -> Self {
        Self { client, until, tell, has_counters: true, drawn: 0, seed, rank: None }
    }

    /// Tells whoever waits.
    pub(super) fn say(&mut self, line: &str) {
        (self.tell)(line);
    }

    /// Whether times are those of the engine's own counters.
    pub(super) fn has_counters(&self) -> bool {
        self.has_counters
    }

    /// Reads the info routes. The worker must be idle.
    pub(super) async fn facts(&mut self) -> Result<Facts, CalibrateError> {
        let mut info = self.client.get("/server_info").await?;
        if info.status == 404 {
            info = self.client.get("/get_server_info").await?;
        }
        if info.status != 200 {
            return Err(CalibrateError::NotSglang { route: "/server_info", status: info.status });
        }
        let info = info.body;
        let loads = self.client.get("/v1/loads").await?;
        let entry = &loads.body["loads"][0];
        self.has_counters = loads.status == 200 && Counters::are_in(entry);
        if entry["num_running_reqs"].as_u64().unwrap_or(0) + entry["num_waiting_reqs"].as_u64().unwrap_or(0)
            > 0
        {
            return Err(CalibrateError::Busy);
        }
        let models = self.client.get("/v1/models").await?.body;
        let facts = Facts::read(&info, &loads.body, &models)?;
        self.rank = (facts.dp_size > 1).then_some(0);
        Ok(facts)
    }

    /// Empties the cache and lets the engine warm up: the first request of a kind is slow.
    pub(super) async fn warm_up(&mut self, facts: &Facts) -> Result<(), CalibrateError> {
        // What is cached stays then; all prompts are new ones anyway.
        self.client.post("/flush_cache", &json!({})).await?;
        for length in [32, Plan::longest(facts).min(2048)] {
            let prompts = self.prompts(1, length);
            self.generate(&prompts, 2).await?;
        }
        Ok(())
    }

    /// The way to the worker and back.
    pub(super) async fn round_trip(&mut self, samples: &mut Samples) -> Result<(), CalibrateError> {
        let mut all = Vec::new();
        for _ in 0..ROUND_TRIPS {
            all.push(self.client.get("/v1/models").await?.took.as_nanos() as f64);
        }
        let middle = median(&mut all).unwrap_or(0.0);
        samples.round_trip_ns = all.first().copied().unwrap_or(0.0);
        samples.round_trip_more_ns = middle - samples.round_trip_ns;
        Ok(())
    }

    /// Single prompts of all lengths, new and on top of a cached one. The first round is whole even if time is short.
    pub(super) async fn prefill(&mut self, plan: &Plan, samples: &mut Samples) -> Result<(), CalibrateError> {
        for (at, length) in plan.lengths().iter().enumerate() {
            if self.is_late() {
                return Ok(());
            }
            if plan.round == 1 {
                self.say(&format!("prefill {} of {}: {length} tokens", at + 1, plan.lengths().len()));
            }
            for _ in 0..plan.times(*length) {
                if plan.round > 1 && self.is_late() {
                    return Ok(());
                }
                let prompts = self.prompts(1, *length);
                let (busy, took) = self.timed_prefill(&prompts).await?;
                if !is_time(busy) {
                    continue;
                }
                if self.has_counters && *length <= LONGEST_TIMED {
                    samples.add_overhead(at, busy, took);
                }
                let sample =
                    PrefillSample { new_tokens: *length as f64, cached_tokens: 0.0, ns: busy, error: 0.0 };
                samples.add_prefill(at, sample);
            }
        }
        self.cached_prefill(plan, samples).await
    }

    /// A few new tokens on a long prompt that is cached: their time is that of pairs of tokens for a large part.
    async fn cached_prefill(&mut self, plan: &Plan, samples: &mut Samples) -> Result<(), CalibrateError> {
        let Some((cached, new)) = plan.cached.filter(|_| !self.is_late() && self.has_counters) else {
            return Ok(());
        };
        let prefix = self.prompts(1, cached).remove(0);
        self.generate(std::slice::from_ref(&prefix), 1).await?;
        let pages = cached - cached % plan.page_size;
        for _ in 0..plan.cached_times() {
            if self.is_late() {
                break;
            }
            let mut prompts = self.prompts(1, new);
            prompts[0].splice(0..0, prefix.iter().copied());
            let Some(before) = self.settled(None).await? else { break };
            let found = self.generate(&prompts, 1).await?.cached_tokens.unwrap_or(0);
            // A cache that is off, or another client in between: then there is nothing to learn from it.
            if found < pages / 2 {
                break;
            }
            let new_tokens = cached + new - found;
            let after = self.settled(Some((before, new_tokens))).await?.unwrap_or(before);
            let ns = (after.busy_us - before.busy_us) * 1e3;
            if is_time(ns) {
                let (new_tokens, cached_tokens) = (new_tokens as f64, found as f64);
                let sample = PrefillSample { new_tokens, cached_tokens, ns, error: 0.0 };
                samples.add_prefill(plan.lengths().len(), sample);
            }
        }
        Ok(())
    }

    /// Batches of all sizes.
    pub(super) async fn decode(&mut self, plan: &Plan, samples: &mut Samples) -> Result<(), CalibrateError> {
        for (at, (batch, length)) in plan.batches().iter().enumerate() {
            if self.is_late() {
                break;
            }
            if plan.round == 1 {
                self.say(&format!(
                    "decode {} of {}: {batch} × {length} tokens",
                    at + 1,
                    plan.batches().len()
                ));
            }
            let prompts = self.prompts(*batch, *length);
            let sample = if self.has_counters {
                self.counted_decode(&prompts, *length, plan.made(*batch, *length)).await?
            } else {
                self.timed_decode(&prompts, *length).await?
            };
            if let Some(sample) = sample {
                samples.add_decode(at, sample);
            }
        }
        Ok(())
    }

    /// The steps that the worker has counted for a batch. It leaves out the one after a prefill.
    async fn counted_decode(
        &mut self,
        prompts: &[Vec<Token>],
        length: u64,
        made: u64,
    ) -> Result<Option<DecodeSample>, CalibrateError> {
        let Some(before) = self.settled(None).await? else { return Ok(None) };
        self.generate(prompts, made).await?;
        let computed = prompts.len() as u64 * length;
        let Some(after) = self.settled(Some((before, computed))).await? else { return Ok(None) };
        let steps = after.steps - before.steps;
        if steps < 2.0 {
            return Ok(None);
        }
        let batch = (after.batch - before.batch) / steps;
        // The steps that count are the last ones: the last one decodes the token before the last.
        let context = length as f64 + made as f64 - 1.0 - (steps - 1.0) / 2.0;
        let ns = (after.us - before.us) * 1e3 / steps;
        let sample = DecodeSample { batch, context: batch * context, ns, error: 0.0 };
        Ok((is_time(ns) && is_time(batch)).then_some(sample))
    }

    /// What so many more tokens take.
    async fn timed_decode(
        &mut self,
        prompts: &[Vec<Token>],
        length: u64,
    ) -> Result<Option<DecodeSample>, CalibrateError> {
        let short = self.generate(prompts, 2).await?.took;
        let others = self.prompts(prompts.len() as u64, length);
        let long = self.generate(&others, 2 + MADE).await?.took;
        let ns = (long.as_nanos() as f64 - short.as_nanos() as f64) / MADE as f64;
        let context = length as f64 + 2.0 + MADE as f64 / 2.0;
        let batch = prompts.len() as f64;
        Ok(is_time(ns).then_some(DecodeSample { batch, context: batch * context, ns, error: 0.0 }))
    }

    /// How long the engine and the client took over one prompt, nanoseconds.
    async fn timed_prefill(&mut self, prompts: &[Vec<Token>]) -> Result<(f64, f64), CalibrateError> {
        let before = self.settled(None).await?;
        let answer = self.generate(prompts, 1).await?;
        let took = answer.took.as_nanos() as f64;
        let length: u64 = prompts.iter().map(|prompt| prompt.len() as u64).sum();
        let Some(before) = before else { return Ok((took, took)) };
        let computed = length - answer.cached_tokens.unwrap_or(0);
        let after = self.settled(Some((before, computed))).await?.unwrap_or(before);
        Ok(((after.busy_us - before.busy_us) * 1e3, took))
    }

    /// The counters of an idle worker; none if it tells none. `since` is what they were, and how many tokens it must have
    /// computed since then.
    async fn settled(&mut self, since: Option<(Counters, u64)>) -> Result<Option<Counters>, CalibrateError> {
        if !self.has_counters {
            return Ok(None);
        }
        let computed = since.map(|(before, tokens)| before.computed.saturating_add(tokens));
        let deadline = Instant::now() + SETTLE;
        loop {
            let path = format!("/v1/loads?include=core&dp_rank={}", self.rank.unwrap_or(0));
            let loads = self.client.get(&path).await?.body;
            let entry = &loads["loads"][0];
            let number = |key: &str| entry[key].as_u64().unwrap_or(0);
            let counters = Counters::read(entry);
            let is_idle = number("num_running_reqs") + number("num_waiting_reqs") == 0;
            if is_idle && computed.is_none_or(|computed| computed == counters.computed) {
                return Ok(Some(counters));
            }
            let is_late = Instant::now() > deadline;
            if let Some((before, expected)) = since.filter(|_| is_late && is_idle) {
                let counted = counters.computed.saturating_sub(before.computed);
                return Err(CalibrateError::Uncounted { counted, expected });
            }
            if is_late || computed.is_some_and(|computed| counters.computed > computed) {
                return Err(CalibrateError::Busy);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn generate(&mut self, prompts: &[Vec<Token>], tokens: u64) -> Result<Generated, CalibrateError> {
        let mut body = json!({
            "input_ids": prompts,
            "sampling_params": { "max_new_tokens": tokens, "ignore_eos": true, "temperature": 0 },
        });
        if let Some(rank) = self.rank {
            body["routed_dp_rank"] = rank.into();
        }
        let answer = self.client.post("/generate", &body).await?;
        if answer.status != 200 {
            let text = answer.body.to_string();
            return Err(CalibrateError::Refused { status: answer.status, requests: prompts.len(), text });
        }
        let cached_tokens = answer.body[0]["meta_info"]["cached_tokens"].as_u64();
        let prompt = prompts.first().map_or(0, |prompt| prompt.len() as u64);
        if let Some(cached) = cached_tokens.filter(|cached| *cached >= prompt) {
            return Err(CalibrateError::Untrue { cached, prompt });
        }
        Ok(Generated { took: answer.took, cached_tokens })
    }

    /// Prompts that nobody has sent before: their first tokens differ already.
    fn prompts(&mut self, count: u64, length: u64) -> Vec<Vec<Token>> {
        let mut prompt = || {
            self.drawn += 1;
            let start = mix(self.seed).wrapping_add(self.drawn);
            (0..length)
                .map(|at| {
                    let draw = if at == 0 { start } else { mix(start ^ mix(at)) };
                    (FIRST_ID + draw % IDS) as Token
                })
                .collect()
        };
        (0..count).map(|_| prompt()).collect()
    }

    /// Whether it is too late to begin another probe.
    pub(super) fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }
}

struct Generated {
    took: Duration,
    cached_tokens: Option<u64>,
}
