//! Who changed what: one line in the log per call of an operator that may change something, refused ones too.

use http::{HeaderValue, Method, Request, StatusCode};

use super::access::{Guard, Visitor, changes};
use crate::access_log::excerpt;
use crate::config::Settings;
use crate::upstream::without_userinfo;

/// A call that the line is about.
#[derive(Debug)]
pub(crate) struct Call {
    method: Method,
    path: Box<str>,
    id: HeaderValue,
}

impl Call {
    /// A call that is to be logged; `None` for others.
    pub(crate) fn of<B>(
        settings: &Settings,
        guard: Guard,
        request: &Request<B>,
        id: &HeaderValue,
    ) -> Option<Self> {
        let is_wanted = settings.audit && guard == Guard::Admin && changes(request.method());
        is_wanted.then(|| Self {
            method: request.method().clone(),
            path: excerpt(&shown(request.uri().path())),
            id: id.clone(),
        })
    }

    /// Writes the line. `visitor`: who asked, if that is known.
    pub(crate) fn log(&self, visitor: Option<&Visitor>, status: StatusCode) {
        let (key_id, key_name) = match visitor {
            Some(Visitor::Operator { id, name, .. }) => (id.as_str(), name.as_str()),
            Some(Visitor::Client) => ("api-key", ""),
            Some(Visitor::Anyone) | None => ("", ""),
        };
        let (method, status) = (self.method.as_str(), status.as_u16());
        // Foreign texts are quoted and escaped: none can end the line.
        let (path, request_id) = (&self.path, self.id.to_str().unwrap_or_default());
        tracing::info!(target: "audit", method, ?path, ?key_id, ?key_name, status, request_id, "admin call");
    }
}

/// A path without the password that a worker's URL in it may hold.
fn shown(path: &str) -> String {
    const WORKERS: &str = "/workers/";
    match path.split_once(WORKERS) {
        Some((before, worker)) => format!("{before}{WORKERS}{}", without_userinfo(worker)),
        None => path.to_owned(),
    }
}
