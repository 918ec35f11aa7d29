//! What is logged, and where nobody reads it.

use std::io::Read as _;

use crate::common::process::run_with;
use crate::common::{Router, Worker};
use crate::config::said;

#[test]
fn a_log_that_nobody_reads_holds_up_no_request_and_not_the_end() {
    let worker = Worker::fixed("{}");
    for is_read_at_last in [true, false] {
        let (mut router, mut stderr) = Router::start_unheard(&[worker.url()], &["--worker-api-key", "k"]);
        let mut client = router.client();
        // More lines than a pipe takes.
        for _ in 0..1000 {
            assert_eq!(client.post("/generate", "", b"{}").status(), 200);
        }
        router.close_stdin();
        if is_read_at_last {
            let mut late = String::new();
            stderr.read_to_string(&mut late).expect("text");
            assert_eq!(late.lines().filter(|line| line.contains("path=/generate")).count(), 1000, "{late}");
        }
        assert_eq!(router.wait().code(), Some(0));
        drop(stderr);
    }
}

#[test]
fn a_filter_that_is_none_is_told_and_the_level_holds() {
    let args = ["check", "--worker-urls", "http://w:1", "--log-level", "warn"];
    for (filter, warns) in [("[[[", true), ("router=loud", true), ("", false), ("router=debug,warn", false)] {
        let told = said(&run_with(&[("RUST_LOG", filter)], &args), 0, &filter);
        assert_eq!(told.contains("warning: RUST_LOG: `"), warns, "{filter}: {told}");
        assert_eq!(told.contains("--log-level warn holds"), warns, "{filter}: {told}");
    }
    let args = ["--port", "0", "--prometheus-port", "0", "--exit-with-stdin"];
    let told = said(&run_with(&[("RUST_LOG", "[[[")], &args), 0, &args);
    assert!(told.contains("WARN") && told.contains("RUST_LOG: `[[[`") && told.contains(" INFO "), "{told}");
}
