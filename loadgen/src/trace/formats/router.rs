//! What `router --record-trace` writes (`docs/router-trace.md`): a row for each request that was answered, at the time it came.
//! Requests end in another order than they come in, so all rows are read before the first is given. A last line that is cut is
//! passed over: the router was killed, or is still writing. A recording may go on in other files; what these say again of the ones
//! before is about workers, not about requests.
//!
//! Lengths of prompts are the router's own estimates, four characters a token, as the blocks are cut from the same characters;
//! what an engine has counted would not fit them.

use std::collections::{BTreeMap, VecDeque};
use std::vec::IntoIter;

use ::router::record::line::{Kind, Line, Look, Pieces, Request};
use protocol::tokenizer::mix;
use router_core::prompt::INDEXED_BYTES;
use serde::Deserialize;

use crate::trace::Row;
use crate::trace::error::{Fault, Mistake, bad};
use crate::trace::fields;
use crate::trace::rows::{Place, Reader};
use crate::trace::source::{Lines, Source};

/// Prompt tokens per block.
const BLOCK_TOKENS: u32 = 16;
/// Characters per token.
const TOKEN_CHARS: u64 = 4;
/// Digits of a tag.
const TAG_DIGITS: usize = 4;
/// Looks without an end that are remembered.
const MOST_LOOKS: usize = 1 << 16;

/// Reads recordings of the router.
pub(super) struct Router {
    lines: Lines,
    later: VecDeque<Source>,
    /// Of this file.
    pieces: Option<Pieces>,
    asked: BTreeMap<u64, Asked>,
    rows: Rows,
    left_out: u64,
    ended_files: usize,
}

/// The rows, before and after the end of the file.
enum Rows {
    Read(Vec<Row>),
    Given(IntoIter<Row>),
}

/// What is looked at of the first line.
#[derive(Deserialize)]
struct Head {
    router_trace: u32,
    pieces: Pieces,
}

/// What is known of a request whose end has not come.
struct Asked {
    look: Look,
    session: Option<u64>,
}

impl Router {
    /// `later` are the files in which the recording goes on.
    pub(super) fn new(source: Source, later: VecDeque<Source>) -> Self {
        let (lines, asked, rows) = (Lines::new(source), BTreeMap::new(), Rows::Read(Vec::new()));
        Self { lines, later, pieces: None, asked, rows, left_out: 0, ended_files: 0 }
    }

    /// Goes on with the next file; false behind the last one.
    fn next_file(&mut self) -> bool {
        let Some(source) = self.later.pop_front() else { return false };
        (self.lines, self.pieces) = (Lines::new(source), None);
        self.ended_files += 1;
        true
    }

    /// Reads one line; false at the end of the file.
    fn take_line(&mut self) -> Result<bool, Fault> {
        let Some((number, text)) = self.lines.next()? else { return Ok(false) };
        let Some(pieces) = self.pieces else {
            self.pieces = Some(head(text).map_err(|mistake| Fault::Lost { line: number, mistake })?);
            return Ok(true);
        };
        let line = match fields::object(text) {
            Ok(line) => line,
            Err(_) if self.lines.is_cut() => return Ok(false),
            Err(mistake) => return Err(bad(number)(mistake)),
        };
        self.take(line, pieces).map_err(bad(number))?;
        Ok(true)
    }

    fn take(&mut self, line: Line, pieces: Pieces) -> Result<(), Mistake> {
        match line {
            Line::Look(look) => {
                check(&look, pieces)?;
                self.asked.insert(look.n, Asked { look: *look, session: None });
                if self.asked.len() > MOST_LOOKS {
                    self.asked.pop_first();
                }
            }
            Line::Plan(plan) => {
                let key = plan.key.filter(|key| !key.0.is_empty());
                if let (Some(asked), Some(key)) = (self.asked.get_mut(&plan.n), key) {
                    asked.session = Some(fields::hash(&key.0));
                }
            }
            Line::Request(request) => match (self.asked.remove(&request.n), &mut self.rows) {
                (Some(asked), Rows::Read(rows)) if is_answered(&request) => {
                    rows.extend(row(&request, &asked, pieces)?);
                }
                _ => self.left_out += 1,
            },
            _ => {}
        }
        Ok(())
    }
}

impl Reader for Router {
    fn next(&mut self, _: &Place) -> Result<Option<Row>, Fault> {
        loop {
            match &mut self.rows {
                Rows::Given(rows) => return Ok(rows.next()),
                Rows::Read(_) => while self.take_line()? || self.next_file() {},
            }
            if let Rows::Read(rows) = &mut self.rows {
                rows.sort_by_key(|row| row.at_ns);
                self.rows = Rows::Given(std::mem::take(rows).into_iter());
            }
        }
    }

    fn block_tokens(&self) -> u32 {
        BLOCK_TOKENS
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }

    fn ended_files(&self) -> usize {
        self.ended_files
    }
}

fn head(text: &[u8]) -> Result<Pieces, Mistake> {
    let Head { router_trace, pieces } = fields::object(text)?;
    if router_trace != ::router::record::line::VERSION {
        let problem = format!("recordings of version {router_trace} are not known");
        return Err((problem, "use the loadgen of that router's release"));
    }
    Ok(pieces)
}

/// Refuses a look whose tags are not those of its length.
fn check(look: &Look, pieces: Pieces) -> Result<(), Mistake> {
    let indexed = chars(look).min(INDEXED_BYTES as u64);
    let expected = pieces.lengths(indexed).count();
    let given = look.tags.len() / TAG_DIGITS;
    let is_hex = look.tags.bytes().all(|digit| digit.is_ascii_hexdigit());
    if given == expected && look.tags.len().is_multiple_of(TAG_DIGITS) && is_hex {
        return Ok(());
    }
    let problem =
        format!("{given} tags do not fit a prompt of {indexed} characters, which has {expected} pieces");
    Err((problem, "a tag is four hexadecimal digits, see docs/router-trace.md"))
}

/// Length of the prompt in characters, as far as blocks are concerned.
fn chars(look: &Look) -> u64 {
    match look.kind {
        Kind::None => 0,
        Kind::Text => look.size,
        Kind::Ids => look.size.saturating_mul(TOKEN_CHARS),
    }
}

fn is_answered(request: &Request) -> bool {
    request.status.is_some_and(|status| (200..300).contains(&status))
}

/// Nothing if the router could not read the prompt.
fn row(request: &Request, Asked { look, session }: &Asked, pieces: Pieces) -> Result<Option<Row>, Mistake> {
    if look.kind == Kind::None {
        return Ok(None);
    }
    let chars = chars(look);
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    Ok(Some(Row {
        at_ns: request.arrived,
        input_tokens: fields::input("size", count(chars.div_ceil(TOKEN_CHARS).max(1)))?,
        output_tokens: fields::output("output_tokens", count(request.output_tokens.unwrap_or(1)))?,
        blocks: blocks(look, chars, pieces),
        session: *session,
        ..Row::default()
    }))
}

/// A name for each full block, made of the tags of all pieces up to its end.
fn blocks(look: &Look, chars: u64, pieces: Pieces) -> Box<[u64]> {
    let block_chars = u64::from(BLOCK_TOKENS) * TOKEN_CHARS;
    let (mut hash, mut at) = (mix(block_chars), 0);
    let tags = look.tags.as_bytes().chunks(TAG_DIGITS);
    let ends = pieces.lengths(chars).zip(tags).filter_map(|(length, tag)| {
        hash = tag.iter().fold(hash, |hash, digit| mix(hash.rotate_left(17) ^ u64::from(*digit)));
        at += length as u64;
        (at % block_chars == 0).then_some(hash)
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const HEAD: &str = r#"{"router_trace":1,"pieces":{"head":16384,"short":16,"long":64},"part":0}"#;

    fn look(n: u64, size: u64, tags: &str) -> String {
        format!(
            r#"{{"e":"look","n":{n},"scopes":{{"regular":0,"prefill":null,"decode":null}},"kind":"text","size":{size},"tags":"{tags}"}}"#
        )
    }

    fn end(n: u64, arrived: u64, status: u16) -> String {
        format!(
            r#"{{"e":"request","n":{n},"t":9,"arrived":{arrived},"path":"/v1/completions","status":{status},"end":"complete","tries":1,"prompt_tokens":99,"cached_tokens":0,"output_tokens":7,"first_token_ns":null}}"#
        )
    }

    fn read(lines: &[String]) -> (Vec<Row>, u64) {
        let text = format!("{HEAD}\n{}\n", lines.join("\n"));
        let mut reader = Router::new(Box::new(Cursor::new(text.into_bytes())), VecDeque::new());
        let mut rows = Vec::new();
        while let Some(row) = reader.next(&Place::default()).unwrap() {
            rows.push(row);
        }
        (rows, reader.left_out())
    }

    #[test]
    fn answered_requests_are_rows_in_the_order_in_which_they_came() {
        let (one, other) = ("000100020003000400050006", "00010002000300040005ffff");
        let lines = [
            look(1, 96, one),
            look(2, 90, other),
            look(3, 30, "00010002"),
            end(2, 200, 200),
            end(1, 100, 200),
            end(3, 50, 503),
            end(0, 60, 400),
            r#"{"e":"tick","t":5}"#.to_owned(),
        ];
        let (rows, left_out) = read(&lines);
        assert_eq!((rows.len(), left_out), (2, 2));
        assert_eq!((rows[0].at_ns, rows[0].input_tokens, rows[0].output_tokens), (100, 24, 7));
        assert_eq!((rows[1].at_ns, rows[1].input_tokens), (200, 23));
        assert_eq!(rows[0].blocks.len(), 1);
        assert_eq!(rows[0].blocks, rows[1].blocks, "they differ behind the first full block");
        let (rows, _) = read(&[look(1, 64, "0001000200030009"), end(1, 1, 200)]);
        let (others, _) = read(&[look(1, 64, "0001000200030004"), end(1, 1, 200)]);
        assert_ne!(rows[0].blocks, others[0].blocks);
    }

    #[test]
    fn a_request_may_end_in_the_next_file_and_mistakes_are_placed_there() {
        let first = format!("{HEAD}\n{}\n{}", look(1, 64, "0001000200030004"), r#"{"e":"ti"#);
        let later = |end: &str| format!("{HEAD}\n{end}\n");
        let read = |later: String| {
            let [first, later] =
                [first.clone(), later].map(|text| -> Source { Box::new(Cursor::new(text.into_bytes())) });
            Router::new(first, [later].into())
        };
        let mut reader = read(later(&end(1, 5, 200)));
        assert_eq!(reader.next(&Place::default()).unwrap().unwrap().at_ns, 5);
        let mut reader = read(later("{}"));
        let fault = reader.next(&Place::default()).unwrap_err();
        assert!(matches!(fault, Fault::Bad { line: 2, .. }) && reader.ended_files() == 1, "{fault:?}");
    }

    #[test]
    fn sessions_are_keys_and_a_block_is_named_by_all_before_it() {
        let plan =
            |n: u64, key: &str| format!(r#"{{"e":"plan","n":{n},"t":1,"tokens":9,"key":"{key}","legs":[]}}"#);
        let same = "0005000600070008";
        let (one, other) = (format!("0001000200030004{same}"), format!("0001000200030009{same}"));
        let lines = [
            [look(1, 128, &one), plan(1, "ab"), end(1, 1, 200)],
            [look(2, 128, &other), plan(2, "ab"), end(2, 2, 200)],
            [look(3, 128, &one), plan(3, ""), end(3, 3, 200)],
        ];
        let (rows, _) = read(&lines.concat());
        assert!(rows[0].session.is_some() && rows[0].session == rows[1].session);
        assert_eq!(rows[2].session, None, "a blank key is none");
        assert_eq!(rows[0].blocks, rows[2].blocks);
        assert_ne!(rows[0].blocks[1], rows[1].blocks[1], "the same piece behind another beginning");
    }

    #[test]
    fn another_version_is_refused() {
        let text = HEAD.replace("\"router_trace\":1", "\"router_trace\":2");
        let mut reader = Router::new(Box::new(Cursor::new(text.into_bytes())), VecDeque::new());
        let fault = reader.next(&Place::default()).unwrap_err();
        let Fault::Lost { line: 1, mistake: (problem, _) } = fault else { panic!("{fault:?}") };
        assert!(problem.contains("version 2"), "{problem}");
    }
}
