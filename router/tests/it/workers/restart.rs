//! A worker is started anew behind the same URL: what it held is gone, and must not be believed in.

use serde_json::json;

use super::{Engine, add_ready, call, prompt, router, shown};
use crate::common::{Router, wait_until};

const POLICY: [&str; 4] = ["--policy", "cache_aware", "--decision-headers", "--disable-retries"];

/// A turn of health within seconds.
const WATCHFUL: [&str; 6] = [
    "--health-check-interval-secs",
    "1",
    "--health-failure-threshold",
    "1",
    "--health-success-threshold",
    "1",
];

/// Asks often, and never finds a worker unhealthy.
const LENIENT: [&str; 4] = ["--health-check-interval-secs", "1", "--health-failure-threshold", "1000"];

/// What a worker says of which start of it this is.
#[derive(Debug, Clone, Copy)]
enum Start {
    Named(&'static str),
    /// By the time of it.
    At(f64),
    /// It describes itself, but not that.
    Unnamed,
    /// It cannot say just now.
    Unsaid,
}

fn describe(engine: &Engine, start: Start) {
    let told = match start {
        Start::Named(name) => json!({"dp_size": 2, "instance_id": name}),
        Start::At(time) => json!({"dp_size": 2, "startup_time": time}),
        Start::Unnamed => json!({"dp_size": 2}),
        Start::Unsaid => return engine.say("/server_info", "503 Service Unavailable", ""),
    };
    engine.say("/server_info", "200 OK", &told.to_string());
}

/// A worker of which this start is known, and whose answer to a prompt is believed to come from its cache.
fn primed(start: Start, args: &[&str]) -> (Engine, Router, String) {
    let engine = Engine::start();
    describe(&engine, start);
    let router = router(&[&POLICY, args].concat());
    let id = add_ready(&router, &engine.url());
    assert_eq!(predicted(&router), Some(0));
    assert!(predicted(&router) > Some(0), "its cache is believed in");
    (engine, router, id)
}

/// Waits until the worker's cache is taken for empty. Nothing is sent before that, as what is sent just then may be noted
/// as cached right after.
fn await_emptied(router: &Router) {
    let chars = || router.metric("smg_worker_index_chars{");
    wait_until("its cache to be taken for empty", || chars().is_none_or(|chars| chars == 0.0));
    wait_until("it to serve again", || predicted(router) == Some(0));
}

/// Tokens of the prompt that are believed to be in the worker's cache; nothing if it was not served.
fn predicted(router: &Router) -> Option<u64> {
    let answer = router.post("/generate", prompt("topic").as_bytes());
    let told = answer.header("x-router-predicted-tokens").filter(|_| answer.status() == 200)?;
    Some(told.parse().expect("a number"))
}

/// Ends the worker and starts it again, after `meanwhile`.
fn restart(engine: Engine, start: Start, meanwhile: impl FnOnce()) -> Engine {
    engine.worker.kill();
    meanwhile();
    let anew = Engine::start_at(&engine.worker.address);
    describe(&anew, start);
    anew
}

// ai-dynamo/dynamo#11646
#[test]
fn what_a_worker_held_that_was_out_of_rotation_is_forgotten_whatever_it_says() {
    use Start::{Named, Unnamed, Unsaid};
    for (before, after) in [(Named("a"), Named("b")), (Named("a"), Named("a")), (Unnamed, Unsaid)] {
        let (engine, router, id) = primed(before, &WATCHFUL);
        let is_healthy = || shown(&router, &id)["is_healthy"] == true;
        let _anew = restart(engine, after, || wait_until("the death to be noticed", || !is_healthy()));
        wait_until("the return to be noticed", is_healthy);
        assert_eq!(predicted(&router), Some(0), "{before:?} {after:?}");
    }
}

// ai-dynamo/dynamo#11646
#[test]
fn a_worker_where_nobody_was_for_a_moment_is_believed_if_it_is_still_the_same() {
    use Start::{At, Named, Unnamed, Unsaid};
    for (before, after, is_kept) in [
        (Named("a"), Named("a"), true),
        (At(1.5), At(1.5), true),
        (Named("a"), Named("b"), false),
        (At(1.5), At(2.5), false),
        (Named("a"), Unnamed, false),
        (Named("a"), Unsaid, false),
        (Unnamed, Unnamed, false),
    ] {
        let (engine, router, id) = primed(before, &LENIENT);
        let failures = format!(
            "smg_worker_health_checks_total{{worker_type=\"regular\",result=\"failure\",worker=\"{}\"}}",
            engine.url()
        );
        let noticed = || wait_until("a probe to fail", || router.metric(&failures) > Some(0.0));
        let anew = restart(engine, after, noticed);
        // The probe after the one that asked comes when what was found out is known.
        wait_until("it to be asked", || anew.asked("/server_info") > 0);
        let probes = anew.asked("/health");
        wait_until("the next probe", || anew.asked("/health") > probes);
        let is_believed = predicted(&router) > Some(0);
        assert_eq!(
            (is_believed, &shown(&router, &id)["is_healthy"]),
            (is_kept, &json!(true)),
            "{before:?} {after:?}"
        );
    }
}

#[test]
fn a_request_that_finds_nobody_makes_the_router_ask_who_comes_next() {
    // No probe comes by itself.
    let args = ["--health-check-interval-secs", "600", "--health-failure-threshold", "1000"];
    let (engine, router, _) = primed(Start::Named("a"), &args);
    let refused = || {
        wait_until("a connection to be refused", || {
            let answer = router.post("/generate", prompt("topic").as_bytes());
            answer.header("x-router-error-code") == Some("upstream_connect_failed")
        });
    };
    let _anew = restart(engine, Start::Named("b"), refused);
    await_emptied(&router);
}

/// A worker that does not tell its models is asked again every second.
const ALWAYS_ASKED: (&str, &str) = ("/v1/models", "");

/// A worker that tells everything is asked again after this.
const OFTEN: [&str; 2] = ["--worker-info-interval-secs", "0.2"];

#[test]
fn a_restart_that_nobody_noticed_is_found_by_what_the_worker_says_of_itself() {
    for tells_models in [true, false] {
        let engine = Engine::start();
        if !tells_models {
            engine.say(ALWAYS_ASKED.0, ALWAYS_ASKED.1, "");
        }
        describe(&engine, Start::At(1.0));
        let args: &[&str] = if tells_models { &OFTEN } else { &[] };
        let router = router(&[&POLICY, args].concat());
        add_ready(&router, &engine.url());
        predicted(&router);
        let asked = engine.asked("/server_info");
        wait_until("it to be asked again", || engine.asked("/server_info") > asked + 1);
        assert!(predicted(&router) > Some(0), "the same one, so its cache is believed in");
        describe(&engine, Start::At(2.0));
        await_emptied(&router);
        assert!(predicted(&router) > Some(0), "and it fills again");
    }
}

#[test]
fn a_request_that_is_lost_makes_the_router_ask_whether_it_is_still_the_same() {
    // Neither a probe nor a question comes by itself.
    let args = ["--health-check-interval-secs", "600", "--worker-info-interval-secs", "600"];
    let (engine, router, _) = primed(Start::At(1.0), &args);
    describe(&engine, Start::At(2.0));
    assert!(predicted(&router) > Some(0), "nobody has noticed");
    let refused = call(&router, "POST", "/generate", r#"{"text":"lose"}"#);
    assert_eq!(refused.header("x-router-error-code"), Some("upstream_connection_lost"));
    await_emptied(&router);
    assert!(predicted(&router) > Some(0), "and it fills again");
}

#[test]
fn a_worker_that_cannot_say_who_it_is_just_now_is_taken_for_the_same() {
    let engine = Engine::start();
    engine.say(ALWAYS_ASKED.0, ALWAYS_ASKED.1, "");
    engine.say("/model_info", "200 OK", r#"{"model_path":"/m"}"#);
    describe(&engine, Start::Named("a"));
    let router = router(&POLICY);
    let id = add_ready(&router, &engine.url());
    predicted(&router);
    describe(&engine, Start::Unsaid);
    let asked = engine.asked("/server_info");
    wait_until("it to be asked twice", || engine.asked("/server_info") > asked + 2);
    assert!(predicted(&router) > Some(0));
    assert_eq!(shown(&router, &id)["metadata"]["labels"]["dp_size"], "2", "what was known stays");
    describe(&engine, Start::Named("a"));
    let asked = engine.asked("/server_info");
    wait_until("it to be asked twice", || engine.asked("/server_info") > asked + 2);
    assert!(predicted(&router) > Some(0));
}
