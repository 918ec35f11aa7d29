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
        (&["--worker-urls", "http://a", "http://a:80"], "`http://a:80` is given twice"),
        (&["--worker-urls", "http://worker:9", "HTTP://WORKER:9"], "`HTTP://WORKER:9` is given twice"),
        (&["--worker-urls", "http://[::1]:9", "http://[0:0::1]:9"], "`http://[0:0::1]:9` is given twice"),
        (&["--worker-urls", "http://a..b:1"], "http://a..b:1"),
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
        assert!(message.contains(&format!("another {}, or 0", flags[1])), "{message}");
    }
}

#[test]
fn an_address_of_another_machine_is_a_clear_error() {
    let output = run_to_end(&["--host", "192.0.2.1", "--port", "0", "--prometheus-port", "0"]);
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(5), "{message}");
    assert!(message.contains("give --host an address of this machine"), "{message}");
}

#[test]
fn a_host_that_is_no_name_is_a_clear_error() {
    let message = String::from_utf8(run_to_end(&["--host", "no host"]).stderr).expect("text");
    assert!(message.contains("--host: `no host` cannot be resolved; give an IP address"), "{message}");
}

#[test]
fn the_api_key_is_repeated_nowhere() {
    let ports = ["--port", "0", "--prometheus-port", "0", "--exit-with-stdin", "--log-level", "debug"];
    for (key, code) in [("sk-of-ours", 0), ("sk-of ours", 2)] {
        let output = run_to_end(&[&ports[..], &["--api-key", key]].concat());
        assert_eq!(output.status.code(), Some(code));
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.is_empty());
        assert!(!String::from_utf8(said).expect("text").contains("sk-of"));
    }
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let router = Router::start_limited(64, &[], &[]);
    let [soft, hard] = router.open_file_limits();
    assert_ne!(hard, "64", "this machine's hard limit is too low for the test to show anything");
    assert_eq!(soft, hard);
}

#[test]
fn help_lists_every_policy_and_its_options() {
    let output = run_to_end(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).expect("text");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for row in router_core::POLICIES {
        assert!(help.contains(&format!("- {}: {}", row.name, row.summary)), "{}", row.name);
        for option in row.options {
            assert!(help.contains(&format!("--{} ", option.key.replace('_', "-"))), "{}", option.key);
            assert!(help.contains(&format!(": {}; default: ", option.kind)), "{}", option.key);
        }
    }
    assert!(help.ends_with("an address is taken, or the system refuses"), "exit codes come last");
    assert!(!help.contains("default: \""), "what can be typed is not quoted");
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
