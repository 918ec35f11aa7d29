//! Recordings during which much changes: pairs, ranks, policies, workers, breakers.

use super::*;

/// `--worker-urls` and what follows it.
pub(super) fn urls(host: &Host) -> Vec<String> {
    std::iter::once("--worker-urls".to_owned()).chain(host.urls()).collect()
}

/// A router that records, and where.
pub(super) fn recorded(path: &Path, workers: usize, fleet: &[String], args: &[&str]) -> Router {
    let fleet: Vec<&str> = fleet.iter().map(String::as_str).collect();
    let file = path.to_str().unwrap();
    Router::start_with(workers, &[&fleet[..], args, &["--record-trace", file]].concat())
}

/// Decisions of a recording: the workers of each and why.
fn plans(lines: &[(String, Value)]) -> impl Iterator<Item = &Value> {
    lines.iter().filter(|(e, _)| e == "plan").map(|(_, line)| line)
}

fn count(lines: &[(String, Value)], kind: &str) -> usize {
    lines.iter().filter(|(e, _)| e == kind).count()
}

#[test]
fn pairs_are_decided_again_with_both_legs() {
    let directory = tempfile::tempdir().unwrap();
    for (prefill, decode) in
        [("cache_aware", "power_of_two"), ("prefix_hash", "consistent_hashing"), ("bucket", "manual")]
    {
        let path = directory.path().join(format!("{prefill}.trace"));
        let host = host_of(5, 1, Roles::Split { prefill: 2 });
        let mut fleet = vec!["--pd-disaggregation".to_owned()];
        for (at, url) in host.urls().enumerate() {
            fleet.extend([if at < 2 { "--prefill" } else { "--decode" }.to_owned(), url]);
        }
        let file = directory.path().join("router.toml");
        let limit = |streams: u32| {
            let text = format!("[disaggregation]\ndecode_dispatch_limit = {streams}\n");
            std::fs::write(&file, text).unwrap();
        };
        limit(4);
        let file = file.to_str().unwrap();
        let policies = ["--policy", decode, "--prefill-policy", prefill, "--config", file];
        let router = recorded(&path, 5, &fleet, &policies);
        router.load(0);
        control(&host, "PATCH", "/workers/1/faults", r#"{"status":[{"value":503,"times":4}]}"#);
        control(&host, "POST", "/workers/3/restart?down=2s", "");
        router.load(1);
        until("the worker is back", || router.healthy() == 5);
        limit(1);
        router.signal("HUP");
        until("the limit is lower", || {
            router.load(2);
            std::fs::read_to_string(&path).unwrap().contains("\"e\":\"pairing\"")
        });
        router.load(3);
        router.end();
        let lines = kinds(&path);
        let limited = plans(&lines).filter(|plan| plan["refused"]["leg"] == "prefill").count();
        assert!(limited > 0, "some had to wait for the end of a stream");
        let roles = |plan: &Value| [plan["legs"][0]["role"].clone(), plan["legs"][1]["role"].clone()];
        let pairs = plans(&lines).filter(|plan| roles(plan) == ["prefill", "decode"]).count();
        assert!(pairs >= 3 * CLIENTS * REQUESTS, "{pairs} pairs");
        let found = identical(&path, prefill);
        assert!(found["decisions"].as_u64().unwrap() >= pairs as u64);
    }
}

#[test]
fn ranks_are_decided_again_also_when_their_engine_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    // Each client has a key, and there are fewer of them than ranks; where they fall depends on ports.
    for (policy, least) in [("cache_aware", 8), ("power_of_two", 8), ("consistent_hashing", 2)] {
        let path = directory.path().join(format!("{policy}.trace"));
        let host = host_of(2, 4, Roles::default());
        let router = recorded(&path, 8, &urls(&host), &["--dp-aware", "--policy", policy]);
        router.load(0);
        control(&host, "POST", "/workers/1/restart?down=2s", "");
        router.load(1);
        until("the worker is back", || router.healthy() == 8);
        router.load(2);
        router.end();
        let lines = kinds(&path);
        let workers: std::collections::BTreeSet<u64> =
            plans(&lines).filter_map(|plan| plan["legs"][0]["worker"].as_u64()).collect();
        assert!(workers.len() >= least, "{policy}: {workers:?}");
        identical(&path, policy);
    }
}

#[test]
fn policies_that_change_while_it_is_recorded_change_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, file) = (directory.path().join("router.trace"), directory.path().join("router.toml"));
    let policies = [
        ("name = \"cache_aware\"", "cache_aware"),
        ("name = \"cache_aware\"\ncache_threshold = 0.9\nbalance_abs_threshold = 2", "cache_aware"),
        ("name = \"prefix_hash\"", "prefix_hash"),
        ("name = \"manual\"", "manual"),
        ("name = \"cache_aware\"", "cache_aware"),
    ];
    let write = |text: &str| std::fs::write(&file, format!("[policy]\n{text}\n")).unwrap();
    write(policies[0].0);
    let host = host();
    let router = recorded(&path, WORKERS as usize, &urls(&host), &["--config", file.to_str().unwrap()]);
    for (round, (text, _)) in policies.iter().enumerate() {
        write(text);
        std::thread::scope(|scope| {
            // While requests run.
            scope.spawn(|| router.load(round));
            router.signal("HUP");
        });
        router.load(round);
    }
    router.end();
    let lines = kinds(&path);
    assert_eq!(count(&lines, "policies"), policies.len() - 1);
    for (_, name) in policies {
        assert!(plans(&lines).any(|plan| plan["legs"][0]["policy"] == name), "{name}");
    }
    let found = identical(&path, "reload");
    assert_eq!(found["policy_changes"], policies.len() - 1);
    // The changes are the recorded router's own: another policy is asked about alone.
    let (code, text, found) = replay(&path, &["--policy", "round_robin"]);
    assert_eq!((code, &found["same_policy"]), (Some(0), &false.into()), "{text}");
    assert!(text.contains("here they were not"), "{text}");
}

#[test]
fn workers_that_come_and_go_are_known_again() {
    let directory = tempfile::tempdir().unwrap();
    // Each of them depends on something else that is told when workers come and go.
    for policy in ["cache_aware", "bucket", "power_of_two", "round_robin", "prefix_hash"] {
        let path = directory.path().join(format!("{policy}.trace"));
        let host = host_of(6, 1, Roles::default());
        let all: Vec<String> = host.urls().collect();
        let fleet: Vec<String> = urls(&host).into_iter().take(5).collect();
        // Soon enough for ranges to be cut while this lasts.
        let ranges = ["--bucket-adjust-interval-secs", "1"];
        let options = if policy == "bucket" { &ranges[..] } else { &[] };
        let router = recorded(&path, 4, &fleet, &[&["--policy", policy], options].concat());
        let add = |url: &str| {
            let headers = "Content-Type: application/json\r\n";
            let (status, text) =
                ask(&router.address, "POST", "/workers", headers, &format!(r#"{{"url":"{url}"}}"#));
            assert!((200..300).contains(&status), "{status} {text}");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| router.load(0));
            all[4..].iter().for_each(|url| add(url));
        });
        until("the new ones are healthy", || router.healthy() == 6);
        let leaving = router.workers()[1].clone();
        let id = leaving["id"].as_str().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| router.load(1));
            let (status, text) = ask(&router.address, "DELETE", &format!("/workers/{id}"), "", "");
            assert!((200..300).contains(&status), "{status} {text}");
            control(&host, "POST", "/workers/2/restart?down=2s", "");
        });
        until("the other one has left", || router.workers().len() == 5);
        until("the restarted one is back", || router.healthy() == 5);
        add(leaving["url"].as_str().unwrap());
        until("the removed one is back", || router.healthy() == 6);
        ask(&router.address, "POST", "/flush_cache", "", "");
        router.load(2);
        router.end();
        let lines = kinds(&path);
        assert_eq!((count(&lines, "add"), count(&lines, "remove")), (7, 1), "{policy}");
        let on_new = plans(&lines).filter(|plan| plan["legs"][0]["worker"].as_u64() >= Some(4)).count();
        assert!(on_new > 0, "{policy}");
        identical(&path, policy);
    }
}

#[test]
fn breakers_open_and_close_again_and_tries_go_on_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    for policy in ["cache_aware", "round_robin"] {
        let path = directory.path().join(format!("{policy}.trace"));
        let host = host();
        let breakers = ["--cb-failure-threshold", "3", "--cb-success-threshold", "2"];
        let args = [&breakers[..], &["--cb-timeout-duration-secs", "1", "--policy", policy]].concat();
        let router = recorded(&path, WORKERS as usize, &urls(&host), &args);
        for worker in 0..2 {
            let faults = format!("/workers/{worker}/faults");
            control(&host, "PATCH", &faults, r#"{"status":[{"value":500,"times":8}]}"#);
        }
        router.load(0);
        let changes = |to: &str| router.metric("smg_worker_cb_transitions_total", &format!("to=\"{to}\""));
        assert!(changes("open") >= 1.0, "{policy}");
        until("breakers are closed again", || {
            // Else nothing leads to those that are to be tried.
            ask(&router.address, "POST", "/flush_cache", "", "");
            router.load(1);
            router.metric("smg_worker_cb_state", "") == 0.0
        });
        assert!(changes("half_open") >= 1.0 && changes("closed") >= 1.0, "{policy}");
        router.end();
        let lines = kinds(&path);
        let again = plans(&lines).filter(|plan| plan["tried"].is_array()).count();
        assert!(again >= 6, "{policy}: {again} were tried again");
        identical(&path, policy);
    }
}

#[test]
fn a_cache_whose_loss_shows_in_the_answers_is_lost_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("router.trace");
    let host = host();
    let router = recorded(&path, WORKERS as usize, &urls(&host), &["--policy", "cache_aware"]);
    router.load(0);
    // Behind the router's back.
    for address in host.addresses() {
        assert_eq!(ask(&address.to_string(), "POST", "/flush_cache", "", "").0, 200);
    }
    until("the router has noticed", || {
        for address in host.addresses() {
            ask(&address.to_string(), "POST", "/flush_cache", "", "");
        }
        router.load(1);
        std::fs::read_to_string(&path).unwrap().contains("\"e\":\"clear\"")
    });
    router.load(2);
    router.end();
    let lines = kinds(&path);
    assert!(count(&lines, "cached") > CLIENTS * REQUESTS);
    assert!(plans(&lines).any(|plan| plan["legs"][0]["reason"] == "warm_up"), "it is led to its share then");
    identical(&path, "lost caches");
}

#[test]
fn requests_for_several_models_go_to_their_own_workers_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("router.trace");
    let (one, other) = (host_of(2, 1, Roles::default()), other_model(2));
    let fleet: Vec<String> = urls(&one).into_iter().chain(other.urls()).collect();
    let router = recorded(&path, 4, &fleet, &["--policy", "cache_aware"]);
    router.load(0);
    for at in 0..60 {
        let body = body(1, at % CLIENTS, at).replace("\"mock\"", "\"other\"");
        assert_eq!(ask(&router.address, "POST", "/v1/completions", &key(at), &body).0, 200);
    }
    router.end();
    let lines = kinds(&path);
    assert!(count(&lines, "model") >= 4, "they say which model they serve");
    let of = |range: std::ops::Range<u64>| {
        plans(&lines)
            .filter(|plan| plan["legs"][0]["worker"].as_u64().is_some_and(|id| range.contains(&id)))
            .count()
    };
    assert_eq!((of(0..2), of(2..4)), (CLIENTS * REQUESTS, 60));
    identical(&path, "two models");
}

/// Workers that serve another model.
fn other_model(workers: u32) -> Host {
    let worker = WorkerConfig::mock(preset("a100-80g-llama3-8b").unwrap());
    host_with(workers, Roles::default(), WorkerConfig { served_model_name: "other".to_owned(), ..worker })
}
