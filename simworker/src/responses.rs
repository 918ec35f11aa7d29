//! What the Responses API knows of earlier responses, for workers with and without an engine: how a response is asked
//! for again or cancelled, and those that an engine has made.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hyper::Method;
use parking_lot::Mutex;
use protocol::tokenizer::Token;

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

/// A response that an engine has made or is making.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The body to answer with.
    pub(crate) body: Arc<[u8]>,
    /// The body once it is cancelled; none when it has ended.
    pub(crate) cancelled: Option<Arc<[u8]>>,
    /// The tokens that a next turn continues: prompt and reply.
    pub(crate) history: Arc<[Token]>,
}

/// The latest responses of an engine. They are lost with its process.
#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The start of the process that they are of.
    boot: u64,
    known: HashMap<String, Known>,
    /// Oldest first.
    order: VecDeque<String>,
}

impl Store {
    /// Remembers a response, unless it was cancelled meanwhile.
    pub(crate) fn put(&self, boot: u64, id: &str, known: Known) {
        let mut inner = self.at(boot);
        match inner.known.get_mut(id) {
            // Cancelled, so it has no body to be cancelled with any more.
            Some(old) if old.cancelled.is_none() => old.history = known.history,
            Some(old) => *old = known,
            None => {
                inner.order.push_back(id.to_owned());
                inner.known.insert(id.to_owned(), known);
                if inner.order.len() > MOST
                    && let Some(oldest) = inner.order.pop_front()
                {
                    inner.known.remove(&oldest);
                }
            }
        }
    }

    /// The response with this id.
    pub(crate) fn get(&self, boot: u64, id: &str) -> Option<Known> {
        self.at(boot).known.get(id).cloned()
    }

    /// Cancels it. True if it had not ended; one that has ended stays as it is.
    pub(crate) fn cancel(&self, boot: u64, id: &str) -> Option<(Known, bool)> {
        let mut inner = self.at(boot);
        let known = inner.known.get_mut(id)?;
        let cancelled = known.cancelled.take();
        let was_running = cancelled.is_some();
        if let Some(body) = cancelled {
            known.body = body;
        }
        Some((known.clone(), was_running))
    }

    fn at(&self, boot: u64) -> parking_lot::MutexGuard<'_, Inner> {
        let mut inner = self.0.lock();
        if inner.boot != boot {
            *inner = Inner { boot, ..Inner::default() };
        }
        inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(body: &str, is_over: bool) -> Known {
        let cancelled = (!is_over).then(|| b"cancelled"[..].into());
        Known { body: body.as_bytes().into(), cancelled, history: Arc::default() }
    }

    fn body(store: &Store, id: &str) -> Option<String> {
        Some(String::from_utf8(store.get(1, id)?.body.to_vec()).unwrap())
    }

    #[test]
    fn a_cancelled_response_stays_cancelled() {
        let store = Store::default();
        store.put(1, "a", known("made", false));
        assert!(store.cancel(1, "a").unwrap().1);
        store.put(1, "a", known("whole", true));
        assert_eq!(body(&store, "a").unwrap(), "cancelled");
        store.put(1, "b", known("made", false));
        store.put(1, "b", known("whole", true));
        assert!(!store.cancel(1, "b").unwrap().1);
        assert_eq!(body(&store, "b").unwrap(), "whole", "it has ended");
        assert!(store.cancel(1, "c").is_none());
    }

    #[test]
    fn the_oldest_are_forgotten_and_all_at_a_new_start() {
        let store = Store::default();
        for id in 0..=MOST {
            store.put(1, &id.to_string(), known("", true));
        }
        assert_eq!((body(&store, "0"), body(&store, "1").is_some()), (None, true));
        store.put(2, "x", known("", true));
        assert_eq!(body(&store, "1"), None);
    }
}
