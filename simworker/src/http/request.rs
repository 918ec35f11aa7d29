//! From a body to requests in the engine: what the three generating routes have in common.

use std::sync::Arc;

use axum::http::HeaderMap;
use protocol::tokenizer::{Token, encode, mix};
use protocol::view::Prompt;

use simworker_core::EngineRole;

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};
use super::placement::{Count, Placement};
use crate::config::WorkerConfig;
use crate::latency::Traffic;
use crate::ticket::Ticket;
use crate::worker::{Job, Output, Worker};

/// All that an empty text has: real tokenizers begin every text with such a token.
const START_OF_TEXT: Token = 1;
/// The most answers to one prompt.
const MAX_N: u32 = 128;

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
    rids: Option<OneOrMany<String>>,
    priority: i64,
    /// One for each prompt.
    namespaces: Vec<u64>,
    placement: Placement,
}

/// What is asked about one reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) output: Output,
    pub(super) ignore_eos: bool,
}

impl Order {
    /// Reads what all dialects spell alike. `wishes` has one entry for all prompts, or one for each.
    pub(super) fn read(
        config: &WorkerConfig,
        headers: &HeaderMap,
        fields: &Fields<'_>,
        prompt: Prompt<'_>,
        wishes: OneOrMany<Wish>,
        n: u32,
    ) -> Result<Self, Failure> {
        let is_batch = matches!(prompt, Prompt::Texts(_) | Prompt::TokenLists(_));
        let prompts = tokens(prompt)?;
        let wishes = match wishes {
            OneOrMany::One(wish) => vec![wish; prompts.len()],
            OneOrMany::Many(wishes) => wishes,
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
            namespaces: namespaces(fields, prompts.len())?,
            prompts,
            is_batch,
            wishes,
            n,
            stream: fields.get_or_default("stream")?,
            rids: fields.get("rid")?,
            priority: fields.get_or_default("priority")?,
            placement,
        })
    }

    /// Sends everything into the engine. The tickets are in the order of prompts, then of answers to one prompt.
    pub(super) async fn submit(self, worker: &Arc<Worker>) -> Result<Vec<Ticket>, Failure> {
        let rids = self.rids(worker)?;
        // Elsewhere a request without a room of its own cannot run.
        if self.n > 1 && worker.config.engine.role == EngineRole::Whole {
            self.prefill_once(worker).await?;
        }
        let jobs = (0..rids.len()).zip(rids).map(|(index, rid)| {
            let prompt = index / self.n as usize;
            Job { handoff: self.placement.handoff(index), ..self.job(rid, prompt, self.wishes[prompt]) }
        });
        jobs.map(|job| submit(worker, job)).collect()
    }

    /// With several answers to a prompt, SGLang computes it once before it lets the copies in, so that they hit the
    /// cache.
    async fn prefill_once(&self, worker: &Arc<Worker>) -> Result<(), Failure> {
        let wish = Wish { output: Output::Tokens(1), ignore_eos: true };
        for prompt in 0..self.prompts.len() {
            submit(worker, self.job(worker.fresh_rid(), prompt, wish))?.end().await;
        }
        Ok(())
    }

    fn job(&self, rid: String, prompt: usize, wish: Wish) -> Job {
        Job {
            rid,
            prompt: Arc::clone(&self.prompts[prompt]),
            output: wish.output,
            ignore_eos: wish.ignore_eos,
            priority: self.priority,
            namespace: self.namespaces[prompt],
            traffic: if self.stream { Traffic::Streamed } else { Traffic::Whole },
            rank: self.placement.rank,
            handoff: None,
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
            Some(OneOrMany::Many(_)) => Err(Failure::bad_request("rid: as many ids as prompts are needed.")),
        }
    }
}

fn submit(worker: &Arc<Worker>, job: Job) -> Result<Ticket, Failure> {
    let rid = job.rid.clone();
    worker.submit(job).map_err(|_| Failure::bad_request(format!("Duplicate request ID detected: {rid}")))
}

fn tokens(prompt: Prompt<'_>) -> Result<Vec<Arc<[Token]>>, Failure> {
    let all: Vec<Arc<[Token]>> = match prompt {
        Prompt::Text(text) => vec![encode_text(&text)],
        Prompt::Tokens(ids) => vec![ids.into()],
        Prompt::Texts(texts) => texts.iter().map(|text| encode_text(text)).collect(),
        Prompt::TokenLists(lists) => lists.into_iter().map(Arc::from).collect(),
        Prompt::Unreadable => return Err(Failure::bad_request("The prompt is missing or of a wrong type.")),
    };
    if all.iter().any(|tokens| tokens.is_empty()) {
        return Err(Failure::bad_request("The prompt is empty."));
    }
    Ok(all)
}

fn encode_text(text: &str) -> Arc<[Token]> {
    if text.is_empty() { Arc::new([START_OF_TEXT]) } else { encode(text).into() }
}

/// One for each prompt: requests share KV only with those of the same extra key, salt and adapter.
fn namespaces(fields: &Fields<'_>, prompts: usize) -> Result<Vec<u64>, Failure> {
    let mut hashes = vec![0; prompts];
    for (kind, key) in (1u64..).zip(["extra_key", "cache_salt", "lora_path"]) {
        let values = fields.per_prompt::<String>(key, prompts)?;
        for (hash, value) in hashes.iter_mut().zip(values) {
            if let Some(value) = value {
                *hash = value.bytes().fold(mix(*hash ^ kind), |hash, byte| mix(hash ^ u64::from(byte)));
            }
        }
    }
    Ok(hashes)
}
