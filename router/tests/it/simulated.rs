//! The router in front of simulated workers that fail: as engines, and as canned answers.

mod loads;
mod pairs;

use simworker::config::{HostConfig, Mode, Roles, WatchConfig, WorkerConfig};
use simworker::fault::Assigned;
use simworker::host::Host;
use simworker_core::preset;

use crate::common::{Client, Message, Router, wait_until};

/// Both kinds of workers; the engines run fast.
const MODES: [Mode; 2] = [Mode::Engine, Mode::Instant { interval_ns: 0 }];
const SPEED: f64 = 50.0;

const COMPLETIONS: &str = "/v1/completions";
const JSON: &str = "Content-Type: application/json\r\n";
const PLAIN: &[u8] = br#"{"model":"mock","prompt":"one two three","max_tokens":4}"#;
const STREAM: &[u8] = br#"{"model":"mock","prompt":"one two three","max_tokens":20,"stream":true}"#;

/// In turn, and without waiting long.
const QUICK: [&str; 6] =
    ["--policy", "round_robin", "--retry-initial-backoff-ms", "1", "--retry-max-backoff-ms", "2000"];

/// A turn of health within seconds.
const WATCHFUL: [&str; 6] = [
    "--health-check-interval-secs",
    "1",
    "--health-failure-threshold",
    "1",
    "--health-success-threshold",
    "1",
];

/// Simulated workers with a control port.
struct Fleet(Host);

impl Fleet {
    fn start(workers: u32, mode: Mode, speed: f64, faults: &[&str]) -> Self {
        Self::of(HostConfig { workers, speed, mode, ..config() }, faults)
    }

    /// As this says, but with these faults.
    fn of(config: HostConfig, faults: &[&str]) -> Self {
        let faults = faults.iter().map(|text| Assigned::parse(text).expect("a fault")).collect();
        let watch = WatchConfig { faults, ..config.watch };
        Self(Host::start(&HostConfig { watch, ..config }).expect("free ports"))
    }

    /// A router in front of them that knows their model.
    fn router(&self, args: &[&str]) -> Router {
        Self::known(Router::start(&self.0.urls().collect::<Vec<_>>(), args))
    }

    fn known(router: Router) -> Router {
        wait_until("the models to be known", || {
            let list = router.get("/workers").json();
            list["workers"].as_array().expect("a list").iter().all(|worker| worker["model_id"] == "mock")
        });
        router
    }

    /// Asks the control port.
    fn control(&self, method: &str, path: &str, body: &str) -> serde_json::Value {
        let mut client = Client::connect(&self.0.control().expect("it has one").to_string());
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let answer = client.receive();
        assert_eq!(answer.status(), 200, "{method} {path}: {}", answer.text());
        answer.json()
    }

    /// The requests to this path that a worker saw, oldest first.
    fn seen(&self, worker: usize, path: &str) -> Vec<serde_json::Value> {
        let seen = self.control("GET", &format!("/workers/{worker}/seen"), "");
        let requests = seen["requests"].as_array().unwrap_or_else(|| panic!("no requests in {seen}"));
        let to =
            |request: &&serde_json::Value| request["path"].as_str().is_some_and(|to| to.starts_with(path));
        requests.iter().filter(to).cloned().collect()
    }
}

/// One worker on a free port, with a control port.
fn config() -> HostConfig {
    let (host, preset) = ("127.0.0.1".to_owned(), preset("a100-80g-llama3-8b").expect("a preset"));
    HostConfig {
        workers: 1,
        port: 0,
        speed: SPEED,
        worker: WorkerConfig::mock(preset),
        roles: Roles::default(),
        mode: Mode::Engine,
        watch: WatchConfig { control: Some((host.clone(), 0)), faults: Vec::new(), seed: 1 },
        host,
    }
}

fn is_healthy(router: &Router, place: usize) -> bool {
    router.get("/workers").json()["workers"][place]["is_healthy"].as_bool().expect("a flag")
}

/// The number in a header field; 0 without it.
fn number(answer: &Message, field: &str) -> usize {
    answer.header(field).map_or(0, |text| text.parse().expect("a number"))
}

#[test]
fn a_worker_that_asks_for_time_is_passed_over() {
    for mode in MODES {
        let fleet = Fleet::start(2, mode, SPEED, &["0:status=503,retry-after=60"]);
        let router = fleet.router(&[&QUICK[..], &["--decision-headers"]].concat());
        let answers: Vec<_> = (0..10).map(|_| router.post(COMPLETIONS, PLAIN)).collect();
        for answer in &answers {
            assert_eq!((answer.status(), answer.header("x-router-worker")), (200, Some("1")), "{mode:?}");
            assert!(answer.json()["choices"].is_array(), "{mode:?}: {}", answer.text());
        }
        let again = answers.iter().filter(|answer| number(answer, "x-router-attempts") == 2).count();
        let refused = fleet.seen(0, COMPLETIONS);
        assert!(again > 0 && refused.len() == again, "{mode:?}: {again} and {refused:?}");
        assert!(refused.iter().all(|request| request["status"] == 503), "{mode:?}: {refused:?}");
        assert!(is_healthy(&router, 0), "{mode:?}: it is busy, not sick");
    }
}

#[test]
fn a_worker_that_is_alone_is_waited_for_as_long_as_it_says() {
    for mode in MODES {
        let fleet = Fleet::start(1, mode, SPEED, &["status=503,times=1,retry-after=1"]);
        let answer = fleet.router(&QUICK).post(COMPLETIONS, PLAIN);
        assert_eq!((answer.status(), number(&answer, "x-router-attempts")), (200, 2), "{mode:?}");
        let tries = fleet.seen(0, COMPLETIONS);
        let arrived = |at: usize| tries[at]["arrived"].as_f64().expect("a time");
        assert!(arrived(1) - arrived(0) >= 0.99, "{mode:?}: {tries:?}");
    }
}

#[test]
fn a_stream_that_a_worker_resets_is_broken_for_the_client() {
    for mode in MODES {
        let fleet = Fleet::start(2, mode, SPEED, &["delay-chunk=100ms", "reset=1chunks"]);
        let router = fleet.router(&QUICK);
        let mut client = router.client();
        client.send_post(COMPLETIONS, JSON, STREAM);
        assert_eq!(client.reader.head().expect("a head").expect("not the end").status(), 200, "{mode:?}");
        let mut seen = Vec::new();
        let end = loop {
            match client.reader.chunk() {
                Ok(chunk) if chunk.is_empty() => break None,
                Ok(chunk) => seen.extend(chunk),
                Err(error) => break Some(error),
            }
        };
        let seen = String::from_utf8(seen).expect("text");
        assert!(end.is_some(), "{mode:?}: a clean end after {seen}");
        assert!(seen.contains("data: {") && !seen.contains("[DONE]"), "{mode:?}: {seen}");
        wait_until("the loads to be released", || router.loads() == [0, 0]);
        let tries = fleet.seen(0, COMPLETIONS).len() + fleet.seen(1, COMPLETIONS).len();
        assert_eq!(tries, 1, "{mode:?}: what has begun is not tried again");
    }
}

#[test]
fn a_worker_that_refuses_connections_costs_nothing_and_is_welcomed_back() {
    for mode in MODES {
        let fleet = Fleet::start(2, mode, SPEED, &[]);
        let router = fleet.router(&[&QUICK[..], &WATCHFUL, &["--decision-headers"]].concat());
        let ask = || {
            let answer = router.post(COMPLETIONS, PLAIN);
            assert_eq!(answer.status(), 200, "{mode:?}: {}", answer.text());
            number(&answer, "x-router-worker")
        };
        assert_eq!((0..4).map(|_| ask()).sum::<usize>(), 2, "{mode:?}: both serve");
        fleet.control("PATCH", "/workers/0/faults", r#"{"refuse":"all"}"#);
        assert!((0..20).all(|_| ask() == 1), "{mode:?}");
        wait_until("the worker to be out", || !is_healthy(&router, 0));
        assert!((0..4).all(|_| ask() == 1), "{mode:?}");
        fleet.control("DELETE", "/workers/0/faults", "");
        wait_until("the worker to be back", || is_healthy(&router, 0));
        assert_eq!((0..4).map(|_| ask()).sum::<usize>(), 2, "{mode:?}: both serve again");
    }
}

#[test]
fn a_head_that_is_late_is_given_up() {
    for mode in MODES {
        let fleet = Fleet::start(1, mode, SPEED, &["delay-head=60s"]);
        let router = fleet.router(&["--first-byte-timeout-secs", "0.3"]);
        for body in [PLAIN, STREAM] {
            router.post(COMPLETIONS, body).assert_refused(504, "upstream_first_byte_timeout");
        }
        wait_until("the worker to be left", || {
            let seen = fleet.seen(0, COMPLETIONS);
            seen.len() == 2 && seen.iter().all(|request| request["end"] == "client_left")
        });
        assert_eq!(router.loads(), [0], "{mode:?}");
    }
}

// hyperium/hyper#2136: a connection that is closed without a word is found out by the request that uses it.
#[test]
fn workers_that_close_after_each_answer_lose_no_request() {
    const CLIENTS: usize = 3;
    for mode in MODES {
        let fleet = Fleet::start(2, mode, SPEED, &["close-after-answer=on"]);
        let router = fleet.router(&QUICK);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut client = router.client();
                std::thread::spawn(move || {
                    (0..300 / CLIENTS)
                        .map(|_| client.post(COMPLETIONS, JSON, PLAIN).status())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for client in clients {
            let statuses = client.join().expect("a client");
            assert!(statuses.iter().all(|status| *status == 200), "{mode:?}: {statuses:?}");
        }
        for worker in 0..2 {
            let opened = fleet.control("GET", "/workers", "")[worker]["totals"]["connections_opened"].clone();
            assert!(opened.as_u64() > Some(50), "{mode:?}: they did close: {opened}");
            let state = format!(
                r#"smg_worker_cb_consecutive_failures{{worker="http://{}"}}"#,
                fleet.0.addresses()[worker]
            );
            assert_eq!(router.metric(&state), Some(0.0), "{mode:?}: it is no fault");
        }
    }
}

// ai-dynamo/dynamo#11646
#[test]
fn a_worker_that_was_started_anew_is_believed_to_hold_nothing() {
    let text = "a prompt that is long enough to be remembered ".repeat(40);
    let prompt = format!(r#"{{"model":"mock","prompt":"{text}","max_tokens":4}}"#);
    for mode in MODES {
        let fleet = Fleet::start(1, mode, SPEED, &[]);
        let args = [&WATCHFUL[..], &["--policy", "cache_aware", "--decision-headers"]].concat();
        let router = fleet.router(&args);
        let ask = || {
            let answer = router.post(COMPLETIONS, prompt.as_bytes());
            assert_eq!(answer.status(), 200, "{mode:?}: {}", answer.text());
            let cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
            let is_hit = answer.header("x-router-reason") == Some("cache_hit");
            (is_hit, number(&answer, "x-router-predicted-tokens") > 0, cached.unwrap_or(0) > 0)
        };
        // A canned answer has nothing to say of a cache.
        let engine = mode == Mode::Engine;
        assert_eq!(ask(), (false, false, false), "{mode:?}");
        assert_eq!(ask(), (true, true, engine), "{mode:?}");
        fleet.control("POST", "/workers/0/restart?down=3s", "");
        wait_until("the worker to be out", || !is_healthy(&router, 0));
        wait_until("the worker to be back", || is_healthy(&router, 0));
        assert_eq!(ask(), (false, false, false), "{mode:?}: its cache is gone, and so is the belief");
        assert_eq!(ask(), (true, true, engine), "{mode:?}: and both fill again");
    }
}

// Health is as by default, so that no probe comes near: a process that is back at once is found by what it says.
#[test]
fn a_worker_that_is_back_at_once_is_believed_to_hold_nothing() {
    let text = "a prompt that is long enough to be remembered ".repeat(40);
    let body = |stream: bool, tokens: u32| {
        format!(r#"{{"model":"mock","prompt":"{text}","max_tokens":{tokens},"stream":{stream}}}"#)
    };
    // A stream that is broken by it makes the router ask; where nothing runs it asks by itself.
    for (is_busy, args) in [(true, &[][..]), (false, &["--worker-info-interval-secs", "0.2"])] {
        let fleet = Fleet::start(1, Mode::Engine, if is_busy { 1.0 } else { SPEED }, &[]);
        let router = fleet.router(&[&["--policy", "cache_aware", "--decision-headers"], args].concat());
        let predicted = || {
            let answer = router.post(COMPLETIONS, body(false, 4).as_bytes());
            (answer.status() == 200).then(|| number(&answer, "x-router-predicted-tokens"))
        };
        assert_eq!(predicted(), Some(0));
        let mut client = router.client();
        if is_busy {
            client.send_post(COMPLETIONS, JSON, body(true, 4000).as_bytes());
            assert_eq!(client.reader.head().expect("a head").expect("not the end").status(), 200);
        }
        assert!(predicted() > Some(0), "busy: {is_busy}");
        fleet.control("POST", "/workers/0/restart", "");
        wait_until("its cache to be taken for empty", || predicted() == Some(0));
    }
}

/// What a prompt of this prefix group was predicted to find in the only worker's cache, and what it found.
fn predicted_and_found(router: &Router, group: usize, serial: usize) -> (usize, usize) {
    let prompt = format!("{} question {serial}", format!("group {group} says much; ").repeat(150));
    let body = serde_json::json!({"model": "mock", "prompt": prompt, "max_tokens": 2}).to_string();
    let answer = router.post(COMPLETIONS, body.as_bytes());
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let found = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    (number(&answer, "x-router-predicted-tokens"), found as usize)
}

#[test]
fn a_cache_that_was_flushed_behind_the_routers_back_is_soon_not_believed_in() {
    const GROUPS: usize = 30;
    let fleet = Fleet::start(1, Mode::Engine, SPEED, &[]);
    let router = fleet.router(&["--policy", "cache_aware", "--decision-headers"]);
    for serial in 0..2 * GROUPS {
        let (predicted, found) = predicted_and_found(&router, serial % GROUPS, serial);
        let is_known = serial >= GROUPS;
        assert_eq!(
            (predicted > 300, found > 300),
            (is_known, is_known),
            "{predicted} and {found} of {serial}"
        );
    }
    let url = fleet.0.urls().next().expect("it has one");
    let mut worker = Client::connect(url.trim_start_matches("http://"));
    worker.send("POST /flush_cache HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(worker.receive().status(), 200, "it was idle");
    // Each new group is followed by one that was computed since, whose hits must not hide that the others are gone.
    let mut wrong = Vec::new();
    for serial in 0..40 {
        let group = if serial % 2 == 0 { serial / 2 } else { serial / 4 };
        let (predicted, found) = predicted_and_found(&router, group, 1000 + serial);
        if predicted > 300 && found < 100 {
            wrong.push(serial);
        }
    }
    assert!(wrong.len() >= 8 && wrong.iter().all(|serial| *serial < 20), "{wrong:?}");
}

/// The fleet's shares of requests that all run at once.
fn shares(fleet: &Fleet, router: &Router, requests: usize) -> Vec<usize> {
    // Long prompts, so that a worker's requests weigh alike however fast it is with their output.
    let prompt = "one two three ".repeat(400);
    let body = format!(r#"{{"model":"mock","prompt":"{prompt}","max_tokens":4000,"stream":true}}"#);
    let mut clients: Vec<Client> = (0..requests)
        .map(|_| {
            let mut client = router.client();
            client.send_post(COMPLETIONS, JSON, body.as_bytes());
            // One after the other, so that reports may come in between.
            std::thread::sleep(std::time::Duration::from_millis(10));
            client
        })
        .collect();
    let mut shares = vec![0; fleet.0.addresses().len()];
    for client in &mut clients {
        let head = client.reader.head().expect("a head").expect("not the end");
        assert_eq!(head.status(), 200);
        shares[number(&head, "x-router-worker")] += 1;
    }
    shares
}

const REQUESTS: usize = 80;

/// Answers at the speed of a real one, so that requests stay.
const SLOW: [Mode; 2] = [Mode::Engine, Mode::Instant { interval_ns: 20_000_000 }];

// sgl-project/sglang#32070, vllm-project/router#178
#[test]
fn a_load_that_is_no_load_neither_draws_requests_nor_keeps_them_away() {
    const BUSY: &str =
        r#"{"num_running_reqs":9,"num_waiting_reqs":9,"num_total_reqs":18,"num_total_tokens":90000}"#;
    for mode in SLOW {
        for lie in ["garbage", "negative", "hang", "500", "404"] {
            let mut faults = vec![format!("0:loads={lie}")];
            faults.extend((1..4).map(|worker| format!("{worker}:loads={BUSY}")));
            let fleet = Fleet::start(4, mode, 1.0, &faults.iter().map(String::as_str).collect::<Vec<_>>());
            let args = ["--policy", "power_of_two", "--load-poll-interval-secs", "0.5", "--decision-headers"];
            let router = fleet.router(&args);
            wait_until("all to be asked", || {
                (0..4).all(|worker| !fleet.seen(worker, "/v1/loads").is_empty())
            });
            let shares = shares(&fleet, &router, REQUESTS);
            assert!((10..=30).contains(&shares[0]), "{mode:?}, {lie}: {shares:?}");
        }
    }
}

// It is believed: nothing tells it from an idle one. Two are drawn, so that it gets no more than those that drew it.
#[test]
fn a_load_that_stays_at_nothing_does_not_draw_everything() {
    for mode in SLOW {
        let fleet = Fleet::start(4, mode, 1.0, &["0:loads=frozen"]);
        let args = ["--policy", "power_of_two", "--load-poll-interval-secs", "0.1", "--decision-headers"];
        let router = fleet.router(&args);
        wait_until("all to be asked", || (0..4).all(|worker| !fleet.seen(worker, "/v1/loads").is_empty()));
        let shares = shares(&fleet, &router, REQUESTS);
        assert!(shares[0] <= REQUESTS * 3 / 4, "{mode:?}: {shares:?}");
        assert!(shares[1..].iter().all(|share| *share > 0), "{mode:?}: {shares:?}");
    }
}
