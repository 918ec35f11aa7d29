//! `router check`, `router policies`, files and the log's directory.

use std::io::Write as _;

use super::{assert_checked, checked, said};
use crate::common::process::run_to_end;
use crate::common::{Router, Worker};

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

#[test]
fn check_prints_what_a_start_would_run_with() {
    let file = file("[policy]\nname = \"random\"\n\n[security]\napi_key = \"sk-of-ours\"\n");
    let path = file.path().to_str().expect("a path");
    let output = run_to_end(&["check", "--config", path, "--port", "7", "--worker-urls", "http://a:1"]);
    assert_eq!(said(&output, 0, &"check"), "", "no warning");
    let text = String::from_utf8(output.stdout).expect("text");
    for (value, source) in [
        ("host = \"0.0.0.0\"", "default"),
        ("port = 7", "--port"),
        ("worker_urls = [\"http://a:1\"]", "--worker-urls"),
        ("name = \"random\"", &format!("{path}:2")),
        ("# api_key = (set)", &format!("{path}:5")),
    ] {
        let found =
            text.lines().any(|line| line.starts_with(value) && line.ends_with(&format!("# {source}")));
        assert!(found, "no {value} of {source} in {text}");
    }
    assert!(!text.contains("sk-of-ours"));
}

#[test]
fn check_ends_as_a_start_would() {
    let file = file("\n[traffic]\nprot = 1\n");
    let path = file.path().to_str().expect("a path");
    for args in [
        &["--config", path][..],
        &["--config", "/no/such/file"],
        &["--no-such-flag"],
        &["--port", "x"],
        &["--queue-timeout-secs", "0"],
        &["--mini-lb"],
    ] {
        let message = checked(args, 2);
        assert_eq!(message, said(&run_to_end(args), 2, &args));
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    assert!(checked(&["--config", path], 2).contains(&format!("{path}:3: `prot` is no key of [traffic]")));
    let help = run_to_end(&["check", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("--worker-urls"));
}

#[test]
fn check_warns_as_a_start_does() {
    let said =
        checked(&["--policy", "power_of_two", "--cache-threshold", "0.1", "--worker-urls", "http://a:1"], 0);
    for part in
        ["no choice with a single worker", "--cache-threshold has no effect under --policy power_of_two"]
    {
        assert!(said.contains(part), "{said}");
    }
    assert!(checked(&[], 0).contains("no workers"));
}

#[test]
fn policies_are_listed_with_their_options() {
    let output = run_to_end(&["policies"]);
    let text = String::from_utf8(output.stdout.clone()).expect("text");
    assert_eq!(said(&output, 0, &"policies"), "");
    for row in router_core::POLICIES {
        assert!(text.contains(row.summary), "{}", row.name);
        for spec in row.options {
            let option = format!(
                "--{} [{}; default: {}]",
                spec.key.replace('_', "-"),
                spec.kind,
                spec.default.as_argument()
            );
            assert!(text.contains(&option), "{option}");
        }
    }
    assert!(text.contains("cache_aware (the default)"));
    let refusal = said(&run_to_end(&["policies", "--loud"]), 2, &"policies");
    assert!(refusal.contains("--loud"), "{refusal}");
}

#[test]
fn a_file_sets_what_the_router_runs_with() {
    let worker = Worker::fixed("{}");
    let text = format!(
        "[policy]\nname = \"random\"\n[metrics_and_logs]\ndecision_headers = true\n[[workers]]\nurl = \"{}\"\n",
        worker.url()
    );
    let file = file(&text);
    let router = Router::start(&[], &["--config", file.path().to_str().expect("a path")]);
    let answer = router.post("/generate", b"{}");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("x-router-reason"), Some("draw"));
}

#[test]
fn the_log_is_kept_in_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("logs");
    let worker = Worker::fixed("{}");
    let flags = ["--log-dir", path.to_str().expect("a path"), "--model-path", "m", "--log-level", "info"];
    let (mut router, log) = Router::start_logged(&[worker.url()], &flags);
    assert_eq!(router.post("/generate", b"{}").status(), 200);
    router.close_stdin();
    router.wait();
    let files: Vec<_> =
        std::fs::read_dir(&path).expect("made").map(|file| file.expect("a file").path()).collect();
    // Two where midnight has passed meanwhile.
    assert!((1..=2).contains(&files.len()), "{files:?}");
    for file in &files {
        assert!(
            file.file_name().expect("a name").to_str().expect("text").starts_with("router.20"),
            "{file:?}"
        );
    }
    let kept: String = files.iter().map(|file| std::fs::read_to_string(file).expect("text")).collect();
    for part in ["--model-path has no effect", "path=/generate"] {
        assert!(kept.contains(part), "{part}: {kept}");
    }
    let mut kept: Vec<_> = kept.lines().collect();
    let lines = log.into_lines();
    let mut lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    kept.sort_unstable();
    lines.sort_unstable();
    assert_eq!(kept, lines, "what goes to standard error");
}

#[test]
fn a_directory_that_cannot_be_written_is_a_clear_error() {
    let file = file("");
    let path = file.path().join("logs");
    let path = path.to_str().expect("a path");
    let message = said(&run_to_end(&["--log-dir", path]), 2, &path);
    assert!(message.contains("--log-dir: cannot write in") && message.contains(path), "{message}");
    assert_checked(&["--log-dir", path], message.trim_end());
}

#[test]
fn check_tells_of_every_file_and_changes_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing.pem");
    let missing = missing.to_str().expect("a path");
    let logs = directory.path().join("a/b");
    let logs = ["--log-dir", logs.to_str().expect("a path")];
    checked(&logs, 0);
    let files = ["--tls-cert-path", missing, "--tls-key-path", missing, "--ca-cert-paths", missing];
    let said = checked(&[&logs[..], &files].concat(), 2);
    let lines: Vec<_> = said.lines().filter(|line| !line.contains("warning")).collect();
    let begins =
        ["router: --tls-cert-path", "router: --ca-cert-paths"].map(|begin| format!("{begin} {missing}: "));
    assert_eq!(lines.len(), begins.len(), "{said}");
    assert!(lines.iter().zip(&begins).all(|(line, begin)| line.starts_with(begin)), "{said}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}
