//! The command line: what is accepted, what is refused, and how the process ends.

use std::net::TcpListener;

use crate::common::process::run_to_end;
use crate::common::{Router, Worker};

#[test]
fn what_is_wrong_is_named_in_one_line_and_ends_with_code_2() {
    for (args, named) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--port", "70000"], "--port"),
        (&["--policy", "no_such_policy"], "no_such_policy"),
        (&["--worker-urls", "127.0.0.1:1"], "127.0.0.1:1"),
        (&["--worker-urls", "http://a:1", "ftp://b:2"], "ftp://b:2"),
        (&["--worker-urls", "http://a:1", "http://a:1/"], "http://a:1/"),
        (&["--cache-threshold", "1.5"], "--cache-threshold"),
        (&["--cache-threshold", "much"], "--cache-threshold"),
        (&["--balance-rel-threshold", "0.5"], "--balance-rel-threshold"),
        (&["--max-payload-size", "0"], "--max-payload-size"),
        (&["--request-timeout-secs", "0"], "--request-timeout-secs"),
        (&["--host", "no host"], "--host"),
        (&["--log-level", "loud"], "--log-level"),
    ] {
        let output = run_to_end(args);
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
        assert!(message.contains(named), "{args:?}: {message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{args:?}: {message}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_port_in_use_is_a_clear_error() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    for flags in
        [["--host", "--port", "--prometheus-port"], ["--prometheus-host", "--prometheus-port", "--port"]]
    {
        let output = run_to_end(&[flags[0], "127.0.0.1", flags[1], &port, flags[2], "0"]);
        let message = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(5), "{message}");
        assert!(message.contains(&format!("127.0.0.1:{port}")), "{message}");
    }
}

#[test]
fn help_lists_every_policy_and_its_options() {
    let output = run_to_end(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).expect("text");
    for row in router_core::POLICIES {
        assert!(help.contains(row.name), "{}", row.name);
        for option in row.options {
            assert!(help.contains(&format!("--{} ", option.key.replace('_', "-"))), "{}", option.key);
        }
    }
}

#[test]
fn worker_urls_come_in_any_number_and_form() {
    let (a, b, c) = (Worker::fixed("{}"), Worker::fixed("{}"), Worker::fixed("{}"));
    let both = format!("{} {}", b.url(), c.url());
    let router = Router::start(&[a.url()], &["--policy", "random", "--worker-urls", &both]);
    let list = router.get("/workers").json();
    let urls: Vec<_> = list["workers"].as_array().expect("a list").iter().map(|w| w["url"].clone()).collect();
    assert_eq!(urls, [a.url(), b.url(), c.url()]);
}

#[test]
fn an_option_of_another_policy_is_no_error() {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--policy", "random", "--cache-threshold", "0.9"]);
    assert_eq!(router.post("/generate", b"{}").status(), 200);
}

#[test]
fn the_router_ends_when_its_standard_input_does() {
    let mut router = Router::start(&[], &[]);
    router.close_stdin();
    assert_eq!(router.wait().code(), Some(0));
}
