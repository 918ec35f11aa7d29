//! The agentic coding traces of Weka's kv-cache-tester, as published for InferenceX: a JSON object per conversation with
//! `block_size`, `hash_id_scope` and `requests`. A request of type `n` or `s` has `t` (seconds since the conversation began),
//! `in`, `out`, `hash_ids` and perhaps `think_time`; one of type `subagent` has requests of its own, whose `t` counts from the
//! conversation's beginning or, in older files, from the subagent's (some of them lie before its `t` then).
//!
//! Each conversation has a clock of its own, so all begin at 0 here. The rows are sorted by time, for which all of them are
//! held; ids of scope `local` mean something else in every conversation.

use std::collections::VecDeque;
use std::fmt::Display;

use protocol::tokenizer::mix;
use serde::Deserialize;

use crate::trace::Row;
use crate::trace::error::{Fault, Mistake, bad};
use crate::trace::fields::{self, Ids};
use crate::trace::rows::{Place, Reader};
use crate::trace::source::{Objects, Source};
use crate::trace::stamp::SECOND_NS;

/// Tokens per block of the published files.
const USUAL_BLOCK_TOKENS: u32 = 64;

/// Reads Weka's conversations.
pub(super) struct Weka {
    objects: Objects,
    block_tokens: Option<u32>,
    conversations: u64,
    without_request: u64,
    rows: VecDeque<Row>,
    sorted: bool,
}

#[derive(Deserialize)]
struct Conversation {
    block_size: u32,
    #[serde(default)]
    hash_id_scope: Scope,
    requests: Vec<Entry>,
}

#[derive(Deserialize, Default, Clone, Copy, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    Local,
    Global,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Entry {
    #[serde(rename = "n", alias = "s")]
    Request(Request),
    #[serde(rename = "subagent")]
    Subagent { t: f64, requests: Vec<Request> },
}

#[derive(Deserialize)]
struct Request {
    t: f64,
    #[serde(rename = "in")]
    input: i64,
    #[serde(rename = "out")]
    output: i64,
    #[serde(default)]
    hash_ids: Vec<u64>,
    think_time: Option<f64>,
}

impl Weka {
    pub(super) fn new(source: Source) -> Self {
        Self {
            objects: Objects::new(source),
            block_tokens: None,
            conversations: 0,
            without_request: 0,
            rows: VecDeque::new(),
            sorted: false,
        }
    }

    /// Takes the rows of one more conversation; false at the end of the file.
    fn take_conversation(&mut self) -> Result<bool, Fault> {
        let Some((line, text)) = self.objects.next()? else { return Ok(false) };
        let number = self.conversations;
        self.conversations += 1;
        let first = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let (block_tokens, rows) = conversation(text, number, first, self.block_tokens).map_err(bad(line))?;
        self.block_tokens = Some(block_tokens);
        self.without_request += u64::from(rows.is_empty());
        self.rows.extend(rows);
        Ok(true)
    }

    /// Sorts the rows by time; rows of one time stay as they were.
    fn sort(&mut self) {
        let rows = self.rows.make_contiguous();
        let mut order: Vec<u32> = (0..).take(rows.len()).collect();
        order.sort_by_key(|at| rows[*at as usize].at_ns);
        let mut place = vec![0; rows.len()];
        for (new, old) in (0..).zip(&order) {
            place[*old as usize] = new;
        }
        for (row, own) in rows.iter_mut().zip(&place) {
            // A parent that comes later is none.
            row.parent = row.parent.map(|parent| place[parent as usize]).filter(|parent| parent < own);
        }
        rows.sort_by_key(|row| row.at_ns);
        self.sorted = true;
    }
}

impl Reader for Weka {
    fn next(&mut self, _: &Place) -> Result<Option<Row>, Fault> {
        if !self.sorted {
            while self.take_conversation()? {}
            self.sort();
        }
        Ok(self.rows.pop_front())
    }

    fn block_tokens(&self) -> u32 {
        self.block_tokens.unwrap_or(USUAL_BLOCK_TOKENS)
    }

    fn left_out(&self) -> u64 {
        self.without_request
    }
}

/// The block size and the rows of conversation `number`, the first of which has the place `first`.
fn conversation(
    text: &[u8],
    number: u64,
    first: u32,
    known: Option<u32>,
) -> Result<(u32, Vec<Row>), Mistake> {
    let raw: Conversation = fields::object(text)?;
    if raw.block_size == 0 || known.is_some_and(|known| known != raw.block_size) {
        let problem = format!("block_size {} does not fit", raw.block_size);
        return Err((problem, "all conversations of a trace have blocks of one size, of at least 1 token"));
    }
    let begins_s = |entry: &Entry| match entry {
        Entry::Subagent { t, requests } => requests.iter().any(|inner| inner.t + 1e-6 < *t),
        Entry::Request(_) => false,
    };
    let relative = raw.requests.iter().any(begins_s);
    let salt = if raw.hash_id_scope == Scope::Local { Some(mix(number)) } else { None };
    let mut stream = Stream { rows: Vec::new(), first, block_tokens: raw.block_size, salt };
    let mut latest = None;
    let mut former_s = 0.0;
    for (entry, place) in raw.requests.into_iter().zip(1..) {
        let placed = |mistake| placed(format_args!("request {place}"), mistake);
        match entry {
            Entry::Request(request) => {
                in_order(&mut former_s, request.t).map_err(placed)?;
                latest = Some(stream.push(request, 0.0, mix(number), latest).map_err(placed)?);
            }
            Entry::Subagent { t, requests } => {
                let (start_s, session) = (if relative { t } else { 0.0 }, mix(mix(number) ^ place));
                let (mut before, mut former_s) = (latest, 0.0);
                for (inner, within) in requests.into_iter().zip(1..) {
                    let placed =
                        |mistake| self::placed(format_args!("request {within} of subagent {place}"), mistake);
                    in_order(&mut former_s, inner.t).map_err(placed)?;
                    before = Some(stream.push(inner, start_s, session, before).map_err(placed)?);
                }
            }
        }
    }
    Ok((raw.block_size, stream.rows))
}

/// Says in which request of the conversation the mistake is.
fn placed(place: impl Display, (problem, remedy): Mistake) -> Mistake {
    (format!("{place}: {problem}"), remedy)
}

/// Refuses a time before that of the request before it.
fn in_order(former_s: &mut f64, t: f64) -> Result<(), Mistake> {
    if t < *former_s && t >= 0.0 {
        return Err((format!("t {t} comes after {former_s}"), "sort the requests of a conversation by t"));
    }
    *former_s = t;
    Ok(())
}

struct Stream {
    rows: Vec<Row>,
    first: u32,
    block_tokens: u32,
    salt: Option<u64>,
}

impl Stream {
    /// Adds a request; returns its place.
    fn push(
        &mut self,
        request: Request,
        start_s: f64,
        session: u64,
        parent: Option<u32>,
    ) -> Result<u32, Mistake> {
        let seconds = |key: &str, given: f64| fields::since_start_ns(key, given, SECOND_NS);
        let input_tokens = fields::input("in", request.input)?;
        let mut blocks = fields::ids(request.hash_ids, input_tokens, self.block_tokens, Ids::First)?;
        if let Some(salt) = self.salt {
            // Not by an operation that lets conversation and id change places.
            blocks.iter_mut().for_each(|id| *id = mix(salt.wrapping_add(*id)));
        }
        let place = self.first.saturating_add(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
        self.rows.push(Row {
            at_ns: seconds("t", start_s + request.t)?,
            input_tokens,
            output_tokens: fields::output("out", request.output)?,
            blocks,
            session: Some(session),
            parent,
            think_ns: request.think_time.map(|given| seconds("think_time", given)).transpose()?,
        });
        Ok(place)
    }
}
