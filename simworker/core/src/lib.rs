//! Pure emulation of one SGLang data-parallel rank: radix cache, KV pool, scheduler, cost model.

pub mod cache;
pub mod config;
pub mod cost;
mod dp;
pub mod engine;
mod handoff;
mod limits;
mod link;
mod namespace;
pub mod preset;
mod prompt;
mod request;
mod scheduler;
pub mod time;

pub use config::{
    ConfigError, EngineConfig, HOST_BYTES_PER_SECOND, HostTierConfig, Pace, PrefillInterval, PriorityConfig,
    QueueConfig, Schedule,
};
pub use dp::{DpConfig, LoadBalance, Ranks};
pub use engine::{
    Engine, EngineLoads, EngineTotals, Event, FinishReason, LoadReport, PauseMode, QueueCounts, Refusal,
    RequestId, Submit,
};
pub use handoff::{EngineRole, HandoffConfig, HandoffFault, HandoffLoads};
pub use limits::Limits;
pub use link::{LINKS, Link, LinkPreset, link};
pub use namespace::{BlockNaming, CacheNames};
pub use preset::{PRESETS, Preset, preset};
pub use prompt::{Prompt, Run};
