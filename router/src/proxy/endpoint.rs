//! The endpoints that are proxied. A new endpoint is a new row.

use protocol::view::Dialect;

/// One proxied path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Endpoint {
    /// The path, the same at the router and at the worker.
    pub(crate) path: &'static str,
    /// The value of the metric label `endpoint`.
    pub(crate) label: &'static str,
    /// What ids of requests without one begin with.
    pub(crate) id_prefix: &'static str,
    /// How the body is read.
    pub(crate) dialect: Dialect,
}

impl Endpoint {
    /// Whether one worker can compute the prompt and another one generate: SGLang takes what they need for that on its
    /// own path and on those of completions.
    pub(super) fn is_for_pairs(&self) -> bool {
        matches!(self.dialect, Dialect::Chat | Dialect::Completions | Dialect::Generate)
    }
}

const fn row(path: &'static str, label: &'static str, id_prefix: &'static str, dialect: Dialect) -> Endpoint {
    Endpoint { path, label, id_prefix, dialect }
}

/// Every proxied path; all of them are POST.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    row("/v1/chat/completions", "chat", "chatcmpl-", Dialect::Chat),
    row("/generate", "generate", "gnt-", Dialect::Generate),
    row("/v1/completions", "completions", "cmpl-", Dialect::Completions),
    row("/v1/embeddings", "embeddings", "req-", Dialect::Embeddings),
    row("/v1/classify", "classify", "req-", Dialect::Classify),
    row("/v1/rerank", "rerank", "req-", Dialect::Rerank),
    row("/rerank", "rerank", "req-", Dialect::Rerank),
    row("/v1/score", "score", "req-", Dialect::Score),
    row("/v1/responses", "responses", "resp-", Dialect::Responses),
];

/// What is known of the further paths that the operator allows; each has a place behind the table.
const EXTRA: Endpoint = row("", "", "req-", Dialect::Opaque);

/// The place of a path: in the table, or behind it among the further paths that the operator allows.
pub(crate) fn find(path: &str, extra: &[String]) -> Option<usize> {
    let known = ENDPOINTS.iter().position(|row| row.path == path);
    known.or_else(|| extra.iter().position(|allowed| allowed == path).map(|at| ENDPOINTS.len() + at))
}

/// What is known of the path at this place.
pub(crate) fn at(place: usize) -> &'static Endpoint {
    ENDPOINTS.get(place).unwrap_or(&EXTRA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_in_the_table_or_allowed_or_unknown() {
        let extra = ["/v1/audio/transcriptions".to_owned(), "/v1/messages".to_owned()];
        assert_eq!(find("/generate", &extra).map(|place| at(place).label), Some("generate"));
        assert_eq!(find(&extra[1], &extra), Some(ENDPOINTS.len() + 1));
        assert_eq!(at(ENDPOINTS.len() + 1).dialect, Dialect::Opaque);
        assert_eq!(find("", &extra), None);
        assert_eq!(find("/v1/unknown", &extra), None);
    }
}
