//! The laboratory as a whole: scenarios in, figures out, against closed forms, oracles and the other world.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod closed_forms;
mod exits;
mod gate;
mod live_faults;
mod parity;
mod program;
mod replay;
mod reproducible;
mod schema;
mod search;
mod shipped;
mod support;
mod targets;
mod trace_oracle;
mod traces;
mod winner;
