//! Requests that go round in circles. A router whose worker leads back to it, because the engine's port was mistaken or
//! because two routers have each other as workers, would send a request on until its descriptors are used up.
//!
//! Every request to a worker carries one mark of each router that it has come through. A router that finds its own, or
//! more of them than any sensible chain has, refuses. Chains of different routers are none of that.

use std::hash::{BuildHasher, RandomState};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::Refusal;

/// The field that carries the marks, one of it for each router.
const HOPS: HeaderName = HeaderName::from_static("x-router-hops");

/// Most routers in a row.
const MOST: usize = 8;

/// One process.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    value: HeaderValue,
    number: u64,
}

impl Mark {
    /// That of a process which begins: another one every time, however alike they are started.
    pub(crate) fn new() -> Self {
        let number = RandomState::new().hash_one(std::process::id());
        let text = format!("{number:016x}");
        // There is one for as long as the process runs. Copies of it, one with each request, then share no count of
        // references among the threads.
        Self { value: HeaderValue::from_static(Box::leak(text.into_boxed_str())), number }
    }

    /// It as a number, for what has to differ between processes.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Sends a request on.
    pub(crate) fn stamp(&self, headers: &mut HeaderMap) {
        headers.append(HOPS, self.value.clone());
    }

    /// Looks where a request has been.
    ///
    /// # Errors
    /// [`Refusal::Loop`].
    pub(crate) fn judge(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut count = 0;
        // What lies between two routers may write several fields as one list (RFC 9110, section 5.3).
        let lists = headers.get_all(HOPS).iter().map(HeaderValue::as_bytes);
        for mark in lists.flat_map(|list| list.split(|byte| *byte == b',')) {
            count += 1;
            if count >= MOST || mark.trim_ascii() == self.value.as_bytes() {
                return Err(Refusal::Loop);
            }
        }
        Ok(())
    }
}

/// The marks that a request came with, for what is asked on its behalf.
pub(crate) fn carried(headers: &HeaderMap) -> Vec<HeaderValue> {
    headers.get_all(HOPS).iter().cloned().collect()
}

/// Gives a request the marks of another one.
pub(crate) fn carry(marks: &[HeaderValue], headers: &mut HeaderMap) {
    for mark in marks {
        headers.append(HOPS, mark.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(fields: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(HOPS, HeaderValue::try_from(*field).expect("a value"));
        }
        headers
    }

    #[test]
    fn a_request_is_refused_where_it_has_been() {
        let (here, there) = (Mark::new(), Mark::new());
        let mut headers = HeaderMap::new();
        here.judge(&headers).expect("it has been nowhere");
        here.stamp(&mut headers);
        there.judge(&headers).expect("it has not been there");
        there.stamp(&mut headers);
        assert_eq!(here.judge(&headers), Err(Refusal::Loop));
        let list = format!("a, {} ,b", here.value.to_str().expect("text"));
        assert_eq!(here.judge(&with(&[&list])), Err(Refusal::Loop));
    }

    #[test]
    fn a_chain_has_an_end() {
        let mark = Mark::new();
        mark.judge(&with(&["1", "2", "3", "4", "5", "6", "7"])).expect("this is the eighth");
        for long in [&["1", "2", "3", "4", "5", "6", "7", "8"][..], &["1,2,3", "4,5", "6,7,8,9"]] {
            assert_eq!(mark.judge(&with(long)), Err(Refusal::Loop), "{long:?}");
        }
    }
}
