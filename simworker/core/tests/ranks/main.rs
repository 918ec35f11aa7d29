//! Data-parallel ranks, seen through their public interface.

#![expect(clippy::unwrap_used, reason = "this is a test")]

mod alone;
mod balance;
mod handoff;
mod lockstep;
mod support;
