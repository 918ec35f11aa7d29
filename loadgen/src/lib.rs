//! The laboratory: scenarios become workloads, workloads are driven through a live cluster or a virtual
//! world, and what came back becomes records, summaries and a report.

pub mod app;
pub mod cli;
pub mod commands;
pub mod decisions;
pub mod experiment;
pub mod gate;
pub mod live;
pub mod report;
pub mod run;
pub mod scenario;
pub mod search;
pub mod statistics;
pub mod trace;
pub mod virtual_time;
pub mod workload;
