//! Keys: whom each route lets in.

use super::{OK, Script, scripted, send, start};
use crate::common::{Router, wait_until};

const ALL: Script = &[
    ("GET /v1/models ", OK, r#"{"data":[]}"#),
    ("GET /model_info ", OK, "{}"),
    ("GET /health_generate ", OK, ""),
    ("GET /server_info ", OK, "{}"),
    ("GET /metrics ", OK, "x 1\n"),
    ("GET /v1/loads", OK, r#"{"loads":[]}"#),
    ("POST /flush_cache ", OK, ""),
    ("POST /abort_request ", OK, ""),
    ("POST /generate ", OK, "{}"),
];

const PUBLIC: [(&str, &str); 6] = [
    ("GET", "/health"),
    ("GET", "/healthz"),
    ("GET", "/liveness"),
    ("GET", "/readiness"),
    ("GET", "/readyz"),
    ("GET", "/version"),
];
const DATA: [(&str, &str); 5] = [
    ("GET", "/v1/models"),
    ("GET", "/model_info"),
    ("GET", "/health_generate"),
    ("POST", "/abort_request"),
    ("POST", "/generate"),
];
const LOOKING: [(&str, &str); 5] = [
    ("GET", "/workers"),
    ("GET", "/server_info"),
    ("HEAD", "/get_loads"),
    ("GET", "/v1/loads"),
    ("GET", "/engine_metrics"),
];
const CHANGING: [(&str, &str); 4] = [
    ("POST", "/flush_cache"),
    ("POST", "/workers"),
    ("DELETE", "/workers/http%3A%2F%2F127.0.0.1%3A9"),
    ("POST", "/workers/http%3A%2F%2F127.0.0.1%3A9/drain"),
];

/// Who asks, and whether each kind of route lets it in.
struct Case {
    who: &'static str,
    key: &'static str,
    data: bool,
    looking: bool,
    changing: bool,
}

const fn case(who: &'static str, key: &'static str, [data, looking, changing]: [bool; 3]) -> Case {
    Case { who, key, data, looking, changing }
}

fn check(router: &Router, cases: &[Case]) {
    for Case { who, key, data, looking, changing } in cases {
        let kinds = [(&PUBLIC[..], true), (&DATA, *data), (&LOOKING, *looking), (&CHANGING, *changing)];
        for (method, path, admitted) in
            kinds.iter().flat_map(|(routes, in_)| routes.iter().map(|(method, path)| (*method, *path, *in_)))
        {
            let headers =
                if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
            let answer = send(router, method, path, &headers);
            let refused = [401, 403].contains(&answer.status());
            assert_eq!(refused, !admitted, "{who}: {method} {path}: {}", answer.first);
            if answer.status() == 401 && method != "HEAD" {
                answer.assert_refused(401, "invalid_api_key");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            }
        }
    }
}

#[test]
fn without_keys_everybody_is_let_in() {
    let worker = scripted(ALL);
    let router = start(&[&worker], &[]);
    check(&router, &[case("nobody", "", [true; 3]), case("anybody", "sk-any", [true; 3])]);
}

#[test]
fn the_clients_key_is_the_operators_where_they_have_none() {
    let worker = scripted(ALL);
    let router = start(&[&worker], &["--api-key", "sk-data"]);
    check(
        &router,
        &[
            case("nobody", "", [false; 3]),
            case("a stranger", "sk-dat", [false; 3]),
            case("a client", "sk-data", [true; 3]),
        ],
    );
}

const KEYS: [&str; 3] = ["--control-plane-api-keys", "1:Ada:admin:sk-ada", "2:Bob:user:sk:bob"];

#[test]
fn operators_keys_are_for_admin_routes_and_users_only_look() {
    let worker = scripted(ALL);
    let router = start(&[&worker], &[&["--api-key", "sk-data"], &KEYS[..]].concat());
    check(
        &router,
        &[
            case("nobody", "", [false; 3]),
            case("a client", "sk-data", [true, false, false]),
            case("an admin", "sk-ada", [false, true, true]),
            case("a user", "sk:bob", [false, true, false]),
            case("a stranger", "sk-bob", [false; 3]),
        ],
    );
    for (method, path) in CHANGING {
        send(&router, method, path, "Authorization: Bearer sk:bob\r\n")
            .assert_refused(403, "insufficient_role");
    }
    let router = start(&[&worker], &KEYS);
    check(
        &router,
        &[case("nobody", "", [true, false, false]), case("an admin", "sk-ada", [true, true, true])],
    );
    let ours =
        |first: &str| !first.starts_with("POST /generate ") && !first.starts_with("POST /abort_request ");
    let asked = worker.seen().into_iter().filter(|request| ours(&request.first));
    let shown: Vec<_> =
        asked.filter_map(|request| request.header("authorization").map(str::to_owned)).collect();
    assert!(shown.iter().all(|shown| shown == "Bearer sk-data"), "no operator's key reaches a worker");
}

#[test]
fn changes_are_audited_with_whose_key_it_was_and_never_the_key() {
    let worker = scripted(ALL);
    let args = [&["--control-plane-audit-enabled", "--access-log", "off"], &KEYS[..]].concat();
    let (router, log) = Router::start_logged(&[worker.url()], &args);
    super::wait_until_ready(&router, 1);
    let ask = |method, path, key: &str, id: &str| {
        send(&router, method, path, &format!("Authorization: Bearer {key}\r\nX-Request-Id: {id}\r\n"))
            .status()
    };
    assert_eq!(ask("GET", "/workers", "sk-ada", "id-look"), 200);
    assert_eq!(ask("POST", "/flush_cache", "sk-ada", "id-flush"), 200);
    assert_eq!(ask("POST", "/flush_cache", "sk:bob", "id-refused"), 403);
    assert_eq!(ask("POST", "/flush_cache", "sk-stranger", "id-stranger"), 401);
    let lines = || log.lines().into_iter().filter(|line| line.contains("audit")).collect::<Vec<_>>();
    wait_until("the lines", || lines().len() >= 3);
    let lines = lines();
    for (id, parts) in [
        ("id-flush", &["POST", "\"/flush_cache\"", "\"1\"", "\"Ada\"", "status=200"][..]),
        ("id-refused", &["status=403", "\"2\"", "\"Bob\""]),
        ("id-stranger", &["status=401", "key_id=\"\""]),
    ] {
        let line = lines.iter().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id} in {lines:?}"));
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    assert_eq!(lines.len(), 3, "a look is no change: {lines:?}");
    let all = log.lines().concat();
    assert!(["sk-ada", "sk:bob", "sk-stranger"].iter().all(|key| !all.contains(key)), "{all}");
}
