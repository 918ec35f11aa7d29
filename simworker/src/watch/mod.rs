//! Workers under control: what they see is booked, and faults befall their answers.
//!
//! Only workers with a control port or with faults are served from here. All others are served without a detour, so
//! that neither costs anything when it is not used.

mod control;
mod garble;
mod lies;
mod line;
mod reply;
mod seen;
mod serve;
mod station;
mod visit;

pub(crate) use control::routes as control_routes;
pub(crate) use serve::attend;
pub(crate) use station::{Station, Subject};
