//! A streaming reverse proxy for SGLang workers: the HTTP shell around the decisions of `router-core`.
//!
//! The shell moves bytes, keeps time and asks the core where each request goes. It owns no policy and no opinion
//! about load; what it learns from answers it reports to the core.

mod access_log;
mod alarm;
mod api_key;
mod body;
pub mod cli;
mod client;
mod clock;
mod config;
mod cors;
mod error;
mod fleet;
mod gate;
mod hops;
mod launch;
mod limits;
mod log;
mod metrics;
mod operator;
mod proxy;
pub mod record;
mod reload;
mod request_id;
mod server;
mod service;
mod shared;
mod signals;
mod stop;
mod tasks;
mod tls;
mod upstream;

pub use limits::{outlive_largest_file, raise_open_files};
