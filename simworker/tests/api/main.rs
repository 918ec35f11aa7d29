//! The endpoints of a worker over real sockets. Engines run fifty times as fast as real time.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails by panicking")]

mod bootstrap;
mod client;
mod control;
mod fake_prefill;
mod faults;
mod generate;
mod info;
mod instant;
mod openai;
mod pair;
mod pair_failures;
mod pair_restarts;
mod pair_wire;
mod ranks;
mod watch;
