//! What the runs of an experiment amount to: figures, verdicts, and the files and the table that show them.
//!
//! Owns the definitions: every figure has exactly one row in [`METRICS`], and the terminal table, the CSV file, the
//! asserts and the report's glossary are read off those rows. Refuses to know how a run came about: records in,
//! figures out, so that a live and a virtual run are judged by the same code. Guarantees equal bytes for equal input;
//! whatever differs between identical runs (times, machine) is confined to `environment.json`.
//!
//! The path: [`RunSummary::of`] one run → [`evaluate`] the asserts on medians over seeds → [`Experiment`] holds both
//! beside the records → [`table()`] for the terminal and [`write()`] for the files,
//! among them the [`winners()`] as configuration files of the router.

mod assertion;
mod best;
mod experiment;
mod files;
mod format;
mod histograms;
mod html;
mod margin;
mod markdown;
mod metric;
mod requests;
mod sides;
mod stats;
mod summary;
mod table;
mod validity;
mod variant;
mod winner;
mod workers;

#[cfg(test)]
pub(crate) mod fixture;

pub use assertion::{AssertOutcome, Assertion, AssertionError, Op, Verdict, evaluate};
pub use experiment::{About, BeforeAfter, Conclusion, Experiment};
pub use files::{ReportError, prepare, write, write_figures, write_others};
pub use metric::{Better, METRICS, Metric};
pub(crate) use stats::quantile;
pub(crate) use summary::{Missed, e2e_ns, met, missed, tpot_ns, ttft_ns};
pub use summary::{Quantiles, RunSummary, Slo, hit_rate};
pub use table::{Glyphs, WIDEST, table};
pub use winner::{Winner, undecided, winners};
pub(crate) use winner::{configuration, setting, worker_flags};
