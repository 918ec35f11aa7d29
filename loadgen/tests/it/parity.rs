//! Live and virtual must tell the same story: the same router before the same engines, once over HTTP and once as an
//! event heap.

use serde_json::Value;

use crate::program::{Bench, shipped};

fn figure(run: &Value, name: &str) -> f64 {
    run[name].as_f64().unwrap_or_else(|| panic!("{name} of {run}"))
}

#[test]
fn every_policy_hits_live_what_it_hits_in_virtual_time() {
    let bench = Bench::new();
    let ended = bench.run(&[&shipped("smoke.toml"), "--seeds", "1"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let (live, in_virtual): (Vec<_>, Vec<_>) =
        bench.runs().into_iter().partition(|run| run["mode"] == "live");
    assert!(live.len() >= 6, "every policy that needs no header runs live");
    assert_eq!(live.len(), in_virtual.len());
    for run in &live {
        let twin = in_virtual.iter().find(|v| v["policy"] == run["policy"]).unwrap();
        let (hit, expected) = (figure(run, "hit_rate"), figure(twin, "hit_rate"));
        let policy = &run["policy"];
        assert!((hit - expected).abs() <= 0.03, "{policy}: live {hit:.4}, virtual {expected:.4}");
        assert_eq!(run["prompt_tokens"], twin["prompt_tokens"], "{policy}");
        assert_eq!((&run["failed"], &run["requests"]), (&twin["failed"], &twin["requests"]), "{policy}");
        assert!(figure(run, "router_cpu_us_per_request") > 0.0, "{policy}");
    }
    let hits: Vec<f64> = live.iter().map(|run| figure(run, "hit_rate")).collect();
    let (best, worst) = (hits.iter().copied().fold(0.0, f64::max), hits.iter().copied().fold(1.0, f64::min));
    assert!(best - worst >= 0.20, "a scenario that cannot tell policies apart proves nothing: {hits:?}");
}

/// What the engine refuses must look alike in both worlds.
#[test]
fn a_refused_request_has_the_same_record_live_and_in_virtual_time() {
    const REFUSED: &str = r#"
schema = 1
name = "refused"
mode = "both"
[workload]
kind = "shared_prefix"
groups = 2
prompts_per_group = 2
system_tokens = 600
question_tokens = 100
output_tokens = 4
[arrival]
kind = "constant"
rate = 50.0
[fleet]
workers = 2
LIMIT
[router]
policies = ["round_robin"]
"#;
    for limit in ["context = 400", "context = 4096\nkv_tokens = 600"] {
        let bench = Bench::new();
        let scenario = bench.file("s.toml", &REFUSED.replace("LIMIT", limit));
        let ended = bench.run(&[scenario.to_str().unwrap()]);
        assert_eq!(ended.code, Some(0), "{limit}: {}", ended.stderr);
        let mut reader = csv::Reader::from_path(bench.out().join("requests.csv")).unwrap();
        let headers = reader.headers().unwrap().clone();
        let columns = ["status", "error", "prompt_tokens", "output_tokens", "worker", "reason"]
            .map(|name| headers.iter().position(|h| h == name).unwrap());
        let rows: Vec<Vec<String>> = reader
            .records()
            .map(|row| columns.iter().map(|c| row.as_ref().unwrap()[*c].to_owned()).collect())
            .collect();
        let (in_virtual, live) = rows.split_at(4);
        assert_eq!(in_virtual, live, "{limit}");
        assert!(!live[0][1].is_empty(), "{limit}: it is refused");
    }
}

/// A fleet of pairs, a fleet of engines with ranks, and both at once: small enough to run live beside other tests.
const APART: &str = r#"
schema = 1
name = "apart"
mode = "both"
[workload]
kind = "shared_prefix"
groups = 24
prompts_per_group = 6
system_tokens = 1200
question_tokens = 300
output_tokens = 8
[arrival]
kind = "constant"
rate = 40.0
[fleet]
workers = 4
preset = "h100-80g-llama3-8b"
FLEET
[router]
policies = ["round_robin", "cache_aware"]
ROUTER
[live]
stream_interval = 8
"#;

/// The rows of `requests.csv` under some columns.
fn rows<const N: usize>(bench: &Bench, columns: [&str; N]) -> Vec<[String; N]> {
    let mut reader = csv::Reader::from_path(bench.out().join("requests.csv")).unwrap();
    let headers = reader.headers().unwrap().clone();
    let places = columns.map(|name| headers.iter().position(|h| h == name).unwrap());
    reader.records().map(Result::unwrap).map(|row| places.map(|place| row[place].to_owned())).collect()
}

#[test]
fn pairs_and_ranks_hit_live_what_they_hit_in_virtual_time() {
    for (fleet, router, pairs) in [
        ("prefill = 2", "", true),
        ("prefill = 2\nregular = 1", "least_uncached_tokens = 600", true),
        ("dp_size = 2", "dp_aware = true", false),
        ("prefill = 2\ndp_size = 2", "dp_aware = true", true),
    ] {
        let bench = Bench::new();
        let text = APART.replace("FLEET", fleet).replace("ROUTER", router);
        let scenario = bench.file("s.toml", &text);
        let ended = bench.run(&[scenario.to_str().unwrap()]);
        // 4: a busy machine sent late. That moves times, which are not compared here.
        assert!(
            matches!(ended.code, Some(0 | 4)),
            "{fleet}: {:?} {}{}",
            ended.code,
            ended.stdout,
            ended.stderr
        );
        let (live, in_virtual): (Vec<_>, Vec<_>) =
            bench.runs().into_iter().partition(|run| run["mode"] == "live");
        assert_eq!((live.len(), in_virtual.len()), (2, 2), "{fleet}");
        for run in &live {
            let twin = in_virtual.iter().find(|v| v["policy"] == run["policy"]).unwrap();
            let (hit, expected) = (figure(run, "hit_rate"), figure(twin, "hit_rate"));
            let policy = &run["policy"];
            assert!((hit - expected).abs() <= 0.03, "{fleet} {policy}: live {hit:.4}, virtual {expected:.4}");
            assert_eq!((&run["failed"], &twin["failed"]), (&0.into(), &0.into()), "{fleet} {policy}");
            assert_eq!(run["prompt_tokens"], twin["prompt_tokens"], "{fleet} {policy}");
        }
        let told = rows(&bench, ["mode", "worker", "prefill_worker"]);
        for mode in ["virtual", "live"] {
            let split = told.iter().filter(|row| row[0] == mode && !row[2].is_empty());
            let known = split.clone().all(|row| row[1] != row[2] && ["0", "1"].contains(&&*row[2]));
            assert!(known && (split.count() > 0) == pairs, "{fleet} {mode}");
            assert!(told.iter().all(|row| !row[1].is_empty()), "{fleet} {mode}");
        }
    }
}

/// Sessions: the workload is put in.
const SESSIONS: &str = r#"
schema = 1
name = "sessions"
mode = "both"
[workload]
WORKLOAD
[arrival]
kind = "poisson"
rate = 6.0
[fleet]
workers = 4
preset = "h100-80g-llama3-8b"
[router]
policies = ["round_robin", "cache_aware", "consistent_hashing"]
[live]
stream_interval = 4
"#;

#[test]
fn sessions_hit_live_what_they_hit_in_virtual_time() {
    let chat = "kind = \"chat\"\nsessions = 30\nturns = { uniform = [2, 5] }\nquestion_tokens = { uniform = [100, 300] }\n\
                output_tokens = { uniform = [20, 60] }\nthink = { uniform = [\"50ms\", \"300ms\"] }\nsystem_tokens = 300\n\
                system_prompts = 3";
    let agentic = "kind = \"agentic\"\nsessions = 24\nchildren = { uniform = [2, 4] }\nquestion_tokens = 800\n\
                   output_tokens = 30\nchild_tokens = 100\nchild_output_tokens = 20\njoin_tokens = 60\n\
                   think = { uniform = [\"50ms\", \"300ms\"] }\nsystem_tokens = 400";
    for workload in [chat, agentic] {
        let bench = Bench::new();
        let scenario = bench.file("s.toml", &SESSIONS.replace("WORKLOAD", workload));
        let ended = bench.run(&[scenario.to_str().unwrap()]);
        // 4: a busy machine sent late. That moves times, which are not compared here.
        assert!(matches!(ended.code, Some(0 | 4)), "{:?} {}{}", ended.code, ended.stdout, ended.stderr);
        let (live, in_virtual): (Vec<_>, Vec<_>) =
            bench.runs().into_iter().partition(|run| run["mode"] == "live");
        assert_eq!((live.len(), in_virtual.len()), (3, 3));
        for run in &live {
            let policy = &run["policy"];
            let twin = in_virtual.iter().find(|v| v["policy"] == *policy).unwrap();
            let (hit, expected) = (figure(run, "hit_rate"), figure(twin, "hit_rate"));
            // Which worker is next in turn depends on which answer came first.
            let most = if policy == "round_robin" { 0.05 } else { 0.015 };
            assert!((hit - expected).abs() <= most, "{policy}: live {hit:.4}, virtual {expected:.4}");
            assert_eq!((&run["failed"], &twin["failed"]), (&0.into(), &0.into()), "{policy}");
            for same in ["requests", "prompt_tokens"] {
                assert_eq!(run[same], twin[same], "{policy}: the same requests, the same replies");
            }
        }
        let hit = |policy: &str| figure(live.iter().find(|run| run["policy"] == policy).unwrap(), "hit_rate");
        assert!(hit("consistent_hashing") > hit("round_robin") + 0.1, "sessions have a key, live too");
    }
}
