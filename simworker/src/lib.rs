//! A mock SGLang worker: its HTTP endpoints over an emulated engine.
//!
//! One process hosts many workers; each has its own port and its own [`simworker_core`] engine. One OS thread (the
//! pacer) drives all engines to their deadlines on a scaled clock; HTTP tasks hand requests in and read progress from
//! one mailbox per request. A mailbox holds the latest count of tokens and not a queue of them, so a slow reader
//! costs no memory.
//!
//! A host can also answer at once from canned replies, without engines, and in both modes it can be watched and made
//! to fail on demand, at the start ([`fault`]) or through a control port.

pub mod calibrate;
pub mod cli;
mod clock;
pub mod config;
mod connection;
mod exposition;
pub mod fault;
mod handoff;
pub mod host;
mod http;
mod instant;
#[cfg_attr(not(feature = "kv-events"), expect(dead_code, reason = "only the sockets read what is published"))]
mod kv;
mod lag;
mod latency;
mod mailbox;
mod pacer;
pub mod preset_file;
mod quantiles;
mod reply;
mod responses;
mod tally;
mod ticket;
mod vectors;
mod watch;
mod worker;
