//! From a body to requests in the engine: what the three generating routes have in common.

use std::sync::Arc;

use axum::http::HeaderMap;
use protocol::tokenizer::{Token, encode};
use protocol::view::Prompt;

use simworker_core::{CacheNames, EngineRole, FinishReason};

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};
use super::labels::hash;
use super::limits;
use super::placement::{Count, Placement};
use super::sampling::Sampling;
use crate::config::WorkerConfig;
use crate::latency::Traffic;
use crate::mailbox::{Ending, Finish};
use crate::reply::{Output, Wish};
use crate::ticket::Ticket;
use crate::worker::{DuplicateRid, Job, Worker};

/// All that an empty text has: real tokenizers begin every text with such a token.
const START_OF_TEXT: Token = 1;
/// The header that the OpenAI routes take the routing key from.
const ROUTING_KEY_HEADER: &str = "x-smg-routing-key";

/// What the dialects say in their own ways.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) prompt: Prompt<'a>,
    /// For all prompts, or one for each.
    pub(super) sampling: OneOrMany<Sampling>,
    /// The adapter that the model's name asks for.
    pub(super) adapter: Option<&'a str>,
    pub(super) routing_key: Option<String>,
}

/// What a body asks the engine for.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) prompts: Vec<Arc<[Token]>>,
    /// The body holds a list of prompts, even if it is a list of one.
    pub(super) is_batch: bool,
    /// One for each prompt.
    pub(super) wishes: Vec<Wish>,
    /// Answers to each prompt.
    pub(super) n: u32,
    pub(super) stream: bool,
    /// The prompts are computed, and nothing is made of them.
    is_prefill_only: bool,
    /// The answers count in the metrics.
    pub(super) is_counted: bool,
    rids: Option<OneOrMany<String>>,
    priority: Option<i64>,
    routing_key: Option<u64>,
    /// One for each prompt: no more of it is looked up in the cache.
    pub(super) match_limits: Vec<Option<u64>>,
    /// One for each prompt.
    namespaces: Vec<Namespace>,
    placement: Placement,
}

impl Order {
    /// Reads what all dialects spell alike.
    pub(super) fn read(
        config: &WorkerConfig,
        headers: &HeaderMap,
        fields: &Fields<'_>,
        asked: Asked<'_>,
    ) -> Result<Self, Failure> {
        let Asked { prompt, sampling, adapter, routing_key } = asked;
        let is_batch = matches!(prompt, Prompt::Texts(_) | Prompt::TokenLists(_));
        limits::check("requests in a body", count(&prompt), limits::MAX_REQUESTS)?;
        let prompts = tokens(prompt)?;
        let (wishes, n) = match sampling {
            OneOrMany::One(Sampling { wish, n }) => (vec![wish; prompts.len()], n),
            OneOrMany::Many(all) => {
                let n = all.first().map_or(1, |first| first.n);
                (all.into_iter().map(|one| one.wish).collect(), n)
            }
        };
        if wishes.len() != prompts.len() {
            return Err(Failure::bad_request("sampling_params: as many entries as prompts are needed."));
        }
        if n == 0 {
            return Err(Failure::bad_request("n is 0; it must be at least 1."));
        }
        limits::check("answers to a prompt", u64::from(n), limits::MAX_N)?;
        let requests = prompts.len() as u64 * u64::from(n);
        limits::check("requests in a body", requests, limits::MAX_REQUESTS)?;
        check_stops(config, &prompts, &wishes, n)?;
        let count = Count { prompts: prompts.len(), n: n as usize };
        let placement = Placement::read(config, headers, fields, count)?;
        Ok(Self {
            namespaces: namespaces(fields, prompts.len(), adapter)?,
            match_limits: vec![None; prompts.len()],
            routing_key: routing_key.map(|key| hash(0, &key)),
            prompts,
            is_batch,
            wishes,
            n,
            stream: fields.get_or_default("stream")?,
            is_prefill_only: false,
            is_counted: true,
            rids: fields.get("rid")?,
            priority: priority(config, fields)?,
            placement,
        })
    }

    /// Without replies.
    pub(super) fn prefill_only(self) -> Self {
        Self { is_prefill_only: true, stream: false, ..self }
    }

    /// Cut to what fits (`--allow-auto-truncate`).
    fn cut(&mut self, worker: &Worker) {
        let most = usize::try_from(worker.limits.max_input_len()).unwrap_or(usize::MAX).saturating_sub(1);
        let context = worker.config.engine.context_len;
        for (prompt, wish) in self.prompts.iter_mut().zip(&mut self.wishes) {
            if prompt.len() > most {
                *prompt = prompt[..most].into();
            }
            if let Output::Tokens(tokens) = &mut wish.output {
                *tokens = (*tokens).min(context.saturating_sub(prompt.len() as u32));
            }
        }
    }

    /// Under this id.
    pub(super) fn named(self, rid: String) -> Self {
        Self { rids: Some(OneOrMany::One(rid)), ..self }
    }

    /// Sends everything into the engine. The tickets are in the order of prompts, then of answers to one prompt.
    pub(super) async fn submit(mut self, worker: &Arc<Worker>) -> Result<Vec<Ticket>, Failure> {
        if worker.config.wire.allow_auto_truncate {
            self.cut(worker);
        }
        let rids = self.rids(worker)?;
        let mut fates: Vec<Option<Ending>> =
            (0..self.prompts.len()).map(|prompt| self.refusal(prompt)).collect();
        // Elsewhere a request without a room of its own cannot run.
        if self.n > 1 && worker.config.engine.role == EngineRole::Whole {
            worker.check_rids(rids.iter().map(String::as_str)).map_err(duplicate)?;
            for (prompt, fate) in fates.iter_mut().enumerate().filter(|(_, fate)| fate.is_none()) {
                *fate = self.prefill_once(worker, prompt).await?;
            }
        }
        let jobs = (0..rids.len()).zip(rids).map(|(index, rid)| {
            let prompt = index / self.n as usize;
            let (wish, fate) = (self.wishes[prompt].clone(), fates[prompt].clone());
            Job { handoff: self.placement.handoff(index), fate, ..self.job(rid, prompt, wish) }
        });
        worker.submit_all(jobs.collect()).map_err(duplicate)
    }

    /// What the scheduler says of a prompt that is shorter than the place where its log-probabilities begin.
    fn refusal(&self, prompt: usize) -> Option<Ending> {
        let (start, length) = (self.match_limits[prompt]?, self.prompts[prompt].len());
        let message = || {
            format!(
                "req.logprob_start_len={start} is higher than the number of input tokens \
                 len(req.origin_input_ids)={length}. Please use a smaller logprob_start_len."
            )
        };
        let refused = || Ending::Refused { status: 400, message: message(), by_scheduler: true };
        (start > length as u64).then(refused)
    }

    /// With several answers to a prompt, SGLang computes it once before it lets the copies in, so that they hit the
    /// cache. Tells what becomes of all of them, if that came to nothing.
    async fn prefill_once(&self, worker: &Arc<Worker>, prompt: usize) -> Result<Option<Ending>, Failure> {
        let job = self.job(worker.fresh_rid(), prompt, Wish::exactly(0));
        let job = Job { is_prefill_only: true, traffic: Traffic::Whole, ..job };
        let (_, ending) = worker.submit(job).map_err(duplicate)?.end().await;
        let reason = match &ending {
            Ending::Finished(Finish { reason, .. }) => Some(reason),
            Ending::Refused { .. } => None,
        };
        let is_done = matches!(reason, Some(FinishReason::Length | FinishReason::Stop));
        Ok((!is_done).then_some(ending))
    }

    fn job(&self, rid: String, prompt: usize, wish: Wish) -> Job {
        // SGLang samples nothing for those that ask for no token.
        let is_prefill_only = self.is_prefill_only || wish.output == Output::Tokens(0);
        Job {
            rid,
            priority: self.priority,
            routing_key: self.routing_key,
            match_limit: self.match_limits[prompt].map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            namespace: self.namespaces[prompt].0,
            names: self.namespaces[prompt].1.clone(),
            traffic: if self.stream { Traffic::Streamed } else { Traffic::Whole },
            rank: self.placement.rank,
            is_prefill_only,
            is_counted: self.is_counted,
            ..Job::new(Arc::clone(&self.prompts[prompt]), wish)
        }
    }

    /// One id per request: the one given, with a number where there are several.
    fn rids(&self, worker: &Worker) -> Result<Vec<String>, Failure> {
        let (prompts, n) = (self.prompts.len(), self.n as usize);
        let numbered = |rid: &str, count: usize| -> Vec<String> {
            if count == 1 { vec![rid.to_owned()] } else { (0..count).map(|i| format!("{rid}_{i}")).collect() }
        };
        match &self.rids {
            None => Ok((0..prompts * n).map(|_| worker.fresh_rid()).collect()),
            Some(OneOrMany::One(rid)) => Ok(numbered(rid, prompts * n)),
            Some(OneOrMany::Many(rids)) if rids.len() == prompts => {
                Ok(rids.iter().flat_map(|rid| numbered(rid, n)).collect())
            }
            Some(OneOrMany::Many(_)) => Err(Failure::bad_request(
                "The specified rids length mismatch with the batch_size for batch processing.",
            )),
        }
    }
}

fn duplicate(DuplicateRid(rid): DuplicateRid) -> Failure {
    Failure::bad_request(format!("Duplicate request ID detected: {rid}"))
}

/// The priority; one that is not given has the default where priorities count.
fn priority(config: &WorkerConfig, fields: &Fields<'_>) -> Result<Option<i64>, Failure> {
    let default = config.wire.default_priority.filter(|_| config.engine.queue.priority.is_some());
    Ok(fields.get("priority")?.or(default))
}

/// How many prompts there are.
fn count(prompt: &Prompt<'_>) -> u64 {
    let prompts = match prompt {
        Prompt::Texts(texts) => texts.len(),
        Prompt::TokenLists(lists) => lists.len(),
        Prompt::Text(_) | Prompt::Tokens(_) | Prompt::Unreadable => 1,
    };
    prompts as u64
}

/// Stops are looked for in whole replies before the first of them begins, so that there is a bound on these.
fn check_stops(
    config: &WorkerConfig,
    prompts: &[Arc<[Token]>],
    wishes: &[Wish],
    n: u32,
) -> Result<(), Failure> {
    let searched = |(prompt, wish): (&Arc<[Token]>, &Wish)| {
        let room = config.engine.context_len.saturating_sub(prompt.len() as u32);
        if wish.stops.are_none() { 0 } else { u64::from(wish.most(room)) * u64::from(n) }
    };
    let tokens = prompts.iter().zip(wishes).map(searched).sum();
    limits::check("tokens of replies that may end with a stop", tokens, limits::MAX_SEARCHED_TOKENS)
}

/// The routing key that the OpenAI routes see.
pub(super) fn routing_key(headers: &HeaderMap) -> Option<String> {
    let key = headers.get(ROUTING_KEY_HEADER)?;
    Some(String::from_utf8_lossy(key.as_bytes()).into_owned())
}

fn tokens(prompt: Prompt<'_>) -> Result<Vec<Arc<[Token]>>, Failure> {
    let all: Vec<Arc<[Token]>> = match prompt {
        Prompt::Text(text) => vec![encode_text(&text)],
        Prompt::Tokens(ids) => vec![ids.into()],
        Prompt::Texts(texts) => texts.iter().map(|text| encode_text(text)).collect(),
        Prompt::TokenLists(lists) => lists.into_iter().map(Arc::from).collect(),
        Prompt::Unreadable => return Err(Failure::schema("The prompt is missing or of a wrong type.")),
    };
    if all.is_empty() || all.iter().any(|tokens| tokens.is_empty()) {
        return Err(Failure::bad_request("input_ids cannot be empty."));
    }
    Ok(all)
}

fn encode_text(text: &str) -> Arc<[Token]> {
    if text.is_empty() { Arc::new([START_OF_TEXT]) } else { encode(text).into() }
}

/// One for each prompt: requests share KV only with those of the same extra key, salt and adapter. An empty name is none,
/// and `adapter` comes before `lora_path`.
fn namespaces(fields: &Fields<'_>, prompts: usize, adapter: Option<&str>) -> Result<Vec<Namespace>, Failure> {
    let mut found = vec![(0, CacheNames::default()); prompts];
    for (kind, key) in (1u64..).zip(["extra_key", "cache_salt", "lora_path"]) {
        let values = match adapter {
            Some(adapter) if key == "lora_path" => vec![Some(adapter.to_owned()); prompts],
            _ => fields.per_prompt::<String>(key, prompts)?,
        };
        for ((into, names), value) in found.iter_mut().zip(values) {
            let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
            *into = hash(*into ^ kind, &value);
            let name = match key {
                "extra_key" => &mut names.extra_key,
                "cache_salt" => &mut names.cache_salt,
                _ => &mut names.lora,
            };
            *name = Some(value.into());
        }
    }
    Ok(found.into_iter().map(|(hash, names)| (hash, (hash != 0).then(|| Arc::new(names)))).collect())
}

/// Requests share KV only within one, and what it is called.
type Namespace = (u64, Option<Arc<CacheNames>>);
