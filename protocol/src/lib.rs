//! What crosses a process boundary, spelled once: tokens, request and response bodies, streams,
//! load reports and the request record. Every other crate stands on this one; it stands on none.

pub mod record;
pub mod tokenizer;
