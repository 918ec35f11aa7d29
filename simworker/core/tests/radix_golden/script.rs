//! Writes random traces: what a busy engine might ask of its cache next, given what came out so far.

use protocol::tokenizer::mix;
use serde_json::{Value, json};
use simworker_core::cache::{Eviction, HostTotals, WritePolicy};
use std::collections::{BTreeMap, BTreeSet};

/// What a script is written for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) page_size: u64,
    pub(crate) capacity: u64,
    pub(crate) chunk: u64,
    pub(crate) policy: Eviction,
    /// Tokens on the host and when they are written there.
    pub(crate) tier: Option<(u64, WritePolicy)>,
}

type Run = [u64; 2];

/// A script in the making. [`next_line`](Script::next_line) and [`learn`](Script::learn) take turns.
pub(crate) struct Script {
    setting: Setting,
    draws: u64,
    seed: u64,
    begun: bool,
    next_token: u64,
    requests: BTreeMap<u64, Request>,
    /// Prompts that later ones can share something with, those of ended conversations with their replies.
    past: Vec<Vec<Run>>,
    room: u64,
    must_retract: bool,
}

#[derive(Debug, Clone)]
struct Request {
    prompt: Vec<Run>,
    out_base: u64,
    outputs: u64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Refused,
    Prefilling { end: u64 },
    Prefilled,
    Decoding,
    Retracted,
}

impl Request {
    fn len(&self) -> u64 {
        length(&self.prompt) + self.outputs
    }
}

fn length(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run[1]).sum()
}

fn name(rid: u64) -> String {
    format!("r{rid}")
}

fn rid_of(name: &Value) -> u64 {
    name.as_str().and_then(|name| name[1..].parse().ok()).expect("made by `name`")
}

// === impl Script: lines ===

impl Script {
    pub(crate) fn new(setting: Setting, seed: u64) -> Self {
        Self {
            setting,
            draws: 0,
            seed,
            begun: false,
            next_token: 1_000,
            requests: BTreeMap::new(),
            past: Vec::new(),
            room: setting.capacity,
            must_retract: false,
        }
    }

    /// A line without results.
    pub(crate) fn next_line(&mut self) -> Value {
        let Setting { page_size, capacity, chunk, policy, tier } = self.setting;
        if !self.begun {
            let mut line = json!({"op": "config", "page_size": page_size, "policy": policy.label(), "capacity": capacity, "chunk": chunk});
            if let Some((capacity, write)) = tier {
                line["host_capacity"] = json!(capacity);
                line["write"] = json!(write.label());
            }
            return line;
        }
        if self.must_retract {
            return self.retract();
        }
        let (decoding, prefilled) = (self.at(Stage::Decoding), self.at(Stage::Prefilled));
        if !prefilled.is_empty() && self.chance(70) {
            return json!({"op": "prefill_done", "rids": names(&prefilled)});
        }
        if let Some((rid, end)) = self.prefilling()
            && self.chance(60)
        {
            return self.chunk(rid, end);
        }
        match self.draw(100) {
            0..30 => self.admit(),
            30..60 if !decoding.is_empty() => {
                json!({"op": "decode", "rids": names(&decoding), "steps": 1 + self.draw(page_size + 4)})
            }
            60..82 if !decoding.is_empty() => json!({"op": "finish", "rid": self.pick(&decoding)}),
            82..86 if !decoding.is_empty() => json!({"op": "abort", "rid": self.pick(&decoding)}),
            86..97 => json!({"op": "probe", "segs": self.prompt(), "key": self.key()}),
            97..100 if self.idle() => json!({"op": "flush"}),
            _ => self.admit(),
        }
    }

    fn admit(&mut self) -> Value {
        let mut reqs = Vec::new();
        for rid in self.at(Stage::Retracted) {
            if self.chance(50) {
                reqs.push(json!({"rid": name(rid), "re": true}));
            }
        }
        for _ in 0..=self.draw(4) {
            let (rid, prompt, out_base) = (self.requests.len() as u64, self.prompt(), self.fresh(1_000));
            let prio = self.draw(4);
            reqs.push(json!({"rid": name(rid), "segs": prompt, "key": self.key(), "prio": prio, "out_base": out_base}));
            self.requests.insert(rid, Request { prompt, out_base, outputs: 0, stage: Stage::Refused });
        }
        json!({"op": "admit", "reqs": reqs})
    }

    fn chunk(&mut self, rid: u64, end: u64) -> Value {
        let Setting { page_size, chunk, .. } = self.setting;
        let rest = self.requests[&rid].len() - end;
        let ext = if rest <= chunk { rest } else { (end + chunk) / page_size * page_size - end };
        if ext + page_size <= self.room && self.chance(95) {
            json!({"op": "chunk", "rid": name(rid), "done": end, "ext": ext})
        } else {
            json!({"op": "abort", "rid": name(rid), "done": end})
        }
    }

    fn retract(&mut self) -> Value {
        let decoding = self.at(Stage::Decoding);
        let rid = self.pick(&decoding);
        if decoding.len() == 1 {
            return json!({"op": "abort", "rid": rid});
        }
        json!({"op": "retract", "rid": rid, "evict_to_free": 20 * (decoding.len() - 1)})
    }

    /// A prompt that shares nothing, all, a part or more than all of an earlier one.
    fn prompt(&mut self) -> Vec<Run> {
        let mut prompt = Vec::new();
        if !self.past.is_empty() && self.chance(75) {
            let at = self.draw(self.past.len() as u64) as usize;
            prompt.clone_from(&self.past[at]);
            if self.chance(40) {
                let len = 1 + self.draw(length(&prompt));
                cut(&mut prompt, len);
            }
        }
        if prompt.is_empty() || self.chance(70) {
            let n = 1 + self.draw(self.setting.chunk * 2 / 3);
            prompt.push([self.fresh(n), n]);
        }
        cut(&mut prompt, self.setting.capacity / 2);
        self.past.push(prompt.clone());
        prompt
    }
}

/// Shortens `runs` to `len` tokens.
fn cut(runs: &mut Vec<Run>, len: u64) {
    let mut left = len;
    for run in runs.iter_mut() {
        run[1] = run[1].min(left);
        left -= run[1];
    }
    runs.retain(|run| run[1] > 0);
}

fn names(rids: &[u64]) -> Vec<String> {
    rids.iter().copied().map(name).collect()
}

// === impl Script: results ===

impl Script {
    /// Takes note of what became of the last line.
    pub(crate) fn learn(&mut self, answer: &Value) {
        self.begun = true;
        self.must_retract = answer["failed_check"].is_number();
        if let (Some(free), Some(evictable)) =
            (answer["expected_free"].as_u64(), answer["expected_evictable"].as_u64())
        {
            self.room = free + evictable;
        }
        match answer["op"].as_str().unwrap_or_default() {
            "admit" => {
                answer["reqs"].as_array().into_iter().flatten().for_each(|req| self.learn_admission(req))
            }
            "chunk" => self.set_end(rid_of(&answer["rid"]), &answer["end"]),
            "prefill_done" => self.learn_outputs(answer, 1),
            "decode" => self.learn_outputs(answer, answer["steps"].as_u64().unwrap_or_default()),
            "retract" => self.request(&answer["rid"]).stage = Stage::Retracted,
            "finish" | "abort" => {
                let request = self.request(&answer["rid"]);
                request.stage = Stage::Refused;
                let mut conversation = request.prompt.clone();
                conversation.push([request.out_base, request.outputs]);
                self.past.push(conversation);
            }
            _ => {}
        }
    }

    fn learn_admission(&mut self, req: &Value) {
        if req["rejected"].is_null() {
            self.set_end(rid_of(&req["rid"]), &req["end"]);
        }
    }

    fn set_end(&mut self, rid: u64, end: &Value) {
        let end = end.as_u64().unwrap_or_default();
        if let Some(request) = self.requests.get_mut(&rid) {
            request.stage = if end == request.len() { Stage::Prefilled } else { Stage::Prefilling { end } };
        }
    }

    fn learn_outputs(&mut self, answer: &Value, n: u64) {
        for rid in answer["rids"].as_array().into_iter().flatten() {
            let request = self.request(rid);
            request.outputs += n;
            request.stage = Stage::Decoding;
        }
    }

    fn request(&mut self, rid: &Value) -> &mut Request {
        self.requests.get_mut(&rid_of(rid)).expect("the script made it")
    }
}

// === impl Script: draws ===

impl Script {
    fn draw(&mut self, below: u64) -> u64 {
        self.draws += 1;
        mix(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ self.draws) % below.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.draw(100) < percent
    }

    fn pick(&mut self, rids: &[u64]) -> String {
        name(rids[self.draw(rids.len() as u64) as usize])
    }

    fn key(&mut self) -> Option<&'static str> {
        [None, None, None, Some("lora-x"), Some("salt-y")][self.draw(5) as usize]
    }

    /// The first of `n` tokens that no prompt has had yet.
    fn fresh(&mut self, n: u64) -> u64 {
        let first = self.next_token;
        self.next_token += n;
        first
    }

    fn at(&self, stage: Stage) -> Vec<u64> {
        self.requests.iter().filter(|(_, request)| request.stage == stage).map(|(rid, _)| *rid).collect()
    }

    fn prefilling(&self) -> Option<(u64, u64)> {
        self.requests.iter().find_map(|(rid, request)| match request.stage {
            Stage::Prefilling { end } => Some((*rid, end)),
            _ => None,
        })
    }

    fn idle(&self) -> bool {
        self.requests.values().all(|request| matches!(request.stage, Stage::Refused | Stage::Retracted))
    }
}

// === Coverage ===

/// Which situations the scripts have brought about, so that a tame script cannot pass for a test.
#[derive(Debug, Default)]
pub(crate) struct Coverage(BTreeSet<String>);

impl Coverage {
    pub(crate) fn note(&mut self, line: &Value) {
        let op = line["op"].as_str().unwrap_or_default();
        self.0.insert(op.into());
        if line["expected_evicted"].as_u64() > Some(0) {
            self.0.insert(format!("{op} evicts"));
        }
        for situation in ["failed_check", "done"] {
            if !line[situation].is_null() {
                self.0.insert(format!("{op} {situation}"));
            }
        }
        for req in line["reqs"].as_array().into_iter().flatten() {
            let hit = if req["expected_cached"].as_u64() > Some(0) { "hit" } else { "miss" };
            let again = if req["re"].is_null() { "first" } else { "again" };
            let fate = if req["rejected"].is_null() { "admitted" } else { "rejected" };
            if req["expected_loaded"].as_u64() > Some(0) {
                self.0.insert(format!("{fate} loaded"));
            }
            self.0.insert(format!("{again} {fate} {hit}"));
        }
    }

    pub(crate) fn note_host(&mut self, totals: HostTotals) {
        for (tokens, situation) in [(totals.evicted, "host evicts"), (totals.dropped, "host drops")] {
            if tokens > 0 {
                self.0.insert(situation.into());
            }
        }
    }

    /// Whether the scripts have come to this, too.
    pub(crate) fn has(&self, situation: &str) -> bool {
        self.0.contains(situation)
    }

    pub(crate) fn assert_complete(&self) {
        let wanted = [
            "abort",
            "abort done",
            "admit evicts",
            "again admitted hit",
            "again admitted miss",
            "again rejected hit",
            "chunk evicts",
            "decode evicts",
            "decode failed_check",
            "finish",
            "first admitted hit",
            "first admitted miss",
            "first rejected hit",
            "first rejected miss",
            "flush",
            "prefill_done",
            "probe",
            "retract evicts",
        ];
        let missing: Vec<_> = wanted.iter().filter(|situation| !self.0.contains(**situation)).collect();
        assert!(missing.is_empty(), "the scripts never came to {missing:?}, only to {:?}", self.0);
    }
}
