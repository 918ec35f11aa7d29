//! What a trace is like: load, lengths, sessions, and how much of it a cache can serve.
//!
//! Rows are taken one at a time and forgotten. What grows with the trace is a number of bytes per row and per distinct
//! block, not its text. `docs/traces.md` defines every figure.

mod arrivals;
mod lengths;
mod lru;
mod render;
mod reuse;
mod sessions;

#[cfg(test)]
mod oracle;

use serde::Serialize;

pub use arrivals::{Arrivals, Window};
pub use lengths::Lengths;
pub use render::Width;
use reuse::Caches;
pub use reuse::{Bin, Fleet, FleetPoint, LruPoint, Reuse};
pub use sessions::Sessions;

use super::{Counts, Format, Row, Rows, TraceError};

/// The version of the JSON form.
const SCHEMA: u32 = 1;

/// What a trace is like.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceInfo {
    /// Version of this form.
    pub schema: u32,
    /// The file.
    pub file: String,
    /// The other file of the same recording that was read with it; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_file: Option<String>,
    /// The name of the format.
    pub format: &'static str,
    /// What a file of this format looks like.
    pub looks: &'static str,
    /// Requests.
    pub rows: u64,
    /// Bad rows that were passed over.
    pub skipped: u64,
    /// The first of them, and what is wrong with it.
    #[serde(skip)]
    pub first_skipped: Option<String>,
    /// What is in the file and is no request.
    pub left_out: u64,
    /// What that is.
    #[serde(skip)]
    pub left_out_are: &'static str,
    /// The load; absent where rows have no times.
    pub arrivals: Option<Arrivals>,
    /// Lengths of prompts, in tokens.
    pub input_tokens: Lengths,
    /// Lengths of replies, in tokens.
    pub output_tokens: Lengths,
    /// Sessions; absent where the format has none.
    pub sessions: Option<Sessions>,
    /// What prompts share; absent where the format does not tell.
    pub reuse: Option<Reuse>,
    /// The LRU curve; empty where the format does not tell what prompts share.
    pub lru: Vec<LruPoint>,
    /// The caches of the fleet that was asked about: of one worker, and of all together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lru_fleet: Vec<FleetPoint>,
}

/// Takes rows and knows what they are like.
#[derive(Debug)]
pub struct Analysis {
    arrivals: arrivals::Tally,
    input: lengths::Tally,
    output: lengths::Tally,
    sessions: sessions::Tally,
    reuse: reuse::Tally,
}

impl Analysis {
    /// Of a trace with blocks of `block_tokens`, and of the caches of a fleet.
    #[must_use]
    pub fn new(block_tokens: u32, fleet: Option<Fleet>) -> Self {
        Self {
            arrivals: arrivals::Tally::default(),
            input: lengths::Tally::default(),
            output: lengths::Tally::default(),
            sessions: sessions::Tally::default(),
            reuse: reuse::Tally::new(block_tokens, fleet),
        }
    }

    /// Takes the next row.
    pub fn add(&mut self, row: &Row) {
        self.arrivals.add(row.at_ns);
        self.input.add(row.input_tokens);
        self.output.add(row.output_tokens);
        self.sessions.add(row.session);
        self.reuse.add(row);
    }

    /// What the rows are like.
    #[must_use]
    pub fn finish(self, file: &str, format: Format, timed: bool, counts: Counts) -> TraceInfo {
        let Caches { reuse, lru, fleet } = self.reuse.finish();
        TraceInfo {
            schema: SCHEMA,
            file: file.to_owned(),
            other_file: None,
            format: format.label(),
            looks: format.looks(),
            rows: counts.rows,
            skipped: counts.skipped,
            first_skipped: None,
            left_out: counts.left_out,
            left_out_are: format.left_out(),
            arrivals: timed.then(|| self.arrivals.finish()),
            input_tokens: self.input.finish(),
            output_tokens: self.output.finish(),
            sessions: self.sessions.finish(),
            reuse,
            lru,
            lru_fleet: fleet,
        }
    }
}

/// What the rows of `rows`, read from `file`, are like, also for the caches of a fleet; `progress` is called now and then with the bytes read so far.
///
/// # Errors
/// As the rows have them.
pub fn analyse(
    mut rows: Rows,
    file: &str,
    fleet: Option<Fleet>,
    progress: impl Fn(u64),
) -> Result<TraceInfo, TraceError> {
    let mut analysis = None;
    let mut since = 0;
    while let Some(row) = rows.next().transpose()? {
        analysis.get_or_insert_with(|| Analysis::new(rows.block_tokens(), fleet)).add(&row);
        since += 1;
        if since == 1024 {
            since = 0;
            progress(rows.bytes_read());
        }
    }
    let analysis = analysis.unwrap_or_else(|| Analysis::new(rows.block_tokens(), fleet));
    let info = analysis.finish(file, rows.format(), rows.timed(), rows.counts());
    let names: Vec<String> = rows.files().iter().map(|path| path.display().to_string()).collect();
    let other_file = (names.len() > 1).then(|| names.into_iter().find(|other| other != file)).flatten();
    Ok(TraceInfo { other_file, first_skipped: rows.first_skipped().map(str::to_owned), ..info })
}
