//! The shapes of `/workers`, and what it refuses.

use serde_json::json;

use super::{BODY, Engine, add, add_ready, call, call_with, encoded, listed, router, shown, state};
use crate::common::{Message, wait_until};

fn unix_seconds() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("a time after 1970").as_secs()
}

#[test]
fn a_registration_can_be_followed_until_the_worker_is_ready() {
    let engine = Engine::unwell();
    let router = router(&[]);
    // The last ones are the gateway's, and nobody's.
    let said = json!({"url": engine.url(), "worker_type": "regular", "runtime": "sglang", "bootstrap_port": 8998,
        "tokenizer_path": "/t", "health_check_interval_secs": 1, "max_connection_attempts": 20, "dp_aware": false,
        "made_up": {"at": ["any", "depth"]}});
    let begun = unix_seconds();
    let answer = call(&router, "POST", "/workers", &said.to_string());
    assert_eq!((answer.status(), answer.header("content-type")), (202, Some("application/json")));
    let body = answer.json();
    let id = body["worker_id"].as_str().expect("an id");
    let place = format!("/workers/{id}");
    assert_eq!((&body["status"], &body["url"]), (&json!("accepted"), &json!(engine.url())));
    assert_eq!((&body["location"], answer.header("location")), (&json!(place), Some(&*place)));
    let message = body["message"].as_str().expect("a text");
    assert!(message.contains("read over: `made_up`") && id.len() == 36, "{body}");

    let early = router.get(&place).json();
    assert!(["pending", "probing"].contains(&early["state"].as_str().expect("a state")), "{early}");
    wait_until("the first probe to be judged", || shown(&router, id)["reason"].is_string());
    let probed = shown(&router, id);
    assert_eq!((&probed["state"], &probed["is_healthy"]), (&json!("probing"), &json!(false)));
    assert!(probed["reason"].as_str().expect("a reason").contains("503"), "{probed}");
    let job = &probed["job_status"];
    assert_eq!((&job["job_type"], &job["status"]), (&json!("AddWorker"), &json!("processing")));
    assert_eq!((&job["worker_url"], &job["message"]), (&json!(engine.url()), &probed["reason"]));
    let timestamp = job["timestamp"].as_u64().expect("a time");
    assert!((begun..=unix_seconds()).contains(&timestamp), "{job}");
    assert_eq!(router.get("/readiness").status(), 503);
    assert_eq!((router.post("/generate", BODY).status(), engine.requests()), (503, 0));

    engine.get_well();
    wait_until("the worker to be ready", || state(&router, id) == "ready");
    let ready = shown(&router, id);
    assert_eq!(ready["is_healthy"], true);
    assert!(ready.get("reason").is_none() && ready.get("job_status").is_none(), "{ready}");
    assert_eq!((router.post("/generate", BODY).status(), engine.requests()), (200, 1));
    let list = router.get("/workers").json();
    assert_eq!(list["stats"], json!({"prefill_count": 0, "decode_count": 0, "regular_count": 1}));
    assert_eq!((&list["total"], &list["workers"][0]["id"]), (&json!(1), &json!(id)));
}

#[test]
fn what_describes_no_worker_is_refused_and_changes_nothing() {
    let router = router(&[]);
    for (status, body, culprit) in [
        (422, "{}", "url"),
        (422, r#"{"url":5}"#, "url: must be a text"),
        (422, "[]", "not an object"),
        (422, r#"{"url":"w:1","priority":-1}"#, "priority: must be a whole number from 0"),
        (422, r#"{"url":"w:1","priority":1.5}"#, "priority: must be a whole number"),
        (422, r#"{"url":"w:1","cost":-1}"#, "cost"),
        (422, r#"{"url":"w:1","labels":{"a":1}}"#, "labels: must be an object whose values are texts"),
        (422, r#"{"url":"w:1","api_key":""}"#, "api_key"),
        (422, r#"{"url":"w:1","api_key":"two words"}"#, "api_key"),
        (400, "", "EOF"),
        (400, "url=http://w:1", "expected"),
        (400, r#"{"url":"w:1""#, "EOF"),
        (400, r#"{"url":""}"#, "URL"),
        (400, r#"{"url":"ftp://w:1"}"#, "scheme"),
        (400, r#"{"url":"grpc://w:1"}"#, "gRPC"),
        (400, r#"{"url":"http://w:1/v1"}"#, "path"),
        (400, r#"{"url":"http://w:0"}"#, "port"),
        (400, r#"{"url":"w:99999"}"#, "w:99999"),
        (400, r#"{"url":"two words"}"#, "two words"),
        (
            422,
            r#"{"url":"w:1","bootstrap_port":0}"#,
            "bootstrap_port: must be a whole number from 1 to 65535",
        ),
        (422, r#"{"url":"w:1","bootstrap_port":"8998"}"#, "bootstrap_port: must be a whole number"),
        (
            400,
            r#"{"url":"w:1","worker_type":"made-up"}"#,
            "worker_type `made-up`: must be regular, prefill or decode",
        ),
        (400, r#"{"url":"w:1","runtime":"external"}"#, "runtime `external`"),
    ] {
        let answer = call(&router, "POST", "/workers", body);
        assert_eq!(answer.status(), status, "{body}: {}", answer.text());
        let error = answer.json();
        assert_eq!(error["code"], "BAD_REQUEST", "{body}");
        assert!(error["error"].as_str().expect("a text").contains(culprit), "{body}: {error}");
        assert!(!answer.text().contains("two words\"") || !body.contains("api_key"), "a key is not repeated");
    }
    assert_eq!(listed(&router), [] as [String; 0]);
}

/// Longest description, in bytes.
const LIMIT: usize = 1 << 20;

/// A description of this worker that is so long.
fn padded(url: &str, length: usize) -> String {
    let said = json!({"url": url}).to_string();
    let blanks = " ".repeat(length - said.len());
    said + &blanks
}

#[test]
fn a_description_that_is_too_long_is_refused_as_such_however_it_comes() {
    let engine = Engine::start();
    let router = router(&[]);
    let assert_too_long = |answer: &Message| {
        assert_eq!((answer.status(), answer.header("connection")), (413, Some("close")), "{}", answer.text());
        assert_eq!(answer.json()["code"], "PAYLOAD_TOO_LARGE");
        assert!(answer.text().contains("1048576"), "{}", answer.text());
    };
    let long = padded(&engine.url(), LIMIT + 1);
    assert_too_long(&call(&router, "POST", "/workers", &long));
    let mut chunked = router.client();
    chunked.send("POST /workers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunked.send(format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len()));
    assert_too_long(&chunked.receive());
    // One that asks first is told before it sends.
    let mut asking = router.client();
    asking
        .send("POST /workers HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1048577\r\n\r\n");
    assert_too_long(&asking.receive());
    assert_eq!(listed(&router), [] as [String; 0]);
    assert_eq!(call(&router, "POST", "/workers", &padded(&engine.url(), LIMIT)).status(), 202);
    let place = format!("/workers/{}", encoded(&engine.url()));
    assert_too_long(&call(&router, "PUT", &place, &long));
}

#[test]
fn the_list_is_there_with_a_slash_at_its_end_too() {
    let engine = Engine::start();
    let router = router(&["--api-key", "k"]);
    let call = |method: &str, body: &str| {
        call_with(&router, "Authorization: Bearer k\r\n", method, "/workers/", body)
    };
    assert_eq!(call("POST", &json!({"url": engine.url()}).to_string()).status(), 202);
    let list = call("GET", "");
    assert_eq!((list.status(), &list.json()["workers"][0]["url"]), (200, &json!(engine.url())));
    let refused = call("DELETE", "");
    assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, HEAD, POST")));
    router.get("/workers/").assert_refused(401, "invalid_api_key");
    for (method, times) in [("GET", 2.0), ("POST", 1.0)] {
        let series = format!(r#"smg_http_requests_total{{method="{method}",path="/workers"}}"#);
        assert_eq!(router.metric(&series), Some(times), "{method}");
    }
}

#[test]
fn a_worker_that_is_unknown_is_not_found_and_one_that_is_no_name_is_refused() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add_ready(&router, &engine.url());
    let unknown = ["00000000-0000-8000-8000-000000000000", "http%3A%2F%2F127.0.0.1%3A1", "127.0.0.1:1", "x"];
    let no_names = ["%zz", "%ff", "two%20words", "ftp%3A%2F%2Fw"];
    for method in ["GET", "PUT", "DELETE", "POST"] {
        let suffix = if method == "POST" { "/drain" } else { "" };
        let places = unknown.iter().map(|name| (name, 404, "WORKER_NOT_FOUND"));
        for (name, status, code) in places.chain(no_names.iter().map(|name| (name, 400, "BAD_REQUEST"))) {
            let answer = call(&router, method, &format!("/workers/{name}{suffix}"), "{}");
            assert_eq!(answer.status(), status, "{method} {name}: {}", answer.text());
            assert_eq!(answer.json()["code"], code, "{method} {name}");
        }
    }
    for (method, path, allowed) in [
        ("DELETE", "/workers", "GET, HEAD, POST"),
        ("POST", "/workers/x", "GET, HEAD, PUT, DELETE"),
        ("PATCH", "/workers/x", "GET, HEAD, PUT, DELETE"),
        ("GET", "/workers/x/drain", "POST"),
    ] {
        let answer = call(&router, method, path, "");
        assert_eq!((answer.status(), answer.header("allow")), (405, Some(allowed)), "{method} {path}");
    }
    router.get("/workers/x/y").assert_refused(404, "not_found");
    assert_eq!((state(&router, &id).as_str(), listed(&router)), ("ready", vec![engine.url()]));
}

#[test]
fn a_time_to_drain_that_is_none_is_refused_and_the_worker_stays() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add_ready(&router, &engine.url());
    for wrong in ["", "soon", "-1", "1.5", "100000001", "18446744073709551615", "18446744073709551616"] {
        let path = format!("/workers/{id}?drain_timeout_secs={wrong}");
        let answer = call(&router, "DELETE", &path, "");
        assert_eq!(answer.status(), 400, "{wrong}: {}", answer.text());
        assert!(answer.text().contains("drain_timeout_secs"), "{wrong}: {}", answer.text());
    }
    assert_eq!((state(&router, &id).as_str(), router.post("/generate", BODY).status()), ("ready", 200));
    let path = format!("/workers/{id}?other=1&drain_timeout_secs=100000000");
    assert_eq!(call(&router, "DELETE", &path, "").status(), 202);
    wait_until("the worker to be gone", || state(&router, &id) == "gone");
}

#[test]
fn who_manages_workers_shows_the_key_where_there_is_one() {
    const KEY: &str = "Authorization: Bearer sk-1\r\n";
    let engine = Engine::start();
    let router = router(&["--api-key", "sk-1"]);
    let registration = json!({"url": engine.url()}).to_string();
    let name = encoded(&engine.url());
    let one = format!("/workers/{name}");
    let drain = format!("/workers/{name}/drain");
    let calls = [
        ("POST", "/workers", &*registration, 202),
        ("GET", "/workers", "", 200),
        ("GET", &one, "", 200),
        ("PUT", &one, r#"{"priority":1}"#, 202),
        ("POST", &drain, "", 202),
        ("POST", "/workers", &*registration, 202),
        ("DELETE", &one, "", 202),
    ];
    for (method, path, body, status) in calls {
        for headers in ["", "Authorization: Bearer sk-2\r\n", "Authorization: sk-1\r\n"] {
            let answer = call_with(&router, headers, method, path, body);
            answer.assert_refused(401, "invalid_api_key");
        }
        let answer = call_with(&router, KEY, method, path, body);
        assert_eq!(answer.status(), status, "{method} {path}: {}", answer.text());
    }
}

#[test]
fn a_description_of_a_worker_has_an_end() {
    let router = router(&[]);
    let id = add(&router, "127.0.0.1:1");
    let long = format!(r#"{{"url":"w:1","model_id":"{}"}}"#, "m".repeat(900_000));
    assert_eq!(call(&router, "POST", "/workers", &long).status(), 202);
    let longer = format!(r#"{{"labels":{{"a":"{}"}}}}"#, "m".repeat(1 << 20));
    let answer = call(&router, "PUT", &format!("/workers/{id}"), &longer);
    assert_eq!((answer.status(), &answer.json()["code"]), (413, &json!("PAYLOAD_TOO_LARGE")));
    assert_eq!(shown(&router, &id)["metadata"]["labels"], json!({}));
}
