//! Pure emulation of one SGLang data-parallel rank: radix cache, KV pool, scheduler, cost model.

pub mod cache;
pub mod config;
pub mod cost;
pub mod engine;
mod limits;
pub mod preset;
mod request;
mod scheduler;
pub mod time;

pub use config::{ConfigError, EngineConfig, Pace, Schedule};
pub use engine::{Engine, EngineLoads, EngineTotals, Event, FinishReason, Refusal, RequestId, Submit};
pub use limits::Limits;
pub use preset::{PRESETS, Preset, preset};
