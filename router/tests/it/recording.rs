//! `--record-trace`: what is written, and what never is.

use std::path::Path;

use serde_json::Value;

use crate::common::process::run_to_end;
use crate::common::{Router, Worker, wait_until};

const COMPLETIONS: &str = "/v1/completions";
const ANSWER: &str =
    r#"{"usage":{"prompt_tokens":50,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":16}}}"#;

/// The lines of a recording, the header first.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn recorded(workers: &[&Worker], path: &Path, args: &[&str]) -> Router {
    let urls: Vec<String> = workers.iter().map(|worker| worker.url()).collect();
    let file = path.to_str().expect("UTF-8");
    Router::start(&urls, &[&["--record-trace", file], args].concat())
}

fn end(mut router: Router) {
    router.close_stdin();
    assert!(router.wait().success());
}

fn of<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["e"] == kind).collect()
}

#[test]
fn a_request_is_recorded_from_its_look_to_its_end_without_its_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("router.trace");
    let worker = Worker::fixed(ANSWER);
    let router = recorded(&[&worker], &path, &["--policy", "cache_aware"]);
    let prompt = "the secret of the prompt ".repeat(8);
    let body = format!(r#"{{"model":"m","prompt":"{prompt}","max_tokens":4}}"#);
    let headers = "Content-Type: application/json\r\nX-SMG-Routing-Key: secret\r\nX-SMG-Target-Worker: secret\r\nAuthorization: Bearer secret\r\n";
    for _ in 0..2 {
        assert_eq!(router.client().post(COMPLETIONS, headers, body.as_bytes()).status(), 200);
    }
    wait_until("the lines to be counted", || router.metric("smg_router_record_lines_total") > Some(8.0));
    assert_eq!(router.metric("smg_router_record_dropped_total"), Some(0.0));
    end(router);
    assert!(!std::fs::read_to_string(&path).expect("a file").contains("secret"));
    let lines = lines(&path);
    assert_eq!(
        (&lines[0]["router_trace"], &lines[0]["policies"]["regular"]["name"]),
        (&1.into(), &"cache_aware".into())
    );
    assert_eq!(lines[0]["seed"], 1);
    let (looks, plans, ends) = (of(&lines, "look"), of(&lines, "plan"), of(&lines, "request"));
    assert_eq!((looks.len(), plans.len(), ends.len()), (2, 2, 2));
    assert_eq!((&looks[0]["size"], &looks[0]["kind"]), (&prompt.len().into(), &"text".into()));
    assert_eq!(looks[0]["tags"], looks[1]["tags"], "the same prompt");
    assert_eq!(looks[0]["tags"].as_str().map(str::len), Some(4 * prompt.len().div_ceil(16)));
    assert_eq!(plans[1]["legs"][0]["reason"], "cache_hit");
    assert_eq!((&plans[0]["target"], &plans[0]["key"]), (&"?".into(), &plans[1]["key"]));
    assert_eq!((&ends[1]["status"], &ends[1]["n"]), (&200.into(), &2.into()));
    let place =
        |kind: &str| lines.iter().position(|line| line["e"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    assert!(place("add") < place("health") && place("look") < place("plan"));
    assert!(place("plan") < place("credit") && place("plan") < place("finish"));
}

#[test]
fn of_what_is_hashed_the_place_on_the_ring_is_recorded_and_not_the_hash() {
    let directory = tempfile::tempdir().expect("a directory");
    const KEYS: usize = 400;
    for (policy, least) in [("consistent_hashing", 100), ("prefix_hash", 100), ("manual", 0)] {
        let path = directory.path().join(policy);
        let worker = Worker::fixed(ANSWER);
        let router = recorded(&[&worker], &path, &["--policy", policy]);
        let mut client = router.client();
        for n in (0..KEYS).chain([0]) {
            let headers = format!("Content-Type: application/json\r\nX-SMG-Routing-Key: key {n}\r\n");
            let body = format!(r#"{{"prompt":"prompt {n}"}}"#);
            assert_eq!(client.post(COMPLETIONS, &headers, body.as_bytes()).status(), 200);
        }
        end(router);
        let lines = lines(&path);
        let plans = of(&lines, "plan");
        let places: Vec<Option<u64>> = plans.iter().map(|plan| plan["places"]["regular"].as_u64()).collect();
        assert_eq!((places.len(), places[0]), (KEYS + 1, places[KEYS]), "{policy}: the same again");
        let distinct: std::collections::BTreeSet<u64> = places.into_iter().flatten().collect();
        // One worker has 160 places: a hash of each of 400 keys could be told from all others.
        assert!((least..=160).contains(&distinct.len()), "{policy}: {}", distinct.len());
    }
}

#[test]
fn a_full_file_is_put_aside() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("router.trace");
    let worker = Worker::fixed(ANSWER);
    let router =
        recorded(&[&worker], &path, &["--policy", "round_robin", "--record-trace-max-bytes", "1048576"]);
    let body = format!(r#"{{"model":"m","prompt":"{}","max_tokens":4}}"#, "a long prompt ".repeat(16_000));
    let aside = directory.path().join("router.trace.1");
    wait_until("the file to be put aside", || {
        assert_eq!(router.post(COMPLETIONS, body.as_bytes()).status(), 200);
        aside.exists()
    });
    end(router);
    let (before, after) = (lines(&aside), lines(&path));
    assert_eq!((&before[0]["part"], &after[0]["part"]), (&0.into(), &1.into()));
    let restated = after[0]["restated"].as_u64().expect("a number") as usize;
    assert!(after[1..=restated].iter().any(|line| line["e"] == "add"), "{:?}", after[..3].to_vec());
    let number = |line: &&Value| line["n"].as_u64().expect("a number");
    let looks: Vec<u64> = of(&before, "look").iter().chain(&of(&after, "look")).map(number).collect();
    assert_eq!(looks, (1..=looks.len() as u64).collect::<Vec<_>>(), "none is lost");
}

#[test]
fn salted_alike_two_recordings_compare_and_otherwise_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let salt = directory.path().join("salt");
    let kept = ["--record-trace-salt-file", salt.to_str().expect("UTF-8")];
    let tags = |name: &str, args: &[&str]| {
        let worker = Worker::fixed(ANSWER);
        let path = directory.path().join(name);
        let router = recorded(&[&worker], &path, args);
        assert_eq!(router.post(COMPLETIONS, br#"{"model":"m","prompt":"one two three"}"#).status(), 200);
        end(router);
        of(&lines(&path), "look")[0]["tags"].clone()
    };
    let one = tags("one", &kept);
    assert_eq!(one, tags("two", &kept));
    assert_ne!(one, tags("three", &[]));
}

#[test]
fn a_place_that_cannot_be_written_is_refused_at_the_start() {
    let args = ["--worker-urls", "http://127.0.0.1:1", "--port", "0", "--prometheus-port", "0"];
    for command in [&[][..], &["check"]] {
        let output =
            run_to_end(&[command, &args[..], &["--record-trace", "/nonexistent/router.trace"]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        let says = ["--record-trace /nonexistent/router.trace", "name a file"];
        assert!(says.iter().all(|part| text.contains(part)), "{text}");
    }
}

#[test]
fn without_the_flag_nothing_is_recorded_or_counted() {
    let worker = Worker::fixed(ANSWER);
    let router = Router::start(&[worker.url()], &[]);
    assert_eq!(router.post(COMPLETIONS, br#"{"model":"m","prompt":"one"}"#).status(), 200);
    assert_eq!(router.metric("smg_router_record_lines_total"), None);
}

#[test]
fn what_is_no_recording_is_refused_at_the_start_and_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("folder")).expect("a directory");
    std::fs::write(at("foreign"), "my notes").expect("a file");
    std::fs::write(at("beside.1"), "my notes").expect("a file");
    let made = std::process::Command::new("mkfifo").arg(at("fifo")).status().expect("mkfifo");
    assert!(made.success());
    let taken = |name: &'static str, salt: Option<&'static str>, says: &'static str| (name, salt, says);
    let cases = [
        taken("folder", None, "folder is a directory"),
        taken("fifo", None, "fifo is a fifo"),
        taken("foreign", None, "foreign is no recording"),
        taken("beside", None, "beside.1 is no recording"),
        taken("new", Some("new"), "--record-trace-salt-file"),
        taken("new", Some("./new.1"), "--record-trace-salt-file"),
    ];
    let args = ["--worker-urls", "http://127.0.0.1:1", "--port", "0", "--prometheus-port", "0"];
    let names = || {
        let entries = std::fs::read_dir(directory.path()).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = names();
    for (name, salt, says) in cases {
        for command in [&[][..], &["check"]] {
            let (path, salt) = (at(name), salt.map(at));
            let path = ["--record-trace", path.to_str().expect("UTF-8")];
            let salt =
                salt.iter().flat_map(|salt| ["--record-trace-salt-file", salt.to_str().expect("UTF-8")]);
            let all: Vec<&str> = command.iter().copied().chain(args).chain(path).chain(salt).collect();
            let output = run_to_end(&all);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{name}: {text}");
            assert!(text.contains(says) && text.contains("name another file"), "{name}: {text}");
        }
    }
    assert_eq!(names(), before);
    assert_eq!(std::fs::read_to_string(at("foreign")).expect("a file"), "my notes");
}

#[test]
fn a_recording_that_may_not_grow_ends_and_the_router_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("router.trace");
    let worker = Worker::fixed(ANSWER);
    let args = ["--policy", "round_robin", "--record-trace", path.to_str().expect("UTF-8")];
    let (mut router, log) = Router::start_limited_logged("-f 64", &[worker.url()], &args);
    let body = format!(r#"{{"model":"m","prompt":"{}","max_tokens":4}}"#, "a long prompt ".repeat(1000));
    wait_until("the recording to end", || {
        assert_eq!(router.post(COMPLETIONS, body.as_bytes()).status(), 200);
        router.metric("smg_router_record_dropped_total") > Some(0.0)
    });
    for _ in 0..3 {
        assert_eq!(router.post(COMPLETIONS, body.as_bytes()).status(), 200);
    }
    router.close_stdin();
    assert!(router.wait().success());
    let lines = log.into_lines();
    let told = lines.iter().filter(|line| line.contains("nothing more is recorded"));
    assert_eq!(told.count(), 1, "{lines:?}");
    assert!(std::fs::metadata(&path).expect("a file").len() > 0);
}
