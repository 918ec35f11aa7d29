//! One request's mailbox between the pacer and the HTTP task: the latest count of tokens and how it ended.
//!
//! The pacer overwrites, the task reads: at most one state is pending whatever the speed of the reader. The task says
//! from which count on it wants to be woken, so that a stream with an interval costs one wake-up per frame and a
//! buffered answer only one. A count that wakes nobody takes no lock.

use std::sync::atomic::{AtomicU32, Ordering};
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
    pub(crate) host_tokens: u32,
    pub(crate) output_tokens: u32,
    pub(crate) retractions: u32,
}

/// When a request began, in engine time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began {
    /// It got to the queue.
    pub(crate) queued_ns: u64,
    /// It was there for so long before it was first scheduled.
    pub(crate) queue_ns: u64,
    /// Its prefill was complete.
    pub(crate) prefilled_ns: u64,
    /// The front end had its first token.
    pub(crate) first_token_ns: u64,
}

/// What is known of a request beside its tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Prompt tokens served from the cache, known from the first token on.
    pub(crate) cached_tokens: u32,
    /// Those of them that were on the host.
    pub(crate) host_tokens: u32,
    /// How often it has been retracted.
    pub(crate) retractions: u32,
    /// Engine time from its arrival to its end, known at the end.
    pub(crate) e2e_ns: Option<u64>,
    /// Known from the first token on.
    pub(crate) began: Option<Began>,
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
    /// Engine time of what the reader was woken for, if it waited.
    pub(crate) due_ns: Option<u64>,
}

/// The mailbox.
///
/// The worker writes `tokens` and then reads `want`, the reader writes `want` and then reads `tokens`, all in one order
/// that both agree on: whoever comes second sees that the reader is to be woken.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Output tokens so far. Written under the worker's lock only.
    tokens: AtomicU32,
    /// The count of tokens at which the reader wants to be woken; no count while it does not wait.
    want: AtomicU32,
    /// The count that the front end has been told last. Used under the worker's lock only.
    told: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    figures: Figures,
    ending: Option<Ending>,
    due_ns: Option<u64>,
    waker: Option<Waker>,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self {
            tokens: AtomicU32::new(0),
            want: AtomicU32::new(u32::MAX),
            told: AtomicU32::new(0),
            state: Mutex::default(),
        }
    }

    /// Whether a count is more than what the front end has been told before. It has been told now: a step that brings
    /// this request nothing, as one of another rank, costs no frame.
    pub(crate) fn is_news(&self, tokens: u32) -> bool {
        self.told.fetch_max(tokens, Ordering::Relaxed) < tokens
    }

    /// The request is on this rank.
    pub(crate) fn ranked(&self, rank: u32) {
        self.state.lock().figures.dp_rank = rank;
    }

    /// The request has its first token. To be said before the token itself.
    pub(crate) fn began(&self, began: Began) {
        self.state.lock().figures.began = Some(began);
    }

    /// The request has its first token at this engine time.
    pub(crate) fn first_token(&self, at_ns: u64, cached_tokens: u32, host_tokens: u32) {
        {
            let figures = &mut self.state.lock().figures;
            figures.cached_tokens = cached_tokens;
            figures.host_tokens = host_tokens;
        }
        self.tokens(at_ns, 1);
    }

    /// The request has so many output tokens at this engine time. The count never falls: a retracted request keeps what
    /// it produced.
    pub(crate) fn tokens(&self, at_ns: u64, tokens: u32) {
        if tokens <= self.tokens.load(Ordering::SeqCst) {
            return;
        }
        self.tokens.store(tokens, Ordering::SeqCst);
        if tokens >= self.want.load(Ordering::SeqCst) {
            self.wake(at_ns, |_| ());
        }
    }

    /// The request has been retracted so often. To be said before its next tokens.
    pub(crate) fn retracted(&self, times: u32) {
        self.state.lock().figures.retractions = times;
    }

    /// The request ended at this engine time, `e2e_ns` after its arrival.
    pub(crate) fn end(&self, at_ns: u64, ending: Ending, e2e_ns: u64) {
        self.wake(at_ns, |state| {
            state.figures.e2e_ns = Some(e2e_ns);
            if let Ending::Finished(finish) = &ending {
                self.tokens.store(finish.output_tokens, Ordering::SeqCst);
                state.figures.cached_tokens = finish.cached_tokens;
                state.figures.host_tokens = finish.host_tokens;
                state.figures.retractions = finish.retractions;
            }
            state.ending = Some(ending);
        });
    }

    fn wake(&self, at_ns: u64, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state.lock();
            change(&mut state);
            self.want.store(u32::MAX, Ordering::SeqCst);
            let waker = state.waker.take();
            if waker.is_some() {
                state.due_ns = Some(at_ns);
            }
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready with at least `want` tokens, or at the end.
    pub(crate) fn poll(&self, context: &Context<'_>, want: u32) -> Poll<Progress> {
        let mut state = self.state.lock();
        let is_due = |state: &State| state.ending.is_some() || self.tokens.load(Ordering::SeqCst) >= want;
        if !is_due(&state) {
            self.want.store(want, Ordering::SeqCst);
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            // They may have come before the wish was there.
            if !is_due(&state) {
                return Poll::Pending;
            }
            self.want.store(u32::MAX, Ordering::SeqCst);
            state.waker = None;
        }
        Poll::Ready(Progress {
            tokens: self.tokens.load(Ordering::SeqCst),
            figures: state.figures,
            ending: state.ending.clone(),
            due_ns: state.due_ns.take(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
        mailbox.first_token(1, 7, 0);
        mailbox.tokens(2, 2);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        mailbox.tokens(3, 5);
        mailbox.tokens(4, 6);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "one wake-up, however much comes after it");
        let Poll::Ready(progress) = mailbox.poll(&context, 3) else {
            panic!("three were wanted, six are there")
        };
        assert_eq!((progress.tokens, progress.figures.cached_tokens, progress.due_ns), (6, 7, Some(3)));
        let Poll::Ready(progress) = mailbox.poll(&context, 3) else { panic!("six are there still") };
        assert_eq!(progress.due_ns, None, "nobody waited for it");
        assert!(mailbox.poll(&context, u32::MAX).is_pending());
        mailbox.end(5, Ending::Refused { status: 400, message: String::new(), by_scheduler: false }, 0);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_count_is_news_once() {
        let mailbox = Mailbox::new();
        let news = [2, 2, 3, 2, 3, 7].map(|tokens| mailbox.is_news(tokens));
        assert_eq!(news, [true, false, true, false, false, true]);
    }

    #[test]
    fn no_wake_up_is_lost() {
        let mailbox = Arc::new(Mailbox::new());
        let writer = Arc::clone(&mailbox);
        let writes = std::thread::spawn(move || (1..=20_000).for_each(|tokens| writer.tokens(0, tokens)));
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut seen = 0;
        while seen < 20_000 {
            match mailbox.poll(&Context::from_waker(&waker), seen + 1) {
                Poll::Ready(progress) => seen = progress.tokens,
                // Without a wake-up this would last for ever.
                Poll::Pending => std::thread::park(),
            }
        }
        writes.join().unwrap();
    }

    struct Unpark(std::thread::Thread);

    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
}
