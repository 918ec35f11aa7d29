//! Prefill and decode engines that hand KV over.

mod cost;
mod faults;
mod order;
mod reserve;
mod states;
mod sweep;
mod timing;
mod world;
