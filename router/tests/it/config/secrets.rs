//! Keys, in whatever part of a router's life: nothing that it says has one in it.

use serde_json::json;

use crate::common::{Message, Router, Worker, wait_until};

/// Asks with a key, if one is given.
fn ask(router: &Router, method: &str, path: &str, key: &str, body: &str) -> Message {
    let shown = if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
    let mut client = router.client();
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: router\r\n{shown}Content-Length: {length}\r\n\r\n{body}"
    ));
    client.receive()
}

fn file(worker: &str, key: &str) -> String {
    format!(
        "[security]\napi_key = \"sk-client\"\ncontrol_plane_audit_enabled = true\n\
         control_plane_api_keys = [\"1:Ada:admin:sk-admin\", \"2:Bob:user:sk-user\"]\n\
         [[workers]]\nurl = \"{worker}\"\napi_key = \"{key}\"\n"
    )
}

#[test]
fn no_key_is_told_anywhere_in_a_routers_life() {
    let (first, second) = (Worker::fixed("{}"), Worker::fixed("{}"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("router.toml");
    let write = |text: String| std::fs::write(&path, text).expect("a file");
    write(file(&first.url(), "sk-worker"));
    let args = ["--config", path.to_str().expect("a path"), "--decision-headers"];
    let (mut router, log) = Router::start_traced(&args);

    let mut answers = Vec::new();
    let mut told = |answer: Message, status: u16| {
        assert_eq!(answer.status(), status, "{}", answer.text());
        answers.push(format!("{answer:?} {}", answer.text()));
        answer
    };
    for (key, status) in [("sk-client", 200), ("sk-wrong", 401), ("", 401)] {
        told(ask(&router, "POST", "/generate", key, "{}"), status);
    }
    for (key, status) in [("sk-wrong", 401), ("sk-client", 401), ("sk-user", 200), ("sk-admin", 200)] {
        told(ask(&router, "GET", "/workers", key, ""), status);
    }
    let added = json!({"url": second.url(), "api_key": "sk-added"}).to_string();
    told(ask(&router, "POST", "/workers", "sk-user", &added), 403);
    let added = told(ask(&router, "POST", "/workers", "sk-admin", &added), 202);
    let id = added.json()["worker_id"].as_str().expect("an id").to_owned();
    let worker = format!("/workers/{id}");
    wait_until("both to be ready", || {
        let list = ask(&router, "GET", "/workers", "sk-admin", "").json();
        list["workers"].as_array().expect("a list").iter().all(|worker| worker["state"] == "ready")
    });
    for _ in 0..4 {
        told(ask(&router, "POST", "/generate", "sk-client", r#"{"text":"long enough"}"#), 200);
    }
    told(ask(&router, "PUT", &worker, "sk-admin", r#"{"api_key":"sk-changed"}"#), 202);
    told(ask(&router, "PUT", &worker, "sk-admin", r#"{"api_key":"sk-of no use"}"#), 422);
    told(ask(&router, "POST", "/workers", "sk-admin", r#"{"url":"http://u:sk-password@h:1"}"#), 400);
    told(ask(&router, "POST", "/workers", "sk-admin", r#"{"url":"http://h:1","api_key":sk-broken}"#), 400);
    for path in [worker.as_str(), "/workers"] {
        told(ask(&router, "GET", path, "sk-user", ""), 200);
    }
    told(ask(&router, "DELETE", &worker, "sk-admin", ""), 202);

    write(file(&first.url(), "sk-renewed"));
    router.signal("HUP");
    wait_until("the new key to be sent", || {
        told(ask(&router, "POST", "/generate", "sk-client", "{}"), 200);
        first.seen().iter().any(|request| request.header("authorization") == Some("Bearer sk-renewed"))
    });
    write(file(&first.url(), "sk-unfinished").replace("sk-unfinished\"", "sk-unfinished"));
    router.signal("HUP");
    wait_until("what is wrong to be told", || log.lines().iter().any(|line| line.contains(":7: ")));

    // Each was where it belongs.
    for (worker, key) in [(&first, "sk-worker"), (&second, "sk-added")] {
        let sent = format!("Bearer {key}");
        assert!(worker.seen().iter().any(|request| request.header("authorization") == Some(&sent)), "{key}");
    }
    router.signal("TERM");
    assert_eq!(router.wait().code(), Some(0));
    let lines = log.into_lines();
    for told in ["path=/generate", "admin call", "configuration read again", "no longer ready"] {
        assert!(lines.iter().any(|line| line.contains(told)), "{told}: {lines:?}");
    }
    for said in lines.iter().chain(&answers) {
        assert!(!said.contains("sk-"), "{said}");
    }
}
