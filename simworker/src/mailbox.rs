//! One request's mailbox between the pacer and the HTTP task: the latest count of tokens and how it ended.
//!
//! The pacer overwrites, the task reads: at most one state is pending whatever the speed of the reader. The task says
//! from which count on it wants to be woken, so that a stream with an interval costs one wake-up per frame and a
//! buffered answer only one.

use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use simworker_core::FinishReason;

/// How a request ended.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// The engine took it and finished it, for whatever reason.
    Finished(Finish),
    /// The engine did not take it.
    Refused {
        /// HTTP status.
        status: u16,
        /// What the client is told.
        message: String,
        /// The scheduler said so, not the front end.
        by_scheduler: bool,
    },
}

/// The engine's last word on a request.
#[derive(Debug, Clone)]
pub(crate) struct Finish {
    pub(crate) reason: FinishReason,
    pub(crate) cached_tokens: u32,
    pub(crate) output_tokens: u32,
    pub(crate) retractions: u32,
}

/// What is known of a request beside its tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Prompt tokens served from the cache, known from the first token on.
    pub(crate) cached_tokens: u32,
    /// How often it has been retracted.
    pub(crate) retractions: u32,
    /// Engine time from its arrival to its end, known at the end.
    pub(crate) e2e_ns: Option<u64>,
    /// The data-parallel rank that it is on, known once it is there.
    pub(crate) dp_rank: u32,
}

/// What a reader sees.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    /// Output tokens so far.
    pub(crate) tokens: u32,
    /// Everything else that is counted.
    pub(crate) figures: Figures,
    /// Set once, at the end.
    pub(crate) ending: Option<Ending>,
}

/// The mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox(Mutex<State>);

#[derive(Debug)]
struct State {
    progress: Progress,
    /// The count of tokens at which the reader wants to be woken.
    want: u32,
    waker: Option<Waker>,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        let progress = Progress { tokens: 0, figures: Figures::default(), ending: None };
        Self(Mutex::new(State { progress, want: u32::MAX, waker: None }))
    }

    /// The request is on this rank.
    pub(crate) fn ranked(&self, rank: u32) {
        self.post(|progress| progress.figures.dp_rank = rank);
    }

    /// The request has its first token.
    pub(crate) fn first_token(&self, cached_tokens: u32) {
        self.post(|progress| {
            progress.figures.cached_tokens = cached_tokens;
            progress.tokens = progress.tokens.max(1);
        });
    }

    /// The request has `tokens` output tokens. The count never falls: a retracted request keeps what it produced.
    pub(crate) fn tokens(&self, tokens: u32) {
        self.post(|progress| progress.tokens = progress.tokens.max(tokens));
    }

    /// The request has been retracted so often. To be said before its next tokens.
    pub(crate) fn retracted(&self, times: u32) {
        self.post(|progress| progress.figures.retractions = times);
    }

    /// The request ended, `e2e_ns` of engine time after its arrival.
    pub(crate) fn end(&self, ending: Ending, e2e_ns: u64) {
        self.post(|progress| {
            progress.figures.e2e_ns = Some(e2e_ns);
            if let Ending::Finished(finish) = &ending {
                progress.tokens = finish.output_tokens;
                progress.figures.cached_tokens = finish.cached_tokens;
                progress.figures.retractions = finish.retractions;
            }
            progress.ending = Some(ending);
        });
    }

    fn post(&self, change: impl FnOnce(&mut Progress)) {
        let waker = {
            let mut state = self.0.lock();
            change(&mut state.progress);
            let due = state.progress.ending.is_some() || state.progress.tokens >= state.want;
            if due { state.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready with at least `want` tokens, or at the end.
    pub(crate) fn poll(&self, context: &Context<'_>, want: u32) -> Poll<Progress> {
        let mut state = self.0.lock();
        if state.progress.ending.is_some() || state.progress.tokens >= want {
            return Poll::Ready(state.progress.clone());
        }
        state.want = want;
        match &mut state.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl std::task::Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_reader_is_woken_when_its_count_is_reached_and_not_before() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let context = Context::from_waker(&waker);
        let mailbox = Mailbox::new();
        assert!(mailbox.poll(&context, 3).is_pending());
        mailbox.first_token(7);
        mailbox.tokens(2);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        mailbox.tokens(5);
        mailbox.tokens(6);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "one wake-up, however much comes after it");
        let Poll::Ready(progress) = mailbox.poll(&context, 3) else {
            panic!("three were wanted, six are there")
        };
        assert_eq!((progress.tokens, progress.figures.cached_tokens), (6, 7));
        assert!(mailbox.poll(&context, u32::MAX).is_pending());
        mailbox.end(Ending::Refused { status: 400, message: String::new(), by_scheduler: false }, 0);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
    }
}
