//! Reading a trace in Mooncake's form: one JSON object per line with `timestamp` (ms), `input_length`, `output_length` and
//! `hash_ids`, one id for every block of 512 prompt tokens, the last block perhaps not full.
//!
//! Other fields and blank lines are passed over. What does not fit is refused with its row: a trace that is silently
//! bent gives figures that nobody can compare.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use crate::scenario::{ScenarioError, input};

/// Prompt tokens per hash id.
pub const BLOCK_TOKENS: u32 = 512;
/// Longest prompt or reply of a trace, in tokens.
const MOST_TOKENS: u32 = 1 << 24;
/// Latest time stamp of a trace: about 31 years.
const LATEST_MS: f64 = 1e12;

/// Longest line, in bytes: the longest prompt has 32,768 hash ids.
const LONGEST_LINE: u64 = 4 << 20;
/// What some editors put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A trace in memory; it has at least one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The rows, ordered by time.
    pub rows: Vec<Row>,
}

impl Trace {
    /// The step of the clock that wrote the stamps, in nanoseconds, if it is a coarse one.
    #[must_use]
    pub fn grid_ns(&self) -> Option<u64> {
        let at_ns: Vec<u64> = self.rows.iter().map(|row| row.at_ns).collect();
        super::replay::grid_ns(&at_ns)
    }
}

/// One request of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// When it came, in nanoseconds on the trace's own clock.
    pub at_ns: u64,
    /// Length of the prompt, in tokens; at least 1.
    pub input_tokens: u32,
    /// Length of the reply, in tokens; at least 1. An engine always gives a token, so a recorded 0 is read as 1.
    pub output_tokens: u32,
    /// The content of each block of [`BLOCK_TOKENS`] prompt tokens, by name.
    pub blocks: Box<[u64]>,
}

/// Why there is no trace.
#[derive(Debug)]
pub(crate) enum TraceError {
    /// The file cannot be read.
    File(io::Error),
    /// A row is wrong.
    Row(ScenarioError),
}

impl TraceError {
    /// The error as a mistake of the scenario; `blame` places the mistake of naming a file that cannot be read.
    pub(crate) fn blame(self, blame: impl FnOnce(String) -> ScenarioError) -> ScenarioError {
        match self {
            Self::File(error) => blame(format!("cannot be read: {error}")),
            Self::Row(error) => error,
        }
    }
}

/// Reads the first `most` rows of the trace at `path`.
pub(crate) fn read(path: &Path, most: u64) -> Result<Trace, TraceError> {
    let file = input::open(path).map_err(TraceError::File)?;
    parse(BufReader::new(file), &path.display().to_string(), most)
}

/// Reads the first `most` rows of `lines`; `name` is for messages.
pub(crate) fn parse(mut lines: impl BufRead, name: &str, most: u64) -> Result<Trace, TraceError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        lines.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line).map_err(TraceError::File)?;
        if line.is_empty() {
            break;
        }
        let wrong = |(problem, remedy): Mistake| {
            TraceError::Row(ScenarioError::at(format_args!("{name}:{number}"), problem, remedy))
        };
        if line.len() as u64 > LONGEST_LINE {
            return Err(wrong(("the line is longer than 4 MB".to_owned(), "a trace has one row per line")));
        }
        let content = if number == 1 { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line) } else { &line };
        let content = content.trim_ascii();
        if content.is_empty() {
            continue;
        }
        let row = Row::parse(content).map_err(wrong)?;
        if let Some(former) = rows.last().filter(|former| former.at_ns > row.at_ns) {
            let (now, then) = (row.at_ns / 1_000_000, former.at_ns / 1_000_000);
            let problem = format!("timestamp {now} comes after {then}");
            return Err(wrong((problem, "sort the rows by timestamp")));
        }
        rows.push(row);
        if rows.len() as u64 >= most {
            break;
        }
    }
    if rows.is_empty() {
        let empty =
            ScenarioError::at(format_args!("{name}:1"), "the trace is empty", "it needs one row per request");
        return Err(TraceError::Row(empty));
    }
    Ok(Trace { rows })
}

/// A problem and its remedy.
type Mistake = (String, &'static str);

/// A row as it is written; wide types, so that what does not fit is seen and named here.
#[derive(Deserialize)]
struct RawRow {
    timestamp: f64,
    input_length: i64,
    output_length: i64,
    hash_ids: Vec<u64>,
}

impl Row {
    fn parse(line: &[u8]) -> Result<Self, Mistake> {
        // The fields of a list would be taken by their places, which no trace means.
        if line.starts_with(b"[") {
            return Err(("the row is a list".to_owned(), "write an object with named fields"));
        }
        let raw: RawRow = serde_json::from_slice(line).map_err(|error| {
            // The parser counts lines within the row, where there is only one.
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or(&text);
            let problem = format!("{what} at column {}", error.column());
            (problem, if error.is_data() { "see the Mooncake format" } else { "the line is cut or not JSON" })
        })?;
        if !(0.0..=LATEST_MS).contains(&raw.timestamp) {
            return Err((
                format!("timestamp {} is out of range", raw.timestamp),
                "count milliseconds from 0",
            ));
        }
        let tokens = |key: &str, given: i64, least: u32| {
            let fits = u32::try_from(given).ok().filter(|t| (least..=MOST_TOKENS).contains(t));
            fits.ok_or_else(|| (format!("{key} {given} is out of range"), "lengths are counts of tokens"))
        };
        let input_tokens = tokens("input_length", raw.input_length, 1)?;
        let output_tokens = tokens("output_length", raw.output_length, 0)?.max(1);
        let blocks = input_tokens.div_ceil(BLOCK_TOKENS) as usize;
        if raw.hash_ids.len() != blocks {
            let problem = format!(
                "{} hash_ids do not fit input_length {input_tokens}, which has {blocks} blocks of {BLOCK_TOKENS}",
                raw.hash_ids.len()
            );
            return Err((
                problem,
                "give one hash id for every block, also for the last one that is not full",
            ));
        }
        let at_ns = (raw.timestamp * 1e6).round() as u64;
        Ok(Self { at_ns, input_tokens, output_tokens, blocks: raw.hash_ids.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Trace, String> {
        let unplaced = |problem| ScenarioError::at("?", problem, "");
        parse(text.as_bytes(), "t.jsonl", u64::MAX).map_err(|error| error.blame(unplaced).to_string())
    }

    fn line(timestamp: &str, input: &str, output: &str, ids: &str) -> String {
        format!(
            "{{\"timestamp\": {timestamp}, \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": {ids}}}\n"
        )
    }

    #[test]
    fn rows_are_read() {
        let text = line("0", "513", "7", "[4, 5]")
            + "\n"
            + &line("27.5", "512", "0", "[4]").replace('}', ", \"x\": 1}");
        let trace = parsed(text.trim_end()).unwrap();
        let row = |at_ns, input_tokens, output_tokens, blocks: &[u64]| Row {
            at_ns,
            input_tokens,
            output_tokens,
            blocks: blocks.into(),
        };
        assert_eq!(trace.rows, [row(0, 513, 7, &[4, 5]), row(27_500_000, 512, 1, &[4])]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_row() {
        let good = line("5", "512", "1", "[1]");
        let cases = [
            ("empty", String::new(), 1, "empty"),
            ("only blank lines", "\n\n".to_owned(), 1, "empty"),
            ("cut", good.clone() + &good[..40], 2, "cut"),
            ("not an object", good.clone() + "17\n", 2, "invalid type"),
            ("no JSON", "hello\n".to_owned(), 1, "not JSON"),
            ("a list", "[0, 1, 1, [1]]\n".to_owned(), 1, "the row is a list"),
            ("endless", "x".repeat(LONGEST_LINE as usize + 1), 1, "longer than 4 MB"),
            ("unsorted", good.clone() + &good + &line("4", "512", "1", "[1]"), 3, "sort"),
            ("too few ids", line("0", "513", "1", "[1]"), 1, "1 hash_ids do not fit input_length 513"),
            ("too many ids", line("0", "512", "1", "[1, 2]"), 1, "2 hash_ids"),
            ("no ids", line("0", "512", "1", "[]"), 1, "0 hash_ids"),
            ("no prompt", line("0", "0", "1", "[]"), 1, "input_length 0"),
            ("negative prompt", line("0", "-5", "1", "[]"), 1, "input_length -5"),
            ("negative reply", line("0", "1", "-1", "[1]"), 1, "output_length -1"),
            ("negative time", line("-1", "1", "1", "[1]"), 1, "timestamp -1"),
            ("length is text", line("0", "\"9\"", "1", "[1]"), 1, "string \"9\""),
            ("negative id", line("0", "1", "1", "[-1]"), 1, "-1"),
            (
                "missing field",
                "{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\n".to_owned(),
                1,
                "hash_ids",
            ),
            ("not UTF-8 sized", line("0", "99999999999", "1", "[1]"), 1, "input_length 99999999999"),
        ];
        for (case, text, row, says) in cases {
            let message = parsed(&text).unwrap_err();
            assert!(message.starts_with(&format!("t.jsonl:{row}: ")), "{case}: {message}");
            assert!(message.contains(says), "{case}: {message}");
            assert!(!message.contains("at line"), "one line number: {message}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        let text = line("0", "1", "1", "[1]");
        assert_eq!(parsed(&format!("\u{feff}{text}")).unwrap(), parsed(&text).unwrap());
    }

    #[test]
    fn the_limit_stops_before_later_rows() {
        let text = line("0", "1", "1", "[1]") + "garbage";
        let trace = parse(text.as_bytes(), "t", 1).unwrap();
        assert_eq!(trace.rows.len(), 1);
    }
}
