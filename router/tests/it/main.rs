//! Tests of the router's binary, from outside.

mod access_log;
mod admission;
mod affinity;
mod api_key;
mod backpressure;
mod breaker;
mod bytes;
mod cancellation;
mod case_bodies;
mod clients;
mod command_line;
mod common;
mod endpoints;
mod failures;
mod health;
mod metrics;
mod models;
mod passthrough;
mod request_ids;
mod retries;
mod routing;
mod streams;
mod timeouts;
mod unicode;
