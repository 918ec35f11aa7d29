//! What is asked of the worker: facts, prompts of many lengths, batches of many sizes.

use std::time::Duration;

use protocol::tokenizer::{Token, mix};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::CalibrateError;
use super::client::Client;
use super::facts::{Counters, Facts};
use super::fit::{DecodeSample, PrefillSample, median};

/// Lengths of prompts, cut at the prefill chunk. The shortest are bound by the weights on all hardware known.
const LENGTHS: [u64; 12] = [16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192];
/// How often each is measured.
const TIMES: u64 = 3;
/// Bodies of longer prompts take a client and a worker some time of their own.
const LONGEST_TIMED: u64 = 8192;
/// New tokens on a long prompt that is cached.
const CACHED: (u64, u64) = (2048, 32);
/// Requests and prompt tokens of each batch.
const BATCHES: [(u64, u64); 13] = [
    (1, 32),
    (1, 4096),
    (2, 32),
    (4, 2048),
    (8, 32),
    (16, 512),
    (32, 32),
    (64, 32),
    (96, 32),
    (128, 32),
    (192, 32),
    (256, 32),
    (512, 32),
];
/// Tokens that each request of a batch makes.
const MADE: u64 = 20;
/// Most of the KV that a batch may take, so that nothing is evicted or retracted.
const MOST_OF_KV: f64 = 0.5;
/// Ids from here on are ordinary words with all tokenizers known.
const FIRST_ID: u64 = 1_000;
const IDS: u64 = 25_000;
/// How long the worker may take to show that it is idle, and how often that is looked at.
const SETTLE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) prefill: Vec<PrefillSample>,
    pub(super) decode: Vec<DecodeSample>,
    /// Of single prompts that are not long: time in the engine and least time at the client, nanoseconds.
    pub(super) overhead: Vec<(f64, f64)>,
}

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
        self.has_counters = loads.status == 200 && entry["total_prefill_busy_us"].is_u64();
        if entry["num_running_reqs"].as_u64().unwrap_or(0) + entry["num_waiting_reqs"].as_u64().unwrap_or(0)
            > 0
        {
            return Err(CalibrateError::Busy);
        }
        let dp_size = info["dp_size"].as_u64().unwrap_or(1);
        self.rank = (dp_size > 1).then_some(0);
        let models = self.client.get("/v1/models").await?.body;
        Facts::read(&info, &loads.body, &models, dp_size)
    }

    /// Empties the cache and lets the engine warm up: the first request of a kind is slow.
    pub(super) async fn warm_up(&mut self, facts: &Facts) -> Result<(), CalibrateError> {
        // What is cached stays then; all prompts are new ones anyway.
        self.client.post("/flush_cache", &json!({})).await?;
        for length in [32, facts.chunk.min(2048)] {
            let prompts = self.prompts(1, length);
            self.generate(&prompts, 2).await?;
        }
        Ok(())
    }

    /// Single prompts of all lengths, new and on top of a cached one.
    pub(super) async fn prefill(
        &mut self,
        facts: &Facts,
        samples: &mut Samples,
    ) -> Result<(), CalibrateError> {
        let most = facts.chunk.min(u64::from(facts.context_len) / 2).min(facts.kv_tokens / 4);
        let lengths: Vec<u64> = LENGTHS.into_iter().filter(|length| *length <= most).collect();
        for (at, length) in lengths.iter().enumerate() {
            if self.is_late() {
                break;
            }
            self.say(&format!("prefill {} of {}: {length} tokens", at + 1, lengths.len()));
            let mut ns = Vec::new();
            // Whatever disturbs a client makes it wait longer, never less.
            let mut least = (0.0, f64::INFINITY);
            for _ in 0..TIMES {
                let prompts = self.prompts(1, *length);
                let (busy, took) = self.timed_prefill(&prompts).await?;
                if took - busy < least.1 - least.0 {
                    least = (busy, took);
                }
                ns.push(busy);
            }
            if self.has_counters && *length <= LONGEST_TIMED {
                samples.overhead.push(least);
            }
            if let Some(ns) = median(&mut ns) {
                samples.prefill.push(PrefillSample { new_tokens: *length as f64, cached_tokens: 0.0, ns });
            }
        }
        self.cached_prefill(most, facts, samples).await
    }

    async fn cached_prefill(
        &mut self,
        most: u64,
        facts: &Facts,
        samples: &mut Samples,
    ) -> Result<(), CalibrateError> {
        let (cached, new) = CACHED;
        if cached > most || self.is_late() {
            return Ok(());
        }
        let mut prompts = self.prompts(1, cached);
        self.generate(&prompts, 1).await?;
        prompts[0].extend(self.prompts(1, new).remove(0));
        let before = self.settled(None).await?;
        let answer = self.generate(&prompts, 1).await?;
        let found = answer.cached_tokens.unwrap_or(0);
        let pages = cached - cached % u64::from(facts.page_size);
        // A cache that is off, or another client in between: then there is nothing to learn from it.
        if let Some(before) = before.filter(|_| found >= pages / 2) {
            let after = self.settled(Some(before.computed + cached + new - found)).await?.unwrap_or(before);
            samples.prefill.push(PrefillSample {
                new_tokens: (cached + new - found) as f64,
                cached_tokens: found as f64,
                ns: (after.busy_us - before.busy_us) * 1e3,
            });
        }
        Ok(())
    }

    /// Batches of all sizes.
    pub(super) async fn decode(
        &mut self,
        facts: &Facts,
        samples: &mut Samples,
    ) -> Result<(), CalibrateError> {
        let room = (facts.kv_tokens as f64 * MOST_OF_KV) as u64;
        let fits = |(batch, length): &(u64, u64)| {
            *batch <= facts.max_running
                && batch * (length + MADE) <= room
                && length + MADE < u64::from(facts.context_len)
        };
        let batches: Vec<(u64, u64)> = BATCHES.into_iter().filter(fits).collect();
        for (at, (batch, length)) in batches.iter().enumerate() {
            if self.is_late() {
                break;
            }
            self.say(&format!("decode {} of {}: {batch} × {length} tokens", at + 1, batches.len()));
            let prompts = self.prompts(*batch, *length);
            let sample = if self.has_counters {
                self.counted_decode(&prompts, *length).await?
            } else {
                self.timed_decode(&prompts, *length).await?
            };
            samples.decode.extend(sample);
        }
        Ok(())
    }

    /// The steps that the worker has counted for a batch. It leaves out the one after a prefill.
    async fn counted_decode(
        &mut self,
        prompts: &[Vec<Token>],
        length: u64,
    ) -> Result<Option<DecodeSample>, CalibrateError> {
        let Some(before) = self.settled(None).await? else { return Ok(None) };
        self.generate(prompts, MADE).await?;
        let computed = before.computed + prompts.len() as u64 * length;
        let Some(after) = self.settled(Some(computed)).await? else { return Ok(None) };
        let steps = after.steps - before.steps;
        if steps < 2.0 {
            return Ok(None);
        }
        let batch = (after.batch - before.batch) / steps;
        // The steps that count are the last ones: the last one decodes the token before the last.
        let context = length as f64 + MADE as f64 - 1.0 - (steps - 1.0) / 2.0;
        let ns = (after.us - before.us) * 1e3 / steps;
        Ok(Some(DecodeSample { batch, context: batch * context, ns }))
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
        Ok((ns > 0.0).then_some(DecodeSample { batch, context: batch * context, ns }))
    }

    /// How long the engine and the client took over one prompt, nanoseconds.
    async fn timed_prefill(&mut self, prompts: &[Vec<Token>]) -> Result<(f64, f64), CalibrateError> {
        let before = self.settled(None).await?;
        let answer = self.generate(prompts, 1).await?;
        let took = answer.took.as_nanos() as f64;
        let length: u64 = prompts.iter().map(|prompt| prompt.len() as u64).sum();
        let Some(before) = before else { return Ok((took, took)) };
        let computed = length - answer.cached_tokens.unwrap_or(0);
        let after = self.settled(Some(before.computed + computed)).await?.unwrap_or(before);
        Ok(((after.busy_us - before.busy_us) * 1e3, took))
    }

    /// The counters of an idle worker; none if it tells none. `computed` is how many tokens it must have computed.
    async fn settled(&mut self, computed: Option<u64>) -> Result<Option<Counters>, CalibrateError> {
        if !self.has_counters {
            return Ok(None);
        }
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
            if computed.is_some_and(|computed| counters.computed > computed) || Instant::now() > deadline {
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
            return Err(CalibrateError::Refused { status: answer.status, text });
        }
        let cached_tokens = answer.body[0]["meta_info"]["cached_tokens"].as_u64();
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

    fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }
}

struct Generated {
    took: Duration,
    cached_tokens: Option<u64>,
}
