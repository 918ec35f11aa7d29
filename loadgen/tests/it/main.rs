//! The laboratory as a whole: scenarios in, figures out, against closed forms, oracles and the other world.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod closed_forms;
mod exits;
mod live_faults;
mod parity;
mod program;
mod reproducible;
mod shipped;
mod support;
mod trace_oracle;
mod winner;
