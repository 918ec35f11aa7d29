//! Retries: whether a request that failed is tried again, when, and on which workers not.
//!
//! Nothing here is retried once a byte of the answer has been passed on; that is for the caller to see to. Attempts are
//! bounded in number and in time, waits are spread by jitter, and a [`RetryBudget`] keeps retries to a share of all
//! requests, so that a fleet in trouble is not buried under its own retries.

mod budget;
mod config;
mod tries;

pub use budget::RetryBudget;
pub use config::{RetryConfig, StatusSet};
pub use tries::{Next, Tries};

/// Why an attempt failed, before anything of an answer was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No connection came about, so the worker has seen nothing of the request.
    Connect,
    /// A connection that had served requests before was lost before any byte of the response. In all likelihood the
    /// worker had closed it as idle; but it may have read the request.
    StaleConnection,
    /// A fresh connection was lost before any byte of the response. The worker has probably read the request.
    Reset,
    /// The engine has refused it because it has not finished with the attempt before, by the same id. That one is called off.
    Duplicate,
    /// The engine has not the data-parallel rank that it was sent, since it was started anew with others.
    OtherRanks,
    /// An answer of this status.
    Status(u16),
}

impl Cause {
    /// Whether it is worth trying again outside the budget: the worker has not begun with the request, or most likely not, so
    /// another try adds nothing to what the fleet has to do.
    #[must_use]
    pub fn is_free(self) -> bool {
        matches!(self, Self::Connect | Self::StaleConnection | Self::Duplicate | Self::OtherRanks)
    }
}

#[cfg(test)]
mod tests;
