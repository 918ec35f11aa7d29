//! What crosses a process boundary, spelled once: tokens, request and response bodies, streams,
//! load reports and the request record. Every other crate stands on this one; it stands on none.

pub mod chat;
pub mod dp_rank;
pub mod duration;
pub mod embedding;
pub mod kv_events;
pub mod loads;
pub mod openai;
pub mod output;
pub mod pd;
pub mod record;
pub mod responses;
pub mod sglang;
pub mod splice;
pub mod sse;
pub mod tokenizer;
pub mod view;
