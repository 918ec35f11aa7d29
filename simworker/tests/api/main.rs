//! The endpoints of a worker over real sockets. Engines run fifty times as fast as real time.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails by panicking")]

mod access;
mod bootstrap;
mod client;
mod control;
mod copies;
mod embed;
mod errors;
mod fake_prefill;
mod faults;
mod generate;
mod host_tier;
mod http2;
mod info;
mod instant;
#[cfg(feature = "kv-events")]
mod kv_events;
#[cfg(feature = "kv-events")]
mod kv_faults;
#[cfg(feature = "kv-events")]
mod kv_subscriber;
mod latency;
mod limits;
mod logprobs;
mod metric_values;
mod metrics;
mod openai;
mod page;
mod pair;
mod pair_failures;
mod pair_restarts;
mod pair_wire;
mod pause;
mod priority;
mod ranks;
mod responses;
mod stops;
mod strict;
mod timing;
mod tool_calls;
mod watch;
