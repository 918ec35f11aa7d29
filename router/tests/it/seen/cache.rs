//! A policy that follows prefixes, over engines that keep none.

use serde_json::{Value, json};

use super::{call, engine, in_mode};
use crate::common::legs::command_line;
use crate::common::{Log, Router, Worker, wait_for, wait_until};

const VAIN: &str = "workers keep no prefix cache, so cache_aware gains nothing with them";

/// Says of itself besides what SGLang says of its caches.
fn caching(mode: &str, radix_off: bool, decode_radix_on: bool) -> Worker {
    let mut info = in_mode(mode);
    info["disable_radix_cache"] = json!(radix_off);
    info["disaggregation_decode_enable_radix_cache"] = json!(decode_radix_on);
    engine(info)
}

fn started(prefill: &Worker, decode: &Worker, args: &[&str]) -> (Router, Log) {
    let line = command_line(&[prefill], &[decode], "none", args);
    Router::start_logged(&[], &line.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Once both are known and another question has been answered, so that what is to be told has been told.
fn told(router: &Router, log: &Log) -> Vec<String> {
    let is_known = |worker: &Value| worker["model_id"] == "m" && worker["state"] == "ready";
    wait_until("both to be known", || {
        let list = router.get("/workers").json();
        list["workers"].as_array().expect("a list").iter().filter(|worker| is_known(worker)).count() == 2
    });
    log.lines().into_iter().filter(|line| line.contains("keep no prefix cache")).collect()
}

#[test]
fn decode_engines_without_a_radix_cache_are_told_of_with_the_remedy_once() {
    let (prefill, decode) = (caching("prefill", false, false), caching("decode", false, false));
    let (router, log) = started(&prefill, &decode, &[]);
    let line = wait_for("the warning", || log.lines().into_iter().find(|line| line.contains(VAIN)));
    for part in [
        "WARN",
        "decode workers keep",
        "--decode-policy power_of_two",
        "--disaggregation-decode-enable-radix-cache",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    // Another one of the same kind is no news.
    let another = caching("decode", false, false);
    let body = json!({"url": another.url()}).to_string();
    assert_eq!(call(&router, "POST", "/workers", &body).status(), 202);
    let is_there = || router.get("/workers").json()["stats"]["decode_count"] == 2;
    wait_until("it to be there", || is_there() && router.get("/readiness").json()["healthy_workers"] == 3);
    assert_eq!(log.lines().iter().filter(|line| line.contains(VAIN)).count(), 1);
}

#[test]
fn who_has_a_cache_or_another_policy_is_not_warned() {
    for (decode_radix_on, args) in
        [(true, &[][..]), (false, &["--decode-policy", "power_of_two"]), (false, &["--policy", "random"])]
    {
        let (prefill, decode) = (caching("prefill", false, false), caching("decode", false, decode_radix_on));
        let (router, log) = started(&prefill, &decode, args);
        assert_eq!(told(&router, &log), Vec::<String>::new(), "{decode_radix_on} {args:?}");
    }
}

#[test]
fn a_policy_that_is_taken_over_later_is_told_of_too() {
    let (prefill, decode) = (caching("prefill", true, false), caching("decode", false, false));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("router.toml");
    let text = |policy: &str| {
        format!(
            "[policy]\nname = \"{policy}\"\n[disaggregation]\npd_disaggregation = true\nprefill = [\"{}\"]\ndecode = [\"{}\"]\n",
            prefill.url(),
            decode.url()
        )
    };
    std::fs::write(&file, text("random")).expect("a file");
    let (router, log) = Router::start_logged(&[], &["--config", file.to_str().expect("a path")]);
    assert_eq!(told(&router, &log), Vec::<String>::new());
    std::fs::write(&file, text("cache_aware")).expect("a file");
    router.signal("HUP");
    for role in ["prefill", "decode"] {
        let start = format!("{role} {VAIN}");
        wait_until(&format!("{role} to be told"), || log.lines().iter().any(|line| line.contains(&start)));
    }
}
