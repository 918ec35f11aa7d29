//! The paths that are proxied beside the built-in ones.

use super::readers::words;
use super::stop::Stop;
use crate::service;

const FLAG: &str = "--extra-endpoints";

/// The paths, in the order given.
///
/// # Errors
/// What is no bare path, or one that has an owner.
pub(super) fn resolve(given: &[String]) -> Result<Vec<String>, Stop> {
    let mut paths: Vec<String> = Vec::new();
    for path in words(given) {
        let problem = if !is_bare_path(path) {
            "must be a path that begins with /, without a query"
        } else if service::is_served(path) {
            "is served already; leave it out"
        } else if paths.iter().any(|known| known == path) {
            "is given twice"
        } else {
            paths.push(path.to_owned());
            continue;
        };
        return Err(Stop::wrong(FLAG, format!("`{path}` {problem}")));
    }
    Ok(paths)
}

/// Whether it can be the whole of a request's path.
fn is_bare_path(text: &str) -> bool {
    text.starts_with('/') && text.parse::<http::Uri>().is_ok_and(|uri| uri.path() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy;

    #[test]
    fn paths_keep_their_order() {
        let given = ["/v1/b /v1/a".to_owned(), "/c/".to_owned()];
        assert_eq!(resolve(&given).expect("paths"), ["/v1/b", "/v1/a", "/c/"]);
    }

    #[test]
    fn what_is_taken_or_no_path_is_refused() {
        for endpoint in proxy::ENDPOINTS {
            assert!(resolve(&[endpoint.path.to_owned()]).is_err(), "{}", endpoint.path);
        }
        for path in ["/health", "/workers", "/abort_request", "/v1/responses/x/cancel"] {
            assert!(resolve(&[path.to_owned()]).is_err(), "{path}");
        }
        for path in ["x", "/a?b", "/a?", "/a#b", "http://a/b", "*", "/\u{7f}", "/a /a"] {
            assert!(resolve(&[path.to_owned()]).is_err(), "{path}");
        }
    }
}
