//! Many runs of one scenario, in virtual time and on all cores: a grid that can be interrupted ([`sweep`]), the best settings
//! of a policy ([`tune`]), and the highest load that meets the objectives ([`capacity`]).
//!
//! Of every run only figures are kept, as soon as it has ended, so that memory does not grow with what was sent. Nothing here
//! depends on which run ends first: the same question gives the same answer on one core or many.

pub mod capacity;
pub mod journal;
mod lists;
mod pool;
pub mod sweep;
pub mod tune;

pub use lists::assignments;
pub(crate) use lists::quoted;

use crate::report::ReportError;
use crate::scenario::ScenarioError;
use crate::virtual_time::VirtualError;

/// Why a search could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The scenario does not allow it.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// What was asked for makes no sense here; says what helps.
    #[error("{0}")]
    Asked(String),
    /// A run could not be done.
    #[error("{cell}: {source}")]
    Run {
        /// Which cell, in words.
        cell: String,
        /// What happened.
        source: VirtualError,
    },
    /// The file of finished runs cannot be used.
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    /// Results cannot be written.
    #[error(transparent)]
    Report(#[from] ReportError),
}
