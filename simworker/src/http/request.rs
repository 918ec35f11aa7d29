//! From a body to requests in the engine: what the three generating routes have in common.

use std::sync::Arc;

use axum::http::HeaderMap;
use protocol::tokenizer::{Token, encode, mix};
use protocol::view::Prompt;

use simworker_core::{CacheNames, EngineRole};

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};
use super::placement::{Count, Placement};
use super::sampling::Sampling;
use crate::config::WorkerConfig;
use crate::latency::Traffic;
use crate::reply::{Output, Wish};
use crate::ticket::Ticket;
use crate::worker::{DuplicateRid, Job, Worker};

/// All that an empty text has: real tokenizers begin every text with such a token.
const START_OF_TEXT: Token = 1;
/// The most answers to one prompt.
const MAX_N: u32 = 128;

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
    rids: Option<OneOrMany<String>>,
    priority: Option<i64>,
    routing_key: Option<u64>,
    /// One for each prompt: no more of it is looked up in the cache.
    pub(super) match_limits: Vec<Option<u32>>,
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
        if !(1..=MAX_N).contains(&n) {
            return Err(Failure::bad_request(format!("n is {n}; it must be between 1 and {MAX_N}.")));
        }
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
            rids: fields.get("rid")?,
            priority: fields.get("priority")?,
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
        // Elsewhere a request without a room of its own cannot run.
        if self.n > 1 && worker.config.engine.role == EngineRole::Whole {
            worker.check_rids(rids.iter().map(String::as_str)).map_err(duplicate)?;
            self.prefill_once(worker).await?;
        }
        let jobs = (0..rids.len()).zip(rids).map(|(index, rid)| {
            let prompt = index / self.n as usize;
            let wish = self.wishes[prompt].clone();
            Job { handoff: self.placement.handoff(index), ..self.job(rid, prompt, wish) }
        });
        worker.submit_all(jobs.collect()).map_err(duplicate)
    }

    /// With several answers to a prompt, SGLang computes it once before it lets the copies in, so that they hit the
    /// cache.
    async fn prefill_once(&self, worker: &Arc<Worker>) -> Result<(), Failure> {
        for prompt in 0..self.prompts.len() {
            let job = self.job(worker.fresh_rid(), prompt, Wish::exactly(1));
            worker.submit(job).map_err(duplicate)?.end().await;
        }
        Ok(())
    }

    fn job(&self, rid: String, prompt: usize, wish: Wish) -> Job {
        Job {
            rid,
            priority: self.priority,
            routing_key: self.routing_key,
            match_limit: self.match_limits[prompt],
            namespace: self.namespaces[prompt].0,
            names: self.namespaces[prompt].1.clone(),
            traffic: if self.stream { Traffic::Streamed } else { Traffic::Whole },
            rank: self.placement.rank,
            is_prefill_only: self.is_prefill_only,
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

fn hash(seed: u64, text: &str) -> u64 {
    text.bytes().fold(mix(seed), |hash, byte| mix(hash ^ u64::from(byte)))
}

/// Requests share KV only within one, and what it is called.
type Namespace = (u64, Option<Arc<CacheNames>>);
