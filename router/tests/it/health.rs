//! Probes and load reports, and workers that die and come back.

use std::io::{BufRead, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Client, Conn, Latch, Message, Router, Worker, wait_until};
use crate::shutdown::Process;

const BODY: &[u8] = br#"{"text":"hello"}"#;

fn is_healthy(router: &Router, place: usize) -> bool {
    router.get("/workers").json()["workers"][place]["is_healthy"].as_bool().expect("a flag")
}

// sgl-project/sglang#9198
#[test]
fn a_worker_goes_out_by_failures_in_a_row_and_comes_back_by_successes_in_a_row() {
    // For each probe its answer, and whether the worker is in rotation after it.
    const COURSE: [(bool, bool); 9] = [
        (true, true),
        (false, true),
        (false, true),
        (true, true),
        (false, true),
        (false, true),
        (false, false),
        (true, false),
        (true, true),
    ];
    let (go, asked) = (Latch::default(), Arc::new(AtomicUsize::new(0)));
    let (when, count) = (go.clone(), Arc::clone(&asked));
    let worker = Worker::probed(move |conn, request| {
        if request.first.starts_with("GET /ready ") {
            let well = COURSE.get(count.fetch_add(1, Ordering::SeqCst)).is_none_or(|probe| probe.0);
            when.wait();
            conn.answer(if well { "200 OK" } else { "503 Busy" }, "", b"");
        } else {
            conn.answer("404 Not Found", "", b"");
        }
        true
    });
    let args = ["--health-check-interval-secs", "1", "--health-check-endpoint", "/ready"];
    let thresholds = ["--health-failure-threshold", "3", "--health-success-threshold", "2"];
    let router = Router::start(&[worker.url()], &[&args[..], &thresholds].concat());
    for (probe, (_, expected)) in COURSE.into_iter().enumerate() {
        // The next probe is on its way, so this one has been judged; and the next one has not been answered.
        wait_until("the probe", || asked.load(Ordering::SeqCst) == probe + 1);
        go.pass(1);
        wait_until("the next probe", || asked.load(Ordering::SeqCst) == probe + 2);
        assert_eq!(is_healthy(&router, 0), expected, "after probe {probe}");
        assert_eq!(router.get("/readiness").status(), if expected { 200 } else { 503 });
    }
}

#[test]
fn a_worker_that_hangs_with_a_request_is_probed_at_once_and_leaves() {
    let (go, hangs) = (Latch::default(), Arc::new(AtomicBool::new(false)));
    let (when, until) = (go.clone(), Arc::clone(&hangs));
    let worker = Worker::probed(move |conn, _| {
        if until.load(Ordering::SeqCst) {
            when.wait();
        }
        conn.answer("200 OK", "", b"{}");
        true
    });
    let health = ["--health-check-timeout-secs", "1", "--health-check-interval-secs", "3600"];
    let router = Router::start(
        &[worker.url()],
        &[&health[..], &["--health-failure-threshold", "2", "--first-byte-timeout-secs", "1"]].concat(),
    );
    hangs.store(true, Ordering::SeqCst);
    // One request is reason enough for the probes that the threshold wants.
    assert_eq!(router.post("/generate", BODY).status(), 504);
    wait_until("it to be given up", || !is_healthy(&router, 0));
    go.open();
    wait_until("it to be well again", || is_healthy(&router, 0));
}

#[test]
fn a_probe_that_takes_too_long_has_failed() {
    let (go, asked) = (Latch::default(), AtomicUsize::new(0));
    let when = go.clone();
    let worker = Worker::probed(move |conn, request| {
        // The first one is answered.
        if request.first.starts_with("GET /health ") && asked.fetch_add(1, Ordering::SeqCst) > 0 {
            when.wait();
        }
        conn.answer("200 OK", "", b"{}");
        true
    });
    let times = ["--health-check-timeout-secs", "1", "--health-check-interval-secs", "1"];
    let router = Router::start(&[worker.url()], &[&times[..], &["--health-failure-threshold", "1"]].concat());
    assert!(is_healthy(&router, 0));
    wait_until("the probe to be given up", || !is_healthy(&router, 0));
    let ready = router.get("/readiness");
    assert!(ready.status() == 503 && ready.text().contains("healthy"), "{}", ready.text());
    go.open();
    wait_until("it to be well again", || router.get("/readiness").status() == 200);
}

#[test]
fn without_probes_nobody_is_unhealthy() {
    let worker = Worker::probed(|conn, _| {
        conn.answer("500", "", b"");
        true
    });
    let args = ["--disable-health-check", "--health-failure-threshold", "1", "--disable-retries"];
    let router = Router::start(&[worker.url()], &args);
    for _ in 0..3 {
        assert_eq!(router.post("/generate", BODY).status(), 500);
    }
    assert!(is_healthy(&router, 0));
    assert!(worker.seen().iter().all(|request| request.first.starts_with("POST")));
}

fn well(conn: &mut Conn, _: &Message) -> bool {
    conn.answer("200 OK", "", b"{}");
    true
}

// sgl-project/sglang#7028
#[test]
fn when_all_workers_have_died_the_router_says_so_and_recovers_without_help() {
    let mut workers: Vec<Worker> = (0..2).map(|_| Worker::start(well)).collect();
    let urls: Vec<String> = workers.iter().map(Worker::url).collect();
    let args = ["--policy", "round_robin", "--cb-timeout-duration-secs", "1"];
    let (mut router, log) = Router::start_logged(&urls, &args);
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (over, address) = (Arc::clone(&over), router.address.clone());
            std::thread::spawn(move || {
                let mut statuses = Vec::new();
                while !over.load(Ordering::SeqCst) {
                    let mut client = Client::connect(&address);
                    statuses.push(client.post("/generate", "", BODY).status());
                    std::thread::sleep(Duration::from_millis(10));
                }
                statuses
            })
        })
        .collect();
    wait_until("traffic", || workers.iter().all(|worker| worker.count("POST") > 5));
    workers.iter().for_each(Worker::kill);
    wait_until("the deaths to be noticed", || router.get("/readiness").status() == 503);
    router.post("/generate", BODY).assert_refused(503, "no_available_workers");
    workers = workers.iter().map(|worker| Worker::start_at(&worker.address, well)).collect();
    wait_until("the workers to be welcomed", || router.get("/readiness").status() == 200);
    wait_until("traffic again", || workers.iter().any(|worker| worker.count("POST") > 5));
    assert_eq!(router.post("/generate", BODY).status(), 200);
    over.store(true, Ordering::SeqCst);
    let statuses: Vec<u16> =
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect();
    assert!(statuses.iter().all(|status| [200, 502, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&503), "the outage was seen");
    router.signal("TERM");
    assert!(router.wait().success());
    drop(router);
    assert!(log.into_lines().iter().all(|line| !line.contains("panicked")));
}

// ai-dynamo/dynamo#11646
#[test]
fn a_worker_that_died_is_not_preferred_for_what_it_once_held() {
    let workers: Vec<Worker> = (0..2).map(|_| Worker::start(well)).collect();
    let urls: Vec<String> = workers.iter().map(Worker::url).collect();
    let args = ["--decision-headers", "--health-success-threshold", "1", "--policy", "cache_aware"];
    let router = Router::start(&urls, &args);
    let ask = |topic: &str| {
        let answer = router.post("/generate", format!("{{\"text\":\"{}\"}}", topic.repeat(60)).as_bytes());
        assert_eq!(answer.status(), 200, "{topic}");
        let place: usize = answer.header("x-router-worker").expect("a place").parse().expect("a number");
        (place, answer.header("x-router-reason").expect("a reason").to_owned())
    };
    let owner = ask("one ").0;
    // Another prefix of the same owner.
    let other = (0..50).map(|number| format!("two{number} ")).find(|topic| ask(topic).0 == owner);
    let other = other.expect("a draw for the owner");
    assert_eq!(ask("one "), (owner, "cache_hit".to_owned()));

    workers[owner].kill();
    for _ in 0..10 {
        assert_eq!(ask("one ").0, 1 - owner, "no request fails, and all go to the survivor");
    }
    wait_until("the death to be noticed", || !is_healthy(&router, owner));
    let _back = Worker::start_at(&workers[owner].address, well);
    wait_until("the return to be noticed", || is_healthy(&router, owner));
    assert_eq!(ask("one "), (1 - owner, "cache_hit".to_owned()), "the survivor holds it now");
    assert_ne!(ask(&other).1, "cache_hit", "nobody does");
}

// What says nothing of a worker must not take it away: with one router's own trouble all of them would go at once.
#[test]
fn what_this_machine_lacks_is_no_fault_of_a_worker() {
    // Which has no connection to be kept.
    let worker = Worker::probed(|conn, _| {
        conn.answer("200 OK", "Connection: close\r\n", b"{}");
        false
    });
    let url = worker.url();
    let args =
        ["--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--worker-urls", &url];
    let (mut process, said) = Process::start("ulimit -n 64;", &args);
    let mut log = process.stderr().lines();
    let address = said["listening"].as_str().expect("a URL").trim_start_matches("http://").to_owned();
    let mut client = Client::connect(&address);
    let mut ask = |method: &str, path: &str, body: &[u8]| {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        client.send([head.as_bytes(), body].concat());
        client.receive()
    };
    assert_eq!(ask("GET", "/readiness", b"").status(), 200);
    // More than there can be: whichever file is closed, one of them takes its place.
    let crowd: Vec<_> = (0..200).map(|_| TcpStream::connect(&address).expect("it waits")).collect();
    let cannot = log.by_ref().map_while(Result::ok).filter(|line| line.contains("cannot be probed"));
    assert_eq!(cannot.take(3).count(), 3, "it says so");
    let workers = ask("GET", "/workers", b"").json();
    assert_eq!(workers["workers"][0]["is_healthy"], true, "{workers}");
    ask("POST", "/generate", BODY).assert_refused(502, "upstream_connect_failed");
    assert_eq!(ask("GET", "/readiness", b"").status(), 200);
    drop(crowd);
    wait_until("files to be free", || ask("POST", "/generate", BODY).status() == 200);
}

/// Tells of its load what a test says, and is slow to answer requests.
fn reporting(go: &Latch, report: Option<(&'static str, &'static str)>) -> Worker {
    let go = go.clone();
    Worker::start(move |conn, request| {
        let is_question = request.first.starts_with("GET ");
        match (is_question, report) {
            (false, _) => {
                go.wait();
                conn.answer("200 OK", "", b"{}");
            }
            (true, Some((status, body))) => conn.answer(status, "", body.as_bytes()),
            (true, None) => {
                let _ = conn.stream.read(&mut [0]);
                return false;
            }
        }
        true
    })
}

// sgl-project/sglang#32070, vllm-project/router#178
#[test]
fn a_worker_whose_load_report_is_bad_gets_its_fair_share() {
    const REQUESTS: usize = 80;
    const GOOD: (&str, &str) = (
        "200 OK",
        r#"{"loads":[{"num_running_reqs":9,"num_waiting_reqs":9,"num_total_tokens":90000,"token_usage":0.5}]}"#,
    );
    let bad = [
        Some(("404 Not Found", "{}")),
        Some(("500 Internal Server Error", GOOD.1)),
        Some(("200 OK", "garbage")),
        Some(("200 OK", r#"{"loads":[]}"#)),
        Some(("200 OK", r#"[{"dp_rank":0,"num_reqs":-1,"num_waiting_reqs":0,"num_tokens":-1}]"#)),
        Some((
            "200 OK",
            r#"{"loads":[{"num_running_reqs":0,"num_waiting_reqs":0,"num_total_tokens":1e300}]}"#,
        )),
        None,
    ];
    for report in bad {
        let go = Latch::default();
        let mut workers = vec![reporting(&go, report)];
        workers.extend((0..3).map(|_| reporting(&go, Some(GOOD))));
        let urls: Vec<String> = workers.iter().map(Worker::url).collect();
        let args = ["--policy", "power_of_two", "--load-poll-interval-secs", "20"];
        let router = Router::start(&urls, &args);
        wait_until("all to be asked", || workers.iter().all(|worker| worker.count("GET /v1/loads") > 0));
        let mut clients = Vec::new();
        for _ in 0..REQUESTS {
            let mut client = router.client();
            client.send_post("/generate", "", BODY);
            clients.push(client);
        }
        let shares = || workers.iter().map(|worker| worker.count("POST")).collect::<Vec<_>>();
        wait_until("all to be held", || shares().iter().sum::<usize>() == REQUESTS);
        assert!(shares().iter().all(|share| (12..=28).contains(share)), "{report:?}: {:?}", shares());
        go.open();
        assert!(clients.iter_mut().all(|client| client.receive().status() == 200));
    }
}
