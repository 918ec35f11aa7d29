//! A mock SGLang worker: its HTTP endpoints over an emulated engine.
//!
//! One process hosts many workers; each has its own port and its own [`simworker_core`] engine. One OS thread (the
//! pacer) drives all engines to their deadlines on a scaled clock; HTTP tasks hand requests in and read progress from
//! one mailbox per request. A mailbox holds the latest count of tokens and not a queue of them, so a slow reader
//! costs no memory.

pub mod cli;
mod clock;
pub mod config;
mod connection;
pub mod host;
mod http;
mod latency;
mod mailbox;
mod pacer;
mod ticket;
mod worker;
