//! Decisions reach the wire: policies, keys, load reports, and what the operator can see of them.

use crate::common::{Message, Router, Worker, wait_until};

const ANSWER: &str =
    r#"{"text":"x","meta_info":{"prompt_tokens":500,"cached_tokens":120,"completion_tokens":1}}"#;

fn fleet(size: usize) -> (Vec<Worker>, Vec<String>) {
    let workers: Vec<Worker> = (0..size).map(|_| Worker::fixed(ANSWER)).collect();
    let urls = workers.iter().map(Worker::url).collect();
    (workers, urls)
}

fn decided(answer: &Message) -> usize {
    answer.header("x-router-worker").expect("a decision").parse().expect("a number")
}

fn prompt(text: &str) -> Vec<u8> {
    format!(r#"{{"text":"{}"}}"#, text.repeat(100)).into_bytes()
}

#[test]
fn round_robin_takes_turns_and_says_so() {
    let (workers, urls) = fleet(3);
    let router = Router::start(&urls, &["--policy", "round_robin", "--decision-headers"]);
    let answers: Vec<_> = (0..9).map(|_| router.post("/generate", &prompt("a"))).collect();
    let turns: Vec<usize> = answers.iter().map(decided).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert!(workers.iter().all(|worker| worker.count("POST") == 3));
    assert!(answers[0].header("x-router-reason").is_some());
    assert_eq!(answers[0].header("x-router-predicted-tokens"), None, "the policy has no such belief");
}

#[test]
fn cache_aware_sends_a_prefix_where_it_was_sent_before_on_every_endpoint() {
    let (_workers, urls) = fleet(4);
    let router = Router::start(&urls, &["--policy", "cache_aware", "--decision-headers"]);
    let body = |path: &str, text: &str| {
        let text = text.repeat(100);
        let body = match path {
            "/generate" => format!(r#"{{"text":"{text}"}}"#),
            "/v1/completions" => format!(r#"{{"prompt":["{text}"]}}"#),
            _ => format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#),
        };
        body.into_bytes()
    };
    for path in ["/generate", "/v1/completions", "/v1/chat/completions"] {
        for word in ["alpha ", "beta ", "gamma ", "delta ", "epsilon "] {
            let text = format!("{path} {word}");
            let first = router.post(path, &body(path, &text));
            let again: Vec<_> = (0..4).map(|_| router.post(path, &body(path, &text))).collect();
            assert!(again.iter().all(|answer| decided(answer) == decided(&first)), "{text}");
            let predicted: u64 =
                again[0].header("x-router-predicted-tokens").expect("a belief").parse().expect("a number");
            assert!(predicted > 100, "{text}: {predicted}");
        }
    }
}

#[test]
fn a_refused_request_tells_its_decision_too() {
    let args = ["--decision-headers", "--disable-health-check"];
    let router = Router::start(&[crate::common::worker::dead_url()], &args);
    let answer = router.post("/generate", &prompt("a"));
    assert_eq!(answer.status(), 502);
    assert_eq!(decided(&answer), 0);
}

#[test]
fn loads_are_asked_for_at_once_and_in_the_older_form_where_needed() {
    let current = Worker::start(|conn, request| {
        let body: &[u8] = if request.first.starts_with("GET /v1/loads?include=core ") {
            br#"{"loads":[{"num_running_reqs":40,"num_waiting_reqs":9,"num_total_tokens":90000,"token_usage":0.2}]}"#
        } else {
            b"{}"
        };
        conn.answer("200 OK", "", body);
        true
    });
    let older = Worker::start(|conn, request| {
        match request.first.as_str() {
            "GET /get_load HTTP/1.1" => {
                conn.answer(
                    "200 OK",
                    "",
                    br#"[{"dp_rank":0,"num_reqs":0,"num_waiting_reqs":0,"num_tokens":0}]"#,
                );
            }
            first if first.starts_with("POST") => conn.answer("200 OK", "", b"{}"),
            _ => conn.answer("404 Not Found", "", b""),
        }
        true
    });
    let args = ["--policy", "power_of_two", "--load-poll-interval-secs", "0.2"];
    let router = Router::start(&[current.url(), older.url()], &args);
    wait_until("the newer form twice", || current.count("GET /v1/loads?include=core ") >= 2);
    wait_until("the older form twice", || older.count("GET /get_load ") >= 2);
    assert_eq!(older.count("GET /v1/loads"), 1, "once refused, the newer form is not asked for again");
    for _ in 0..10 {
        assert_eq!(router.post("/generate", &prompt("a")).status(), 200);
    }
    assert_eq!((current.count("POST"), older.count("POST")), (0, 10), "the reports decide");
}

#[test]
fn policies_that_do_not_look_at_loads_do_not_ask() {
    let (workers, urls) = fleet(1);
    let router = Router::start(&urls, &["--policy", "round_robin", "--load-poll-interval-secs", "0.05"]);
    for _ in 0..20 {
        assert_eq!(router.post("/generate", &prompt("a")).status(), 200);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(workers[0].seen().iter().all(|request| request.first.starts_with("POST")));
}

#[test]
fn the_operators_routes_have_the_gateways_shapes() {
    let (_workers, urls) = fleet(2);
    let router = Router::start(&urls, &[]);
    for path in ["/health", "/liveness"] {
        let answer = router.get(path);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "OK"), "{path}");
    }
    let ready = router.get("/readiness");
    assert_eq!(ready.status(), 200);
    assert_eq!(
        ready.json(),
        serde_json::json!({"status": "ready", "healthy_workers": 2, "total_workers": 2})
    );
    let list = router.get("/workers").json();
    assert_eq!(list["total"], 2);
    assert_eq!(list["stats"], serde_json::json!({"prefill_count": 0, "decode_count": 0, "regular_count": 2}));
    let worker = &list["workers"][1];
    assert_eq!(worker["url"], urls[1]);
    for (key, value) in [
        ("model_id", serde_json::json!("unknown")),
        ("priority", serde_json::json!(50)),
        ("cost", serde_json::json!(1.0)),
        ("worker_type", serde_json::json!("regular")),
        ("is_healthy", serde_json::json!(true)),
        ("load", serde_json::json!(0)),
        ("connection_mode", serde_json::json!("http")),
        ("metadata", serde_json::json!({"labels": {}})),
        ("disable_health_check", serde_json::json!(false)),
    ] {
        assert_eq!(worker[key], value, "{key}");
    }
    assert_ne!(list["workers"][0]["id"], worker["id"]);
}

#[test]
fn other_paths_and_methods_are_refused_in_json() {
    let (_workers, urls) = fleet(1);
    let router = Router::start(&urls, &[]);
    let mut client = router.client();
    let mut ask = |line: &str| {
        client.send(format!("{line} HTTP/1.1\r\nHost: r\r\nContent-Length: 0\r\n\r\n"));
        client.receive()
    };
    for (line, status, code) in [
        ("GET /nowhere", 404, "not_found"),
        ("POST /v1/chat/completions/", 404, "not_found"),
        ("GET /metrics", 404, "not_found"),
        ("GET /generate", 405, "method_not_allowed"),
        ("DELETE /workers", 405, "method_not_allowed"),
    ] {
        let answer = ask(line);
        assert_eq!(answer.status(), status, "{line}");
        assert_eq!(answer.json()["error"]["code"], code, "{line}");
        assert_eq!(answer.header("allow").is_some(), status == 405, "{line}");
    }
}

#[test]
fn metrics_count_what_happened() {
    let (workers, urls) = fleet(2);
    let router = Router::start(&urls, &["--policy", "round_robin"]);
    for _ in 0..3 {
        assert_eq!(router.post("/generate", &prompt("a")).status(), 200);
    }
    router.get("/nowhere/1");
    router.get("/nowhere/2");
    let labels = r#"router_type="http",backend_type="regular",connection_mode="http",model="unknown",endpoint="generate""#;
    for (series, value) in [
        (r#"smg_http_requests_total{method="POST",path="/generate"}"#.to_owned(), 3.0),
        (r#"smg_http_requests_total{method="GET",path="other"}"#.to_owned(), 2.0),
        (r#"smg_http_responses_total{status_code="200",error_code=""}"#.to_owned(), 3.0),
        (r#"smg_http_responses_total{status_code="404",error_code="not_found"}"#.to_owned(), 2.0),
        (format!(r#"smg_router_requests_total{{{labels},streaming="false"}}"#), 3.0),
        (format!(r"smg_router_request_duration_seconds_count{{{labels}}}"), 3.0),
        (format!(r#"smg_worker_requests_active{{worker="{}"}}"#, urls[0]), 0.0),
        (format!(r#"smg_worker_health{{worker="{}"}}"#, urls[1]), 1.0),
        (r#"smg_router_decisions_total{policy="round_robin","#.to_owned(), 3.0),
        ("smg_router_cached_tokens_total".to_owned(), 360.0),
        ("smg_router_prompt_tokens_total".to_owned(), 1500.0),
        ("smg_router_predicted_cached_tokens_total".to_owned(), 0.0),
    ] {
        assert_eq!(router.metric(&series), Some(value), "{series}");
    }
    let selected = |url: &str| {
        let text = crate::common::Client::get(&router.metrics, "/metrics").text();
        let line = text.lines().find(|l| l.starts_with("smg_worker_selection_total{") && l.contains(url));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    assert_eq!((selected(&workers[0].address), selected(&workers[1].address)), (Some(2.0), Some(1.0)));
}
