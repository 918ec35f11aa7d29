//! Tells an engine that it waits in vain: the other leg of a request has failed. It would find out by itself, after
//! SGLang's time limits of minutes; that its connection is closed it notices after seconds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;

use super::earlier::CallingOff;
use super::names::Named;
use crate::fleet::Member;
use crate::request_id::REQUEST_ID;
use crate::upstream::{Callee, Pool, call};

/// For one engine and all ids: another try may wait so long.
const LIMIT: Duration = Duration::from_secs(2);

/// Nobody reads it.
const MAX_ANSWER: usize = 1 << 16;

/// How an engine that serves a leg is told so, if the client has named its requests.
#[derive(Debug, Clone)]
pub(super) struct CallOff {
    pub(super) pool: Arc<Pool>,
    pub(super) member: Arc<Member>,
    /// Of the client, for engines without a key of their own.
    pub(super) authorization: Option<HeaderValue>,
    /// Of the request.
    pub(super) id: HeaderValue,
    /// By which the engine knows the requests.
    pub(super) named: Arc<Named>,
}

impl CallOff {
    /// Does so in the background; nothing if the client has named nothing.
    pub(super) fn begin(self) -> Option<CallingOff> {
        let engine = self.member.first_id;
        (!self.named.is_empty()).then(|| CallingOff { engine, task: tokio::spawn(self.all()) })
    }

    async fn all(self) {
        let each = async {
            for rid in self.named.callable() {
                self.one(rid).await;
            }
        };
        // An engine that is too slow for it notices otherwise.
        let _ = tokio::time::timeout(LIMIT, each).await;
    }

    async fn one(&self, rid: &str) {
        let body = serde_json::json!({ "rid": rid }).to_string();
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/abort_request");
        let key = self.member.authorization().or_else(|| self.authorization.clone());
        let fields: [(HeaderName, Option<HeaderValue>); 4] = [
            (header::HOST, Some(self.member.address.host.clone())),
            (header::CONTENT_TYPE, Some(HeaderValue::from_static("application/json"))),
            (REQUEST_ID, Some(self.id.clone())),
            (header::AUTHORIZATION, key),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                request.headers_mut().insert(name, value);
            }
        }
        let callee = Callee { member: &self.member, timeout: LIMIT, max_answer: MAX_ANSWER };
        if let Err(error) = call(&self.pool, callee, request).await {
            tracing::debug!(worker = %self.member.address.url, "a request could not be called off: {error}");
        }
    }
}
