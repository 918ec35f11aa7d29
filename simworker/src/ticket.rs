//! The HTTP side of one request in an engine. Dropping a ticket before its end aborts the request, which is how a
//! client that goes away frees the engine.

use std::sync::Arc;
use std::task::{Context, Poll};

use protocol::tokenizer::{Token, block_token, decode};
use simworker_core::RequestId;

use crate::mailbox::{Ending, Mailbox, Progress};
use crate::worker::Worker;

/// The text that the engine answers with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    /// Name of the block of text.
    pub(crate) block: u64,
}

impl Reply {
    /// The ids of the tokens `from..to`.
    pub(crate) fn ids(self, from: u32, to: u32) -> Vec<Token> {
        (from..to).map(|index| block_token(self.block, index)).collect()
    }

    /// Their text.
    pub(crate) fn text(self, from: u32, to: u32) -> String {
        decode(&self.ids(from, to))
    }
}

/// One request in an engine.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) worker: Arc<Worker>,
    pub(crate) id: RequestId,
    pub(crate) mailbox: Arc<Mailbox>,
    /// The request's id as the client sees it.
    pub(crate) rid: String,
    pub(crate) prompt: Arc<[Token]>,
    pub(crate) prompt_tokens: u32,
    pub(crate) reply: Reply,
    /// The reply's length was not asked for, so its end is an end of text and not of a budget.
    pub(crate) ends_by_itself: bool,
    pub(crate) ended: bool,
}

impl Ticket {
    /// Ready with at least `want` output tokens, or at the end.
    pub(crate) fn poll(&mut self, context: &Context<'_>, want: u32) -> Poll<Progress> {
        let progress = self.mailbox.poll(context, want);
        if let Poll::Ready(Progress { ending: Some(_), .. }) = &progress {
            self.ended = true;
        }
        progress
    }

    /// Waits for the end.
    pub(crate) async fn end(&mut self) -> (Progress, Ending) {
        std::future::poll_fn(|context| match self.poll(context, u32::MAX) {
            Poll::Ready(mut progress) => match progress.ending.take() {
                Some(ending) => Poll::Ready((progress, ending)),
                None => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended {
            self.worker.abort(self.id);
        }
    }
}
