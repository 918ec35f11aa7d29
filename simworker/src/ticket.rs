//! The HTTP side of one request in an engine. Dropping a ticket before its end aborts the request, which is how a
//! client that goes away frees the engine.

use std::sync::Arc;
use std::task::{Context, Poll};

use protocol::tokenizer::Token;
use simworker_core::{EngineRole, FinishReason, RequestId};

use crate::mailbox::{Ending, Finish, Mailbox, Progress};
use crate::reply::{Matched, Reply};
use crate::worker::Worker;

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
    /// Engine time of its arrival.
    pub(crate) arrived_ns: u64,
    pub(crate) reply: Reply,
    pub(crate) ended: bool,
}

impl Ticket {
    /// Ready with at least `want` output tokens, or at the end. Tokens that may be the beginning of a stop string are
    /// not told before they are not, or are the end.
    pub(crate) fn poll(&mut self, context: &Context<'_>, mut want: u32) -> Poll<Progress> {
        loop {
            let progress = self.mailbox.poll(context, want);
            if let Poll::Ready(Progress { tokens, ending, due_ns, .. }) = &progress {
                self.ended |= ending.is_some();
                if !self.ended && self.reply.is_held_back(*tokens) {
                    want = tokens + 1;
                    continue;
                }
                if let Some(due_ns) = due_ns {
                    self.worker.lag.frame(*due_ns);
                }
            }
            return progress;
        }
    }

    /// What ended the reply, if it was neither its budget nor an abort.
    pub(crate) fn matched(&self, finish: &Finish) -> Option<&Matched> {
        // A prefill worker makes the first token for another one, and no reply of its own.
        let is_own = self.worker.config.engine.role != EngineRole::Prefill;
        let is_regular = matches!(finish.reason, FinishReason::Length | FinishReason::Stop);
        self.reply.matched(finish.output_tokens).filter(|_| is_own && is_regular)
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
