//! What `/metrics` shows of requests that go well and of requests that do not.

use std::collections::HashSet;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::worker::dead_url;
use crate::common::{Client, Router, Worker, wait_until};

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;
const PLAIN: &[u8] = br#"{"text":"hello"}"#;
const TOKEN: &[u8] = b"data: {\"text\":\"a\"}\n\n";

/// The labels that every family of routes has.
fn route(model: &str) -> String {
    format!(
        r#"router_type="http",backend_type="regular",connection_mode="http",model="{model}",endpoint="generate""#
    )
}

fn value(router: &Router, series: &str) -> f64 {
    router.metric(series).unwrap_or_else(|| panic!("{series} is not shown"))
}

/// Waits until a series has this value.
fn wait_value(router: &Router, series: &str, expected: f64) {
    wait_until(&format!("{series} to be {expected}"), || router.metric(series) == Some(expected));
}

// sgl-project/sglang#27591
#[test]
fn a_stream_lasts_until_its_last_byte() {
    let (go, when) = channel();
    let when = Mutex::new(when);
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        for _ in 0..3 {
            conn.chunk(TOKEN);
            when.lock().expect("not poisoned").recv().expect("the test is there");
        }
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let labels = route("unknown");
    let count = |name: &str| router.metric(&format!("{name}_count{{{labels}}}"));
    let mut client = router.client();
    client.send_post("/generate", "", STREAM);
    client.reader.head().expect("a head");
    client.reader.chunk().expect("a token");
    assert_eq!(value(&router, "smg_http_connections_active"), 1.0);
    assert_eq!(value(&router, r#"smg_http_inflight_request_age_count{gt="0","#), 1.0);
    assert_eq!(count("smg_router_request_duration_seconds"), Some(0.0), "it is not over");
    (0..3).for_each(|_| go.send(()).expect("the worker is there"));
    while !client.reader.chunk().expect("a chunk").is_empty() {}
    wait_value(&router, "smg_http_connections_active", 0.0);
    for (name, expected) in [
        ("smg_router_request_duration_seconds", 1.0),
        ("smg_router_ttft_seconds", 1.0),
        ("smg_router_itl_seconds", 2.0),
        ("smg_router_tpot_seconds", 1.0),
        ("smg_router_generation_duration_seconds", 1.0),
    ] {
        assert_eq!(count(name), Some(expected), "{name}");
    }
    let path = r#"{method="POST",path="/generate"}"#;
    assert_eq!(value(&router, &format!("smg_http_request_duration_seconds_count{path}")), 1.0);
    assert_eq!(value(&router, r#"smg_router_request_ends_total{end="complete"}"#), 1.0);
}

// sgl-project/sglang#27591
#[test]
fn errors_do_not_count_as_fast_answers() {
    let worker = Worker::start(|conn, _| {
        conn.answer("500 Internal Server Error", "Content-Type: text/event-stream\r\n", TOKEN);
        true
    });
    let router = Router::start(&[worker.url()], &["--disable-retries", "--disable-circuit-breaker"]);
    for _ in 0..10 {
        assert_eq!(router.post("/generate", STREAM).status(), 500);
    }
    wait_value(&router, r#"smg_router_request_ends_total{end="complete"}"#, 10.0);
    let labels = route("unknown");
    for name in ["smg_router_ttft_seconds", "smg_router_request_duration_seconds", "smg_router_itl_seconds"] {
        assert_eq!(value(&router, &format!("{name}_count{{{labels}}}")), 0.0, "{name}");
    }
    let errors = format!(r#"smg_router_request_errors_total{{{labels},error_type="backend_error"}}"#);
    assert_eq!(value(&router, &errors), 10.0);
    let responses = r#"smg_router_upstream_responses_total{router_type="http",status_code="500","#;
    assert_eq!(value(&router, responses), 10.0);
    let failed =
        r#"smg_worker_errors_total{worker_type="regular",connection_mode="http",error_type="backend_error","#;
    assert_eq!(value(&router, failed), 10.0);
}

#[test]
fn a_worker_that_is_not_there_shows_as_such() {
    let router = Router::start(&[dead_url()], &["--disable-retries", "--disable-health-check"]);
    assert_eq!(router.post("/generate", PLAIN).status(), 502);
    let failed =
        r#"smg_worker_errors_total{worker_type="regular",connection_mode="http",error_type="connect","#;
    assert_eq!(value(&router, failed), 1.0);
    assert_eq!(value(&router, r#"smg_router_request_ends_total{end="refused"}"#), 1.0);
    assert_eq!(
        value(&router, r#"smg_http_responses_total{status_code="502",error_code="upstream_connect_failed"}"#),
        1.0
    );
}

#[test]
fn clients_that_leave_before_an_answer_are_not_in_flight_any_more() {
    const CLIENTS: usize = 50;
    let worker = Worker::start(|conn, _| {
        let _ = conn.stream.read(&mut [0]);
        false
    });
    let router = Router::start(&[worker.url()], &[]);
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = router.client();
            client.send_post("/generate", "", STREAM);
            client
        })
        .collect();
    let active = format!(r#"smg_worker_requests_active{{worker="{}"}}"#, worker.url());
    wait_value(&router, &active, CLIENTS as f64);
    assert_eq!(value(&router, "smg_http_connections_active"), CLIENTS as f64);
    assert!(value(&router, "smg_worker_queued_prefill_tokens") > 0.0);
    drop(clients);
    wait_value(&router, r#"smg_router_request_ends_total{end="client_gone"}"#, CLIENTS as f64);
    for series in [&active, "smg_http_connections_active", "smg_worker_tokens_active"] {
        wait_value(&router, series, 0.0);
    }
    let errors =
        format!(r#"smg_router_request_errors_total{{{},error_type="backend_error"}}"#, route("unknown"));
    assert_eq!(value(&router, &errors), 0.0, "nobody failed");
}

#[test]
fn retries_show_by_cause() {
    let sick = Worker::start(|conn, _| {
        conn.answer("503 Service Unavailable", "", b"{}");
        true
    });
    let well = Worker::fixed("{}");
    let router = Router::start(&[sick.url(), well.url()], &["--policy", "round_robin"]);
    assert_eq!(router.post("/generate", PLAIN).status(), 200);
    let retries = r#"smg_worker_retries_total{worker_type="regular",endpoint="generate",cause="status_503"}"#;
    assert_eq!(value(&router, retries), 1.0);
    assert_eq!(value(&router, r#"smg_worker_retry_backoff_seconds_count{attempt="1"}"#), 1.0);
    let labels = route("unknown");
    assert_eq!(value(&router, &format!(r#"smg_router_requests_total{{{labels},streaming="false"}}"#)), 1.0);
    let exhausted = r#"smg_worker_retries_exhausted_total{worker_type="regular",endpoint="generate"}"#;
    assert_eq!(value(&router, exhausted), 0.0);

    let router = Router::start(&[sick.url()], &["--retry-max-retries", "2"]);
    assert_eq!(router.post("/generate", PLAIN).status(), 503);
    assert_eq!((value(&router, retries), value(&router, exhausted)), (1.0, 1.0));

    let router = Router::start(&[sick.url()], &["--disable-retries"]);
    assert_eq!(router.post("/generate", PLAIN).status(), 503);
    let counts = [retries, exhausted].map(|series| router.metric(series).unwrap_or(0.0));
    assert_eq!(counts, [0.0, 0.0], "none was to be had");
}

/// Retries so far that followed a lost connection: a fresh one, and a reused one.
fn lost(router: &Router) -> [f64; 2] {
    ["reset", "stale_connection"].map(|cause| {
        let labels = format!(r#"worker_type="regular",endpoint="generate",cause="{cause}""#);
        router.metric(&format!("smg_worker_retries_total{{{labels}}}")).unwrap_or(0.0)
    })
}

#[test]
fn a_lost_connection_shows_by_whether_it_had_been_used() {
    // Every request to it comes on a fresh connection.
    let resetting = Worker::answering_requests(|_, _| false);
    let well = Worker::fixed("{}");
    let args = ["--policy", "round_robin", "--disable-health-check", "--retry-initial-backoff-ms", "1"];
    let router = Router::start(&[resetting.url(), well.url()], &args);
    resetting.wait_until_asked();
    assert_eq!(router.post("/generate", PLAIN).status(), 200);
    assert_eq!(lost(&router), [1.0, 0.0]);

    // Closes a connection on its second request.
    let known = Mutex::new(HashSet::new());
    let forgetful = Worker::answering_requests(move |conn, _| {
        let is_new = known.lock().expect("not poisoned").insert(conn.stream.peer_addr().expect("an address"));
        if is_new {
            conn.answer("200 OK", "", b"{}");
        }
        is_new
    });
    let router = Router::start(&[forgetful.url()], &args);
    forgetful.wait_until_asked();
    let mut client = router.client();
    for _ in 0..2 {
        assert_eq!(client.post("/generate", "", PLAIN).status(), 200);
    }
    assert_eq!(lost(&router), [0.0, 1.0]);
}

#[test]
fn durations_add_up_to_the_time_that_streams_took() {
    const STREAMS: u32 = 6;
    const LASTS: Duration = Duration::from_millis(300);
    let worker = Worker::start(|conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
        std::thread::sleep(LASTS);
        conn.chunk(TOKEN);
        conn.end_stream();
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    let begun = Instant::now();
    for _ in 0..STREAMS {
        assert_eq!(router.post("/generate", STREAM).body, TOKEN.repeat(2));
    }
    wait_value(&router, r#"smg_router_request_ends_total{end="complete"}"#, f64::from(STREAMS));
    let took = begun.elapsed().as_secs_f64();
    let labels = route("unknown");
    for series in [
        r#"smg_http_request_duration_seconds_sum{method="POST",path="/generate"}"#.to_owned(),
        format!("smg_router_request_duration_seconds_sum{{{labels}}}"),
        format!("smg_router_generation_duration_seconds_sum{{{labels}}}"),
        format!("smg_router_tpot_seconds_sum{{{labels}}}"),
        format!("smg_router_itl_seconds_sum{{{labels}}}"),
    ] {
        let sum = value(&router, &series);
        let least = f64::from(STREAMS) * LASTS.as_secs_f64() * 0.93;
        assert!((least..=took).contains(&sum), "{series}: {sum}, in {took} s");
    }
    let first = value(&router, &format!("smg_router_ttft_seconds_sum{{{labels}}}"));
    assert!(first < took - f64::from(STREAMS) * LASTS.as_secs_f64() * 0.93, "{first} in {took} s");
}

#[test]
fn more_cached_tokens_than_there_are_do_not_count() {
    let answers = [(10, 11), (10, 4_000_000_000_u64), (10, 10), (20, 5)];
    let turn = AtomicUsize::new(0);
    let worker = Worker::start(move |conn, _| {
        let (prompt, cached) = answers[turn.fetch_add(1, Ordering::SeqCst)];
        let body = format!(
            r#"{{"text":"a","meta_info":{{"prompt_tokens":{prompt},"completion_tokens":1,"cached_tokens":{cached}}}}}"#
        );
        conn.answer("200 OK", "Content-Type: application/json\r\n", body.as_bytes());
        true
    });
    let router = Router::start(&[worker.url()], &["--policy", "cache_aware"]);
    let counts = |ended: f64| {
        wait_value(&router, r#"smg_router_request_ends_total{end="complete"}"#, ended);
        ["smg_router_cached_tokens_total", "smg_router_prompt_tokens_total"]
            .map(|series| value(&router, series))
    };
    let mut seen = Vec::new();
    for ended in 1..=4 {
        assert_eq!(router.post("/generate", PLAIN).status(), 200);
        seen.push(counts(f64::from(ended)));
    }
    assert_eq!(seen, [[0.0, 0.0], [0.0, 0.0], [10.0, 10.0], [15.0, 30.0]]);
}

#[test]
fn an_open_breaker_shows_and_so_do_the_requests_that_it_turns_away() {
    let worker = Worker::start(|conn, _| {
        conn.answer("500 Internal Server Error", "", b"{}");
        true
    });
    let router = Router::start(&[worker.url()], &["--disable-retries", "--cb-failure-threshold", "2"]);
    let label = format!(r#"worker="{}""#, worker.url());
    let state = format!("smg_worker_cb_state{{{label}}}");
    assert_eq!(value(&router, &state), 0.0);
    assert_eq!(router.post("/generate", PLAIN).status(), 500);
    wait_value(&router, &format!("smg_worker_cb_consecutive_failures{{{label}}}"), 1.0);
    assert_eq!(router.post("/generate", PLAIN).status(), 500);
    wait_value(&router, &state, 1.0);
    let opened = format!(r#"smg_worker_cb_transitions_total{{{label},from="closed",to="open"}}"#);
    assert_eq!(value(&router, &opened), 1.0);
    assert_eq!(value(&router, &format!(r#"smg_worker_cb_outcomes_total{{{label},outcome="failure"}}"#)), 2.0);
    assert_eq!(router.post("/generate", PLAIN).status(), 503);
    assert_eq!(value(&router, r#"smg_router_sheds_total{reason="circuit_breakers_open"}"#), 1.0);
    let errors =
        format!(r#"smg_router_request_errors_total{{{},error_type="no_workers"}}"#, route("unknown"));
    assert_eq!(value(&router, &errors), 1.0);
}

#[test]
fn the_queue_shows_while_it_is_there_and_what_it_did_afterwards() {
    let (go, when) = channel::<()>();
    let when = Mutex::new(when);
    let worker = Worker::start(move |conn, _| {
        when.lock().expect("not poisoned").recv().expect("the test is there");
        conn.answer("200 OK", "", b"{}");
        true
    });
    let router = Router::start(&[worker.url()], &["--max-concurrent-requests", "1", "--queue-size", "1"]);
    let send = || {
        let mut client = router.client();
        client.send_post("/generate", "", PLAIN);
        client
    };
    let mut first = send();
    wait_until("the first to be served", || worker.count("POST") == 1);
    assert_eq!(value(&router, "smg_router_admitted_requests"), 1.0);
    let mut second = send();
    wait_value(&router, "smg_router_queue_depth", 1.0);
    assert_eq!(send().receive().status(), 429);
    assert_eq!(value(&router, r#"smg_http_rate_limit_total{result="rejected"}"#), 1.0);
    assert_eq!(value(&router, r#"smg_http_rate_limit_total{result="allowed"}"#), 1.0);
    assert_eq!(value(&router, r#"smg_router_sheds_total{reason="queue_full"}"#), 1.0);
    (0..2).for_each(|_| go.send(()).expect("the worker is there"));
    assert_eq!((first.receive().status(), second.receive().status()), (200, 200));
    wait_value(&router, "smg_router_admitted_requests", 0.0);
    assert_eq!(value(&router, "smg_router_queue_depth"), 0.0);
    assert_eq!(value(&router, r#"smg_http_rate_limit_total{result="allowed"}"#), 2.0);
    assert_eq!(value(&router, "smg_router_queue_wait_seconds_count"), 2.0);
}

#[test]
fn health_probes_are_counted_by_result() {
    let well = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&well);
    let worker = Worker::probed(move |conn, _| {
        conn.answer(if state.load(Ordering::SeqCst) { "200 OK" } else { "503 Unavailable" }, "", b"");
        true
    });
    let args = ["--health-check-interval-secs", "1", "--health-failure-threshold", "1"];
    let router = Router::start(&[worker.url()], &args);
    let checks = |result: &str| {
        let series = format!(r#"smg_worker_health_checks_total{{worker_type="regular",result="{result}","#);
        value(&router, &series)
    };
    wait_until("a good probe", || checks("success") > 0.0);
    assert_eq!(checks("failure"), 0.0);
    well.store(false, Ordering::SeqCst);
    wait_until("a bad probe", || checks("failure") > 0.0);
    wait_value(&router, &format!(r#"smg_worker_health{{worker="{}"}}"#, worker.url()), 0.0);
}

#[test]
fn a_model_is_a_label_only_if_a_worker_states_it() {
    let worker = Worker::probed(|conn, request| {
        let models = request.first.starts_with("GET /v1/models ");
        let body: &[u8] = if models { br#"{"object":"list","data":[{"id":"org/m"}]}"# } else { b"{}" };
        conn.answer("200 OK", "", body);
        true
    });
    let router = Router::start(&[worker.url()], &[]);
    wait_value(
        &router,
        r#"smg_worker_pool_size{worker_type="regular",connection_mode="http",model="org/m"}"#,
        1.0,
    );
    for model in ["org/m", "made-up-1", "made-up-2"] {
        let body = format!(r#"{{"model":"{model}","text":"x"}}"#);
        assert_eq!(router.post("/generate", body.as_bytes()).status(), 200);
    }
    let requests = |model: &str| {
        value(&router, &format!(r#"smg_router_requests_total{{{},streaming="false"}}"#, route(model)))
    };
    assert_eq!((requests("org/m"), requests("unknown")), (1.0, 2.0));
    assert!(!Client::get(&router.metrics, "/metrics").text().contains("made-up"));
}

#[test]
fn the_format_is_the_older_one_unless_open_metrics_is_asked_for() {
    let router = Router::start(&[dead_url()], &[]);
    let scrape = |accept: &str| {
        let mut client = Client::connect(&router.metrics);
        client.send(format!("GET /metrics HTTP/1.1\r\nHost: router\r\n{accept}\r\n"));
        client.receive()
    };
    let described = |kind: &str| format!("# TYPE smg_http_requests{kind} counter\n");
    for accept in ["", "Accept: */*\r\n", "Accept: text/plain;version=0.0.4\r\n", "Accept: text/html\r\n"] {
        let (page, text) = (scrape(accept), scrape(accept).text());
        assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"), "{accept}");
        assert!(text.contains(&described("_total")) && !text.contains("# EOF"), "{accept}: {text}");
        assert_eq!(page.header("vary"), Some("accept"));
    }
    let page =
        scrape("Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(page.header("content-type"), Some(kind));
    let text = page.text();
    assert!(text.contains(&described("")) && text.ends_with("\n# EOF\n"), "{text}");
    assert!(text.contains("\nsmg_http_requests_total{"), "{text}");
}

#[test]
fn no_series_is_there_twice_whatever_the_path() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--extra-endpoints", "/v1/audio/transcriptions"]);
    for path in ["/v1/rerank", "/rerank", "/v1/audio/transcriptions", "/generate", "/nowhere"] {
        for _ in 0..2 {
            router.post(path, PLAIN);
            router.get(path);
        }
    }
    let text = Client::get(&router.metrics, "/metrics").text();
    let series = text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series);
    let series: Vec<_> = series.filter(|series| !series.starts_with('#')).collect();
    assert_eq!(series.iter().collect::<HashSet<_>>().len(), series.len());
    let extra = r#"smg_http_requests_total{method="POST",path="/v1/audio/transcriptions"}"#;
    assert_eq!(value(&router, extra), 2.0);
    assert!(!text.contains("nowhere"));
}

// sgl-project/sglang#27591
#[test]
fn a_worker_that_is_gone_has_no_gauge() {
    let (kept, gone) = (Worker::fixed("{}"), Worker::fixed("{}"));
    let router = Router::start(&[kept.url(), gone.url()], &["--policy", "round_robin"]);
    for _ in 0..4 {
        assert_eq!(router.post("/generate", PLAIN).status(), 200);
    }
    let gauges = |url: &str| {
        let page = Client::get(&router.metrics, "/metrics").text();
        let names: HashSet<_> =
            page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge")).collect();
        let is_of =
            |line: &&str| line.contains(url) && names.contains(line.split('{').next().unwrap_or_default());
        page.lines().filter(is_of).count()
    };
    assert!(gauges(&gone.url()) > 3 && gauges(&kept.url()) > 3);
    let list = router.get("/workers").json();
    let id = list["workers"][1]["id"].as_str().expect("an id");
    let mut client = router.client();
    client.send(format!("DELETE /workers/{id} HTTP/1.1\r\nHost: router\r\n\r\n"));
    assert_eq!(client.receive().status(), 202);
    wait_until("its gauges to be gone", || gauges(&gone.url()) == 0);
    assert!(gauges(&kept.url()) > 3);
}
