//! The endpoints that are proxied. A new endpoint is a new row.

use protocol::view::Dialect;

/// One proxied path.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The path, the same at the router and at the worker.
    pub(crate) path: &'static str,
    /// The value of the metric label `endpoint`.
    pub(crate) label: &'static str,
    /// How the body is read.
    pub(crate) dialect: Dialect,
}

/// Every proxied path; all of them are POST.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "/v1/chat/completions", label: "chat", dialect: Dialect::Chat },
    Endpoint { path: "/generate", label: "generate", dialect: Dialect::Generate },
    Endpoint { path: "/v1/completions", label: "completions", dialect: Dialect::Completions },
];

/// The row of a path, with its place in the table.
pub(crate) fn find(path: &str) -> Option<(usize, &'static Endpoint)> {
    ENDPOINTS.iter().enumerate().find(|(_, row)| row.path == path)
}
