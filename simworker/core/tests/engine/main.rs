//! The engine as a whole, seen through its public interface.

#![expect(clippy::unwrap_used, reason = "this is a test")]

mod handoff;
#[path = "../mirror/mod.rs"]
mod mirror;
mod mirrors;
mod mixed;
mod pause;
mod priority;
mod reports;
mod scheduling;
mod stops;
mod support;
mod sweep;
mod timing;
