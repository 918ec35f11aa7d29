//! There is an end to how many workers a router has.

use serde_json::json;

use super::call;
use crate::common::process::run_to_end;
use crate::common::{Router, wait_until};
use crate::reload::File;

const MOST: usize = 10_000;

/// So many workers, of which none is there.
fn list(workers: usize) -> String {
    let url = |number: usize| format!("\"http://127.{}.{}.1:1\"", 1 + number / 250, 1 + number % 250);
    let urls: Vec<_> = (0..workers).map(url).collect();
    format!("[fleet]\nworker_urls = [{}]\n", urls.join(","))
}

#[test]
fn a_file_with_too_many_is_refused_with_its_place() {
    let refused = |text: &str| {
        let file = File::of(text);
        let output = run_to_end(&["--config", &file.path()]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).expect("text")
    };
    let flag = refused(&list(MOST + 1));
    assert!(flag.contains("router.toml:2") && flag.contains("10000 workers at most"), "{flag}");
    let table = refused(&format!("{}[[workers]]\nurl = \"http://w:1\"\n", list(MOST)));
    assert!(table.contains("router.toml:3: `http://w:1` is one too many"), "{table}");
}

#[test]
fn one_too_many_is_refused_and_one_that_the_file_adds_is_told_of() {
    let file = File::of(&list(MOST - 1));
    let (router, log) = Router::start_logged(&[], &["--config", &file.path(), "--log-level", "error"]);
    let add = |url: &str| call(&router, "POST", "/workers", &json!({"url": url}).to_string());
    assert_eq!(add("http://127.0.0.1:1").status(), 202);
    let refused = add("http://127.0.0.1:2");
    assert_eq!((refused.status(), &refused.json()["code"]), (503, &json!("TOO_MANY_WORKERS")));
    assert!(refused.text().contains("10000"), "{}", refused.text());
    assert_eq!(add("127.0.0.1:1").status(), 202, "it is known");
    file.write(&list(MOST));
    router.signal("HUP");
    let is_told = |line: &String| line.contains("ERROR") && line.contains("left out: http://127.40.250.1:1");
    wait_until("the error", || log.lines().iter().any(is_told));
}
