//! Plays the lines of a trace on a cache.

use crate::compare::is_result;
use crate::subject::{Insertion, Subject};
use protocol::tokenizer::Token;
use serde_json::{Map, Value, json};
use simworker_core::cache::{CacheConfig, Eviction, HostTier, WritePolicy};
use std::collections::BTreeMap;

type Outcome<T = ()> = Result<T, String>;
type Fields = Map<String, Value>;

/// A cache and the requests that a trace has brought so far. Without a cache until the first `config`.
pub(crate) struct Driver<S: Subject> {
    section: Option<Section<S>>,
}

impl<S: Subject> Default for Driver<S> {
    fn default() -> Self {
        Self { section: None }
    }
}

struct Section<S: Subject> {
    cache: S,
    page: usize,
    chunk: usize,
    requests: BTreeMap<String, Request<S::Hold>>,
    namespaces: Vec<String>,
    /// Tokens evicted by the line in progress.
    evicted: u64,
    has_tier: bool,
}

struct Request<H> {
    /// Prompt and outputs.
    tokens: Vec<Token>,
    next_output: Token,
    of: Insertion,
    hold: Option<H>,
}

impl<S: Subject> Driver<S> {
    /// Plays a line. The answer is the line with every result as it came out, whatever the line says; `steps` and
    /// the presence of `failed_check` are questions as well as results.
    pub(crate) fn answer(&mut self, line: &Value) -> Outcome<Value> {
        let asked = line.as_object().ok_or("not an object")?;
        let mut answer = without_results(asked);
        match text(asked, "op")? {
            "config" => self.section = Some(Section::new(asked)?),
            op => {
                let section = self.section.as_mut().ok_or("no config before it")?;
                section.evicted = 0;
                section.play(op, asked, &mut answer)?;
                let counts = section.cache.counts();
                answer.insert("expected_evicted".into(), json!(section.evicted));
                answer.insert("expected_evictable".into(), json!(counts.evictable));
                answer.insert("expected_protected".into(), json!(counts.protected));
                answer.insert("expected_free".into(), json!(counts.free));
                answer.insert("expected_nodes".into(), json!(counts.nodes));
                if section.has_tier {
                    answer.insert("expected_host".into(), json!(counts.host));
                }
            }
        }
        Ok(Value::Object(answer))
    }

    /// The cache of the current section.
    pub(crate) fn subject(&mut self) -> &mut S {
        &mut self.section.as_mut().expect("a config line came first").cache
    }
}

// === impl Section: one operation each ===

impl<S: Subject> Section<S> {
    fn new(line: &Fields) -> Outcome<Self> {
        let page = number(line, "page_size")?;
        let policy = line.get("policy").and_then(Value::as_str).unwrap_or_default();
        let config = CacheConfig {
            page_size: u32::try_from(page).map_err(|e| e.to_string())?,
            capacity_tokens: number(line, "capacity")? as u64,
            eviction: Eviction::from_label(policy).ok_or_else(|| format!("policy {policy:?}"))?,
            disabled: false,
        };
        let tier = tier(line)?;
        Ok(Self {
            has_tier: tier.is_some(),
            cache: S::new(config, tier),
            page,
            chunk: number(line, "chunk")?,
            requests: BTreeMap::new(),
            namespaces: Vec::new(),
            evicted: 0,
        })
    }

    fn play(&mut self, op: &str, asked: &Fields, answer: &mut Fields) -> Outcome {
        match op {
            "admit" => self.admit(asked, answer),
            "chunk" => self.chunk(asked, answer),
            "prefill_done" => rids(asked)?.into_iter().try_for_each(|rid| self.prefill_done(rid)),
            "decode" => self.decode(asked, answer),
            "retract" => {
                let hold = self.take_hold(text(asked, "rid")?)?;
                self.cache.drop_private(hold);
                self.evict_to_free(number(asked, "evict_to_free")?);
                Ok(())
            }
            "finish" => self.finish(text(asked, "rid")?),
            "abort" => self.abort(asked),
            "probe" => {
                let namespace = self.namespace(asked);
                let cached = self.cache.probe(&segments(asked)?, namespace);
                answer.insert("expected_cached".into(), json!(cached));
                Ok(())
            }
            "flush" => self.cache.flush().then_some(()).ok_or("flush, but not idle".into()),
            _ => Err("unknown op".into()),
        }
    }

    fn admit(&mut self, asked: &Fields, answer: &mut Fields) -> Outcome {
        let (mut need, mut admitted, mut answers) = (0, Vec::new(), Vec::new());
        let mut budget = self.chunk;
        for asked in asked.get("reqs").and_then(Value::as_array).ok_or("reqs: not a list")? {
            let asked = asked.as_object().ok_or("reqs: not a list of objects")?;
            let rid = self.meet(asked)?;
            let request = &self.requests[&rid];
            let mut hold = self.cache.acquire(&request.tokens, request.of.namespace);
            let mut answer = without_results(asked);
            if self.has_tier {
                answer.insert("expected_loaded".into(), json!(self.cache.load_back(&mut hold)));
            }
            let cached = S::kv_len(&hold);
            answer.insert("expected_cached".into(), json!(cached));
            let ext = self.slice(request.tokens.len() - cached, cached, budget);
            let demand = self.prefill_demand(ext);
            let counts = self.cache.counts();
            if ext == 0 || (need + demand) as u64 > counts.free + counts.evictable {
                answer.insert("rejected".into(), json!(true));
                self.cache.refuse(hold);
            } else {
                answer.insert("ext".into(), json!(ext));
                answer.insert("end".into(), json!(cached + ext));
                budget -= ext;
                need += demand;
                self.requests.get_mut(&rid).expect("just met").hold = Some(hold);
                admitted.push((rid, ext));
            }
            answers.push(Value::Object(answer));
        }
        answer.insert("need".into(), json!(need));
        answer.insert("reqs".into(), json!(answers));
        self.evict_to_free(need);
        admitted.into_iter().try_for_each(|(rid, ext)| self.extend(&rid, ext))
    }

    fn chunk(&mut self, asked: &Fields, answer: &mut Fields) -> Outcome {
        let (rid, done, ext) = (text(asked, "rid")?, number(asked, "done")?, number(asked, "ext")?);
        self.checkpoint(rid, Some(done))?;
        let need = self.prefill_demand(ext);
        self.evict_to_free(need);
        self.extend(rid, ext)?;
        answer.insert("ext".into(), json!(ext));
        answer.insert("need".into(), json!(need));
        answer.insert("end".into(), json!(S::kv_len(self.hold(rid)?)));
        Ok(())
    }

    fn prefill_done(&mut self, rid: &str) -> Outcome {
        let request = self.request(rid)?;
        if request.hold.as_ref().map(S::kv_len) != Some(request.tokens.len()) {
            return Err(format!("{rid}: prefill is not complete"));
        }
        self.checkpoint(rid, None)?;
        self.request(rid)?.append_output();
        Ok(())
    }

    fn decode(&mut self, asked: &Fields, answer: &mut Fields) -> Outcome {
        let (rids, steps) = (rids(asked)?, number(asked, "steps")?);
        let need = rids.len() * self.page;
        let mut done = 0;
        while done < steps || asked.contains_key("failed_check") {
            let check = self.decode_check(&rids)?;
            self.evict_to_free(check);
            if self.cache.counts().free < check as u64 {
                answer.insert("failed_check".into(), json!(check));
                break;
            }
            if done == steps {
                break;
            }
            self.evict_to_free(need);
            for rid in &rids {
                self.extend(rid, 1)?;
                self.request(rid)?.append_output();
            }
            done += 1;
        }
        answer.insert("steps".into(), json!(done));
        answer.insert("need".into(), json!(need));
        Ok(())
    }

    fn finish(&mut self, rid: &str) -> Outcome {
        let hold = self.take_hold(rid)?;
        let request = self.request(rid)?;
        if S::kv_len(&hold) + 1 != request.tokens.len() {
            return Err(format!("{rid}: all tokens but the last must have KV"));
        }
        let (tokens, of) = (std::mem::take(&mut request.tokens), request.of);
        self.cache.finish(hold, &tokens[..tokens.len() - 1], of);
        Ok(())
    }

    fn abort(&mut self, asked: &Fields) -> Outcome {
        let rid = text(asked, "rid")?;
        if asked.contains_key("done") {
            self.checkpoint(rid, Some(number(asked, "done")?))?;
        }
        let hold = self.take_hold(rid)?;
        self.cache.drop_private(hold);
        Ok(())
    }
}

// === impl Section: parts of operations ===

impl<S: Subject> Section<S> {
    /// The request of an admission: a new one, or one that comes back after a retraction.
    fn meet(&mut self, asked: &Fields) -> Outcome<String> {
        let rid = text(asked, "rid")?.to_owned();
        if asked.contains_key("segs") {
            let tokens = segments(asked)?;
            let priority = asked.get("prio").and_then(Value::as_i64).ok_or("prio: not a number")?;
            let of = Insertion { prompt_len: tokens.len(), namespace: self.namespace(asked), priority };
            let next_output = number(asked, "out_base")? as Token;
            self.requests.insert(rid.clone(), Request { tokens, next_output, of, hold: None });
        }
        match self.request(&rid)?.hold {
            Some(_) => Err(format!("{rid}: is running already")),
            None => Ok(rid),
        }
    }

    /// How much of `rest` tokens after `cached` a batch with `budget` tokens left computes: all, or whole pages.
    fn slice(&self, rest: usize, cached: usize, budget: usize) -> usize {
        if rest <= budget { rest } else { (cached + budget) / self.page * self.page - cached }
    }

    fn prefill_demand(&self, ext: usize) -> usize {
        if self.page == 1 { ext } else { ext + self.page }
    }

    fn decode_check(&mut self, rids: &[&str]) -> Outcome<usize> {
        let mut check = 0;
        for rid in rids {
            check += if S::kv_len(self.hold(rid)?).is_multiple_of(self.page) { self.page } else { 0 };
        }
        Ok(check)
    }

    /// Up to `up_to` tokens, or up to all that have KV.
    fn checkpoint(&mut self, rid: &str, up_to: Option<usize>) -> Outcome {
        let mut hold = self.take_hold(rid)?;
        let request = &self.requests[rid];
        let up_to = up_to.unwrap_or(S::kv_len(&hold));
        self.cache.checkpoint(&mut hold, &request.tokens, up_to, request.of);
        self.request(rid)?.hold = Some(hold);
        Ok(())
    }

    fn extend(&mut self, rid: &str, n: usize) -> Outcome {
        let mut hold = self.take_hold(rid)?;
        let taken = self.cache.extend(&mut hold, n);
        self.request(rid)?.hold = Some(hold);
        taken.map_err(|why| format!("{rid}: cannot take {n} slots: {why}"))
    }

    fn evict_to_free(&mut self, tokens: usize) {
        self.evicted += self.cache.evict_to_free(tokens as u64);
    }

    fn request(&mut self, rid: &str) -> Outcome<&mut Request<S::Hold>> {
        self.requests.get_mut(rid).ok_or_else(|| format!("{rid}: unknown request"))
    }

    fn hold(&mut self, rid: &str) -> Outcome<&S::Hold> {
        self.request(rid)?.hold.as_ref().ok_or_else(|| format!("{rid}: is not running"))
    }

    fn take_hold(&mut self, rid: &str) -> Outcome<S::Hold> {
        self.request(rid)?.hold.take().ok_or_else(|| format!("{rid}: is not running"))
    }

    fn namespace(&mut self, asked: &Fields) -> u64 {
        let Some(key) = asked.get("key").and_then(Value::as_str) else { return 0 };
        let known = self.namespaces.iter().position(|other| other == key);
        let index = known.unwrap_or_else(|| {
            self.namespaces.push(key.to_owned());
            self.namespaces.len() - 1
        });
        index as u64 + 1
    }
}

impl<H> Request<H> {
    fn append_output(&mut self) {
        self.tokens.push(self.next_output);
        self.next_output += 1;
    }
}

// === reading a line ===

/// The second tier, of which recorded lines know nothing.
fn tier(line: &Fields) -> Outcome<Option<HostTier>> {
    let Some(write) = line.get("write").and_then(Value::as_str) else { return Ok(None) };
    Ok(Some(HostTier {
        capacity_tokens: number(line, "host_capacity")? as u64,
        write: WritePolicy::from_label(write).ok_or_else(|| format!("write {write:?}"))?,
        load_back_threshold: 10,
    }))
}

fn without_results(line: &Fields) -> Fields {
    line.iter()
        .filter(|(name, _)| !is_result(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn text<'a>(line: &'a Fields, name: &str) -> Outcome<&'a str> {
    line.get(name).and_then(Value::as_str).ok_or_else(|| format!("{name}: not a text"))
}

fn number(line: &Fields, name: &str) -> Outcome<usize> {
    line.get(name).and_then(Value::as_u64).map(|n| n as usize).ok_or_else(|| format!("{name}: not a number"))
}

fn rids(line: &Fields) -> Outcome<Vec<&str>> {
    let list = line.get("rids").and_then(Value::as_array).ok_or("rids: not a list")?;
    list.iter().map(|rid| rid.as_str().ok_or_else(|| "rids: not texts".to_owned())).collect()
}

/// Runs `[first, n]` of ids that count up, written out.
fn segments(line: &Fields) -> Outcome<Vec<Token>> {
    let runs: Vec<(Token, u32)> = line
        .get("segs")
        .and_then(|runs| serde_json::from_value(runs.clone()).ok())
        .ok_or("segs: not a list of pairs")?;
    Ok(runs.into_iter().flat_map(|(first, n)| first..first + n).collect())
}
