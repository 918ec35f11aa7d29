//! The laboratory: scenarios become workloads, workloads are driven through a live cluster or a virtual
//! world, and what came back becomes records, summaries and a report.

// They panic where nobody reads; `say` does not.
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod app;
mod cli;
pub mod commands;
mod cores;
pub mod decisions;
pub mod experiment;
mod gate;
pub mod live;
mod progress;
pub mod report;
pub mod run;
mod say;
pub mod scenario;
pub mod search;
mod statistics;
pub mod trace;
mod unfinished;
mod virtual_time;
mod whole;
mod workload;
