//! What is to happen to one request.

use std::time::Duration;

use super::{Garbage, Lie, Skew};

/// All that faults do to one request.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) delay_head: Option<Duration>,
    pub(crate) delay_chunk: Option<Duration>,
    pub(crate) status: Option<StatusAnswer>,
    pub(crate) cut: Option<Cut>,
    pub(crate) lie: Option<Lie>,
    /// How far the clock of loads is off.
    pub(crate) skew: Option<Skew>,
    /// Bytes of the request's body that are read in a second.
    pub(crate) read_rate: Option<u64>,
    /// What is wrong with the answer's body.
    pub(crate) garbage: Option<Garbage>,
    /// The connection is closed after the answer.
    pub(crate) close_after: bool,
}

/// All that faults do to one hand-off of KV.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HandoffPlan {
    /// The transfer fails.
    pub(crate) fails: bool,
    /// Its end is known so much later.
    pub(crate) delay: Option<Duration>,
}

/// An answer that is made up.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatusAnswer {
    /// The fault it comes from.
    pub(crate) key: &'static str,
    pub(crate) status: u16,
    pub(crate) body: Option<String>,
    /// The header.
    pub(crate) retry_after: Option<String>,
}

impl StatusAnswer {
    pub(super) fn bare(key: &'static str, status: u16) -> Self {
        Self { key, status, body: None, retry_after: None }
    }
}

/// An answer that does not reach its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) point: Point,
    pub(crate) how: How,
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Stall,
    Reset,
    Close,
}

impl How {
    /// The key of the fault.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Stall => "stall",
            Self::Reset => "reset",
            Self::Close => "close",
        }
    }
}

/// A point of a request's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The request's head is there; its body has not been read.
    Arrival,
    /// The whole request has been read; nothing has been answered.
    Request,
    /// The response's head is out, and nothing of its body.
    Head,
    /// So many bytes of the response's body are out.
    Bytes(u64),
    /// So many chunks of the response's body are out.
    Chunks(u64),
}

impl Point {
    pub(super) fn read(text: &str) -> Option<Self> {
        Some(match text {
            "arrival" | "0" => Self::Arrival,
            "request" => Self::Request,
            "head" => Self::Head,
            _ => match text.strip_suffix("chunks").or_else(|| text.strip_suffix("chunk")) {
                Some(count) => Self::Chunks(count.trim().parse().ok()?),
                None => Self::Bytes(text.parse().ok()?),
            },
        })
    }
}
