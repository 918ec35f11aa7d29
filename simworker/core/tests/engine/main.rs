//! The engine as a whole, seen through its public interface.

#![expect(clippy::unwrap_used, reason = "this is a test")]

mod handoff;
mod scheduling;
mod support;
mod sweep;
mod timing;
