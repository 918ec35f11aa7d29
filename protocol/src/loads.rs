//! Load reports: `/v1/loads` of current engines and `/get_load` of older ones, written by the worker, read by
//! the router.
//!
//! Writing is exact (keys and their order). Reading is tolerant and gives a [`LoadSummary`]: what an engine does
//! not say stays `None`, because unknown is neither zero nor the worst.

mod summary;
#[cfg(test)]
mod tests;
mod written;

pub use summary::{LoadSummary, LoadsError, RankSummary};
pub use written::{
    AggregateLoad, DisaggregationLoad, LegacyLoad, LoadsResponse, MemoryLoad, QueueLoad, RankLoad,
};
