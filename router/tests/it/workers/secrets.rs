//! A password that is given in a URL, where none belongs, is not repeated.

use super::{call, encoded};
use crate::common::process::run_to_end;
use crate::common::{Router, wait_until};
use crate::reload::File;

const URL: &str = "http://user:sk-1@w:1";

#[test]
fn a_start_that_is_refused_does_not_repeat_a_password() {
    let file = File::of(&format!("[[workers]]\nurl = \"{URL}\"\n"));
    let list = File::of(&format!("[fleet]\nworker_urls = [\"{URL}\"]\n"));
    for args in [
        &["--worker-urls", URL][..],
        &["--worker-url", URL],
        &[URL],
        &["--config", &file.path()],
        &["--config", &list.path()],
        &["check", "--config", &file.path()],
    ] {
        let output = run_to_end(args);
        let said =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text")).concat();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(!said.contains("sk-1"), "{args:?}: {said}");
    }
}

#[test]
fn neither_answers_nor_the_log_repeat_a_password() {
    let file = File::of("");
    let args = ["--config", &file.path(), "--control-plane-audit-enabled"];
    let (router, log) = Router::start_logged(&[], &args);
    let name = encoded(URL);
    let body = format!(r#"{{"url":"{URL}"}}"#);
    let calls = [
        ("POST", "/workers".to_owned(), &*body, 400),
        ("DELETE", format!("/workers/{name}"), "", 400),
        ("GET", format!("/workers/{name}"), "", 400),
        ("PUT", format!("/workers/{name}"), "{}", 400),
        ("POST", format!("/workers/{name}/drain"), "", 400),
        ("DELETE", "/workers/user:sk-1@w:1".to_owned(), "", 400),
        ("DELETE", "/workers/user:sk-1%40%zz".to_owned(), "", 400),
        ("DELETE", "/workers/user:sk-1@w/1".to_owned(), "", 404),
    ];
    for (method, path, body, status) in &calls {
        let answer = call(&router, method, path, body);
        assert_eq!(answer.status(), *status, "{method} {path}: {}", answer.text());
        assert!(!answer.text().contains("sk-1"), "{method} {path}: {}", answer.text());
    }
    // What has one segment too many is no route, and so no call.
    let is_audited = |method: &str, status: u16| method != "GET" && status != 404;
    let changing = calls.iter().filter(|(method, _, _, status)| is_audited(method, *status)).count();
    let audited = || log.lines().iter().filter(|line| line.contains("admin call")).count();
    wait_until("all calls to be noted", || audited() == changing);
    file.write(&format!("[[workers]]\nurl = \"{URL}\"\n"));
    router.signal("HUP");
    wait_until("the complaint", || log.lines().iter().any(|line| line.contains("stays as it was")));
    let lines = log.lines();
    let told: Vec<_> = lines.iter().filter(|line| line.contains("sk-1")).collect();
    assert!(told.is_empty(), "{told:?}");
}
