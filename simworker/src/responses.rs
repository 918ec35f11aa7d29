//! What the Responses API knows of earlier responses, for workers with and without an engine: how a response is asked
//! for again or cancelled, and those that an engine has made.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hyper::Method;
use parking_lot::Mutex;
use protocol::tokenizer::Token;
use simworker_core::RequestId;

/// Where responses are.
pub(crate) const PATH: &str = "/v1/responses/";
/// How many responses a worker remembers.
const MOST: usize = 256;

/// What is asked about an earlier response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again<'a> {
    /// The response with this id.
    Retrieve(&'a str),
    /// Its end.
    Cancel(&'a str),
}

impl<'a> Again<'a> {
    /// Reads what comes after [`PATH`]; none for a method that there is not.
    pub(crate) fn read(method: &Method, rest: &'a str) -> Option<Self> {
        match (method, rest.strip_suffix("/cancel")) {
            (&Method::GET, None) => Some(Self::Retrieve(rest)),
            (&Method::POST, Some(id)) => Some(Self::Cancel(id)),
            _ => None,
        }
    }
}

/// What is said about a response that there is not.
pub(crate) fn not_found(id: &str) -> String {
    format!("Response with id '{id}' not found.")
}

/// How far a response is.
#[derive(Debug, Clone)]
enum State {
    /// An engine is making it.
    Running {
        /// What makes it.
        request: RequestId,
        /// The body once it is cancelled.
        cancelled: Arc<[u8]>,
    },
    /// It is whole, with all the tokens that it can have.
    Ended,
    /// Somebody has cancelled it.
    Cancelled,
    /// The engine refused it, or its client has left.
    Failed,
}

/// A response that an engine has made or is making.
#[derive(Debug, Clone)]
struct Entry {
    /// Tells apart responses that have had the same id one after the other.
    number: u64,
    state: State,
    /// The body to answer with.
    body: Arc<[u8]>,
    /// The tokens that a next turn continues: prompt and reply. None before the end.
    history: Option<Arc<[Token]>>,
}

/// How a response comes to its end.
#[derive(Debug)]
pub(crate) enum End {
    /// Its body, and the tokens that a next turn continues.
    Whole {
        /// What is answered from now on.
        body: Arc<[u8]>,
        /// Prompt and reply.
        history: Arc<[Token]>,
    },
    /// There is none, and this is said in its place.
    Failed(Arc<[u8]>),
}

/// The bodies that a response has before its end.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// While it runs.
    pub(crate) running: Arc<[u8]>,
    /// Once it is cancelled.
    pub(crate) cancelled: Arc<[u8]>,
    /// When nobody waits for it any more.
    pub(crate) abandoned: Arc<[u8]>,
}

/// The latest responses of an engine. They are lost with its process.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The start of the process that they are of.
    boot: u64,
    /// Responses so far.
    count: u64,
    known: HashMap<String, Entry>,
    /// Ids and numbers, oldest first. A number that its id does not have any more stands for nothing.
    order: VecDeque<(String, u64)>,
}

/// A response in the store that is being made. It fails when this is dropped before its end.
#[derive(Debug)]
pub(crate) struct Running {
    store: Arc<Store>,
    boot: u64,
    id: String,
    number: u64,
    abandoned: Arc<[u8]>,
}

impl Store {
    /// Remembers a response that `request` makes, in place of an earlier one with this id.
    pub(crate) fn begin(
        self: &Arc<Self>,
        boot: u64,
        id: &str,
        request: RequestId,
        bodies: Bodies,
    ) -> Running {
        let Bodies { running: body, cancelled, abandoned } = bodies;
        let mut inner = self.at(boot);
        let number = inner.count;
        inner.count += 1;
        let entry = Entry { number, state: State::Running { request, cancelled }, body, history: None };
        inner.known.insert(id.to_owned(), entry);
        inner.order.push_back((id.to_owned(), number));
        inner.forget_oldest();
        drop(inner);
        Running { store: Arc::clone(self), boot, id: id.to_owned(), number, abandoned }
    }

    /// The body of the response with this id.
    pub(crate) fn body(&self, boot: u64, id: &str) -> Option<Arc<[u8]>> {
        self.at(boot).known.get(id).map(|entry| Arc::clone(&entry.body))
    }

    /// What a next turn continues; none where there is no response, or none with an end yet.
    pub(crate) fn history(&self, boot: u64, id: &str) -> Option<Arc<[Token]>> {
        self.at(boot).known.get(id)?.history.clone()
    }

    /// Cancels it, and tells its body and the request that is to be ended; one that has ended stays as it is.
    pub(crate) fn cancel(&self, boot: u64, id: &str) -> Option<(Arc<[u8]>, Option<RequestId>)> {
        let mut inner = self.at(boot);
        let entry = inner.known.get_mut(id)?;
        let request = match &entry.state {
            State::Running { request, cancelled } => {
                entry.body = Arc::clone(cancelled);
                Some(*request)
            }
            State::Ended | State::Cancelled | State::Failed => None,
        };
        if request.is_some() {
            entry.state = State::Cancelled;
        }
        Some((Arc::clone(&entry.body), request))
    }

    /// The response with this id and number is over. What was cancelled stays so, and can be continued.
    fn end(&self, boot: u64, id: &str, number: u64, end: End) {
        let mut inner = self.0.lock();
        // The process that it was of may be gone.
        if inner.boot != boot {
            return;
        }
        let Some(entry) = inner.known.get_mut(id).filter(|entry| entry.number == number) else { return };
        match (&entry.state, end) {
            (State::Running { .. }, End::Whole { body, history }) => {
                *entry = Entry { number, state: State::Ended, body, history: Some(history) };
            }
            (State::Running { .. }, End::Failed(body)) => {
                *entry = Entry { number, state: State::Failed, body, history: None };
            }
            (State::Cancelled, End::Whole { history, .. }) => entry.history = Some(history),
            (State::Cancelled | State::Ended | State::Failed, _) => {}
        }
    }

    fn at(&self, boot: u64) -> parking_lot::MutexGuard<'_, Inner> {
        let mut inner = self.0.lock();
        if inner.boot != boot {
            *inner = Inner { boot, count: inner.count, ..Inner::default() };
        }
        inner
    }
}

impl Inner {
    fn forget_oldest(&mut self) {
        if self.order.len() > MOST
            && let Some((id, number)) = self.order.pop_front()
            && self.known.get(&id).is_some_and(|entry| entry.number == number)
        {
            self.known.remove(&id);
        }
    }
}

impl Running {
    /// It is over.
    pub(crate) fn end(self, end: End) {
        self.store.end(self.boot, &self.id, self.number, end);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After its end this changes nothing.
        self.store.end(self.boot, &self.id, self.number, End::Failed(Arc::clone(&self.abandoned)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(store: &Arc<Store>, id: &str, request: u64) -> Running {
        let [running, cancelled, abandoned] = ["running", "cancelled", "abandoned"].map(bytes);
        store.begin(1, id, RequestId(request), Bodies { running, cancelled, abandoned })
    }

    fn bytes(text: &str) -> Arc<[u8]> {
        text.as_bytes().into()
    }

    fn whole(body: &str) -> End {
        End::Whole { body: bytes(body), history: [7][..].into() }
    }

    fn body(store: &Store, id: &str) -> Option<String> {
        Some(String::from_utf8(store.body(1, id)?.to_vec()).unwrap())
    }

    fn cancel(store: &Store, id: &str) -> Option<RequestId> {
        store.cancel(1, id).unwrap().1
    }

    #[test]
    fn a_cancelled_response_stays_cancelled() {
        let store = Arc::new(Store::default());
        let running = begin(&store, "a", 1);
        assert_eq!((body(&store, "a").unwrap().as_str(), store.history(1, "a")), ("running", None));
        assert_eq!((cancel(&store, "a"), cancel(&store, "a")), (Some(RequestId(1)), None), "once");
        running.end(whole("whole"));
        assert_eq!(body(&store, "a").unwrap(), "cancelled");
        assert!(store.history(1, "a").is_some());
        begin(&store, "b", 2).end(whole("whole"));
        assert_eq!(cancel(&store, "b"), None, "it has ended");
        assert_eq!(body(&store, "b").unwrap(), "whole");
        assert!(store.cancel(1, "c").is_none());
    }

    #[test]
    fn what_is_left_or_refused_has_failed() {
        let store = Arc::new(Store::default());
        drop(begin(&store, "a", 1));
        assert_eq!(body(&store, "a").unwrap(), "abandoned");
        begin(&store, "b", 2).end(End::Failed(bytes("refused")));
        assert_eq!((body(&store, "b").unwrap().as_str(), cancel(&store, "b")), ("refused", None));
        assert_eq!(store.history(1, "b"), None);
    }

    #[test]
    fn an_id_that_is_used_again_is_the_new_response() {
        let store = Arc::new(Store::default());
        begin(&store, "a", 1).end(whole("first"));
        let second = begin(&store, "a", 2);
        assert_eq!(body(&store, "a").unwrap(), "running");
        assert_eq!(cancel(&store, "a"), Some(RequestId(2)));
        let third = begin(&store, "a", 3);
        second.end(whole("second"));
        assert_eq!(body(&store, "a").unwrap(), "running", "the end of another one is not its own");
        third.end(whole("third"));
        assert_eq!(body(&store, "a").unwrap(), "third");
    }

    #[test]
    fn the_oldest_are_forgotten_and_all_at_a_new_start() {
        let store = Arc::new(Store::default());
        for id in 0..=MOST as u64 {
            begin(&store, &id.to_string(), id).end(whole(""));
        }
        assert_eq!((body(&store, "0"), body(&store, "1").is_some()), (None, true));
        // Used again just before it would have been forgotten.
        begin(&store, "1", 0).end(whole("again"));
        begin(&store, "x", 0).end(whole(""));
        assert_eq!((body(&store, "1").as_deref(), body(&store, "2")), (Some("again"), None));
        let late = begin(&store, "late", 0);
        assert_eq!(store.body(2, "x"), None);
        late.end(whole(""));
        assert_eq!(store.body(2, "late"), None);
    }
}
