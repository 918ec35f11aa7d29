//! The command line: what is accepted, what is refused, and how the process ends.

use std::net::TcpListener;

use crate::common::process::run_to_end;
use crate::common::{Router, Worker};
use crate::config::{FILES, PAIRED, TAKEN, WITHOUT_EFFECT};

/// Flags with which a router on free ports starts and ends at once.
const FREE_PORTS: &[&str] = &["--port", "0", "--prometheus-port", "0", "--exit-with-stdin"];

/// What a value must be said to be.
const COUNT: &str = "a whole number from 0 to 4294967295";
const POSITIVE: &str = "a whole number from 1 to 4294967295";
const SECONDS: &str = "a whole number from 1 to 100000000";
const MILLISECONDS: &str = "a whole number from 1 to 100000000000";
const LIMIT: &str = "a number of seconds from 0.001 to 100000000";
const STATUS: &str = "a status from 400 to 599";
const BUCKET: &str = "a number of seconds above 0";
const PATH: &str = "a path that begins with /";

/// A flag, a value that it does not take, and what the message says that it takes.
const REFUSED: &[(&str, &str, &str)] = &[
    ("--port", "70000", "from 0 to 65535"),
    ("--decode-dispatch-limit", "-1", COUNT),
    ("--prefer-pd", "maybe", "true, false"),
    ("--pd-least-uncached-tokens", "few", "a whole number from 0"),
    ("--dp-rank-field", "rank", "data_parallel_rank, routed_dp_rank"),
    ("--prefill-policy", "no_such_policy", "cache_aware"),
    ("--decode-policy", "bucket", "cannot choose decode workers"),
    ("--worker-urls", "http://localhost:30000", "where the router itself listens"),
    ("--host", "no host", "give an IP address"),
    ("--policy", "no_such_policy", "cache_aware"),
    ("--worker-urls", "127.0.0.1:1", "http://"),
    ("--worker-urls", "http://a..b:1", "http"),
    ("--extra-endpoints", "v1/x", PATH),
    ("--extra-endpoints", "/x?y=1", "without a query"),
    ("--extra-endpoints", "/generate", "is served already"),
    ("--extra-endpoints", "/workers", "is served already"),
    ("--threads", "0", "from 1 to 256"),
    ("--seed", "-1", "a whole number from 0"),
    ("--load-poll-interval-secs", "0", "from 0.01 to 3600"),
    ("--worker-info-interval-secs", "0", "from 0.01 to 3600"),
    ("--shutdown-grace-period-secs", "-1", "from 0 to 100000000"),
    ("--max-payload-size", "0", "a whole number from 1"),
    ("--max-concurrent-requests", "many", "a whole number"),
    ("--max-concurrent-requests", "4294967296", "to 4294967295"),
    ("--queue-size", "-1", COUNT),
    ("--queue-timeout-secs", "0", "1 or more, or --queue-size 0"),
    ("--queue-timeout-secs", "-1", "a whole number from 0 to 100000000"),
    ("--rate-limit-tokens-per-second", "-1", COUNT),
    ("--rate-limit-tokens-per-second", "0.5", COUNT),
    ("--retry-max-retries", "0", POSITIVE),
    ("--retry-initial-backoff-ms", "0", MILLISECONDS),
    ("--retry-max-backoff-ms", "0", MILLISECONDS),
    ("--retry-max-backoff-ms", "49", "--retry-initial-backoff-ms 50; give as much or more"),
    ("--retry-backoff-multiplier", "0.99", "a number of 1 or more"),
    ("--retry-backoff-multiplier", "inf", "a number of 1 or more"),
    ("--retry-jitter-factor", "1.01", "a number from 0 to 1"),
    ("--retry-jitter-factor", "-0.1", "a number from 0 to 1"),
    ("--retry-statuses", "200", STATUS),
    ("--retry-statuses", "5xx", STATUS),
    ("--retry-on-reset", "maybe", "true, false"),
    ("--retry-budget-percent", "-1", "a number from 0"),
    ("--retry-budget-percent", "nan", "a number from 0"),
    ("--retry-budget-min", "-1", COUNT),
    ("--cb-failure-threshold", "0", POSITIVE),
    ("--cb-success-threshold", "0", POSITIVE),
    ("--cb-timeout-duration-secs", "0", SECONDS),
    ("--cb-half-open-permits", "0", POSITIVE),
    ("--health-failure-threshold", "0", POSITIVE),
    ("--health-success-threshold", "0", POSITIVE),
    ("--health-check-timeout-secs", "0", SECONDS),
    ("--health-check-interval-secs", "0", SECONDS),
    ("--health-check-endpoint", "health", PATH),
    ("--request-timeout-secs", "0", SECONDS),
    ("--connect-timeout-secs", "0", LIMIT),
    ("--first-byte-timeout-secs", "-1", LIMIT),
    ("--stream-idle-timeout-secs", "soon", LIMIT),
    ("--body-idle-timeout-secs", "-1", LIMIT),
    ("--header-read-timeout-secs", "0", LIMIT),
    ("--idle-connection-timeout-secs", "0", LIMIT),
    ("--max-connections", "0", POSITIVE),
    ("--max-header-bytes", "8191", "a whole number from 8192 to 16777216"),
    ("--worker-startup-timeout-secs", "0", SECONDS),
    ("--worker-drain-timeout-secs", "-1", "from 0 to 100000000"),
    ("--worker-warmup-secs", "-1", "from 0 to 100000000"),
    ("--worker-warmup-share", "-0.1", "a number of 0 or more"),
    ("--shutdown-pause-secs", "-1", "from 0 to 100000000"),
    ("--admin-port", "65536", "from 0 to 65535"),
    ("--cors-allowed-origins", "chat.example", "SCHEME://HOST[:PORT]"),
    ("--cors-allowed-origins", "https://chat.example/", "without a path"),
    ("--config", "/no/such/file.toml", "cannot read"),
    ("--load-metric", "loud", "one of tokens, requests, least_requests"),
    ("--prometheus-port", "65536", "from 0 to 65535"),
    ("--prometheus-host", "no host", "give an IP address"),
    ("--prometheus-duration-buckets", "0", BUCKET),
    ("--prometheus-duration-buckets", "inf", BUCKET),
    ("--prometheus-duration-buckets", "", "give one bound or more"),
    ("--request-id-headers", "x:y", "the name of a header field"),
    ("--request-id-headers", " ", "give one name or more"),
    ("--log-level", "loud", "error, warn, info, debug"),
    ("--access-log", "xml", "text, json, off"),
    ("--cache-threshold", "1.5", "a number from 0 to 1"),
    ("--cache-threshold", "much", "a number from 0 to 1"),
    ("--balance-rel-threshold", "0.5", "a number, 1 or more"),
];

/// The message about a command line that must be refused: one line, and nothing else.
fn refusal(args: &[&str]) -> String {
    let output = run_to_end(args);
    let message = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    assert_eq!(message.trim_end().lines().count(), 1, "{args:?}: {message}");
    assert!(output.stdout.is_empty(), "{args:?}");
    message
}

#[test]
fn a_value_that_is_wrong_is_named_with_its_flag_and_what_is_allowed() {
    for &(flag, value, allowed) in REFUSED {
        let message = refusal(&[flag, value]);
        for part in [flag, value, allowed] {
            assert!(message.contains(part), "{flag} {value:?}: no {part:?} in {message}");
        }
    }
}

#[test]
fn what_is_wrong_as_a_whole_is_named_in_one_line() {
    for (args, named) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--worker-urls", "http://a:1", "ftp://b:2"], "ftp://b:2"),
        (&["--worker-urls", "http://a:1", "http://a:1/"], "`http://a:1` is given twice"),
        (&["--worker-urls", "http://a", "http://a:80"], "`http://a:80` is given twice"),
        (&["--worker-urls", "http://worker:9", "HTTP://WORKER:9"], "`HTTP://WORKER:9` is given twice"),
        (&["--worker-urls", "http://[::1]:9", "http://[0:0::1]:9"], "`http://[0:0::1]:9` is given twice"),
        (&["--extra-endpoints", "/a", "/b", "/a"], "--extra-endpoints: `/a` is given twice"),
        (
            &["--prometheus-duration-buckets", "1", "2", "2"],
            "--prometheus-duration-buckets: `2` comes after 2",
        ),
        (&["--prometheus-duration-buckets"], "--prometheus-duration-buckets"),
        (&["--request-id-headers", "--seed", "1"], "--request-id-headers"),
        (&["--queue-size", "7", "--queue-timeout-secs", "0"], "a queue of 7"),
        (&["--retry-initial-backoff-ms", "30001"], "--retry-max-backoff-ms: 30000 is less than"),
        (&["--disable-retries", "--retry-statuses", "99"], "`99`"),
        (&["--disable-circuit-breaker", "--cb-half-open-permits", "0"], "--cb-half-open-permits"),
        (&["--seed", "1", "--seed", "2"], "--seed"),
        (&["--tls-cert-path", "c.pem"], "--tls-cert-path: needs --tls-key-path beside it"),
        (&["--client-key-path", "k.pem"], "--client-key-path: needs --client-cert-path beside it"),
        (&["--admin-host", "no host", "--admin-port", "0"], "--admin-host: `no host` cannot be resolved"),
        (&["--control-plane-api-keys", "a:b:admin"], "--control-plane-api-keys: key 1 is not of the form"),
        (&["--control-plane-api-keys", "a:b:user:k a:c:admin:l"], "key 2 has the id of one before it"),
        (&["--control-plane-api-keys", "1:ci bot:admin:k"], "blanks stand between keys, and within none"),
        (&["--control-plane-api-keys", "1:a:admin:k,2:b:user:l"], "has another one behind a comma"),
        (
            &["--shutdown-pause-secs", "200", "--shutdown-grace-period-secs", "180"],
            "--shutdown-pause-secs: 200 is more than --shutdown-grace-period-secs 180",
        ),
        (
            &["--prometheus-port", "30000"],
            "--prometheus-port: 30000 is that of --port too; give each its own",
        ),
        (&["--admin-port", "29000"], "--prometheus-port: 29000 is that of --admin-port too"),
        (&["--host", "::", "--admin-port", "30000"], "--admin-port: 30000 is that of --port too"),
        (&["--host", "127.0.0.1", "--admin-port", "30000"], "--admin-port: 30000 is that of --port too"),
        (
            &["--worker-urls", "http://a:1,http://b:2"],
            "--worker-urls: there is a comma; write blanks between URLs",
        ),
        (&["--worker-urls", "http://u:secret@a:1"], "…@a:1`: a worker's URL has no user or password"),
        (
            &["--mini-lb", "--selector", "a=b", "--enable-wasm", "--no-such-flag"],
            "--mini-lb: the SGLang gateway has this option",
        ),
        (&["--dp-aware", "--enable-wasm"], "--enable-wasm: the SGLang gateway has this option"),
        (&["--cors-allowed-origins", "https://a.example", "*"], "`*` is any origin; leave the others out"),
        (
            &["--worker-urls", "http://localhost:30000"],
            "`http://localhost:30000` is where the router itself listens",
        ),
        (&["--worker-urls", "http://127.0.0.1:29000"], "the engine's port, or another --prometheus-port"),
        (&["chekc"], "'check'"),
        (&["--seed", "1", "check"], "'check' comes before all flags"),
        (&["--api-key", "a", "b"], "'b'"),
    ] {
        let message = refusal(args);
        assert!(message.contains(named), "{args:?}: {message}");
    }
}

#[test]
fn what_is_allowed_starts_the_router() {
    for args in [
        "--max-concurrent-requests -1 --queue-size 0 --queue-timeout-secs 0 --rate-limit-tokens-per-second 0",
        "--max-concurrent-requests 64 --queue-size 1 --queue-timeout-secs 1 --rate-limit-tokens-per-second 9",
        "--retry-max-retries 1 --retry-initial-backoff-ms 1 --retry-max-backoff-ms 1 --retry-backoff-multiplier 1",
        "--retry-jitter-factor 0 --retry-statuses --retry-on-reset false --retry-budget-percent 0 --retry-budget-min 0",
        "--retry-statuses 429 503 --retry-statuses 500 --disable-retries --disable-circuit-breaker",
        "--cb-failure-threshold 1 --cb-success-threshold 1 --cb-timeout-duration-secs 1 --cb-half-open-permits 9",
        "--connect-timeout-secs 0.5 --first-byte-timeout-secs 0 --stream-idle-timeout-secs 0",
        "--prometheus-duration-buckets 0.5 1 30 --request-id-headers X-Id --log-level warning --access-log json",
        "--extra-endpoints /v1/a /b --extra-endpoints /c --worker-api-key k",
        "--cors-allowed-origins * --control-plane-api-keys a:b:admin:k c:d:user:l:m --control-plane-audit-enabled",
        "--cors-allowed-origins https://a.example http://[::1]:8080 --max-connections 1 --max-header-bytes 8192",
        "--worker-warmup-secs 0 --worker-warmup-share 0 --worker-startup-timeout-secs 1 --worker-drain-timeout-secs 0",
        "--shutdown-grace-period-secs 0 --host 127.0.0.1 --prometheus-host 127.0.0.1",
        "--pd-disaggregation --prefill http://127.0.0.1:1 --decode http://127.0.0.1:2 --prefill-policy bucket --prefer-pd false",
        "--dp-aware --dp-rank-field routed_dp_rank --decode-dispatch-limit 4 --pd-least-uncached-tokens 512",
        "--shutdown-pause-secs 2 --shutdown-grace-period-secs 2 --policy power_of_two --load-metric requests",
    ] {
        let args: Vec<_> = FREE_PORTS.iter().copied().chain(args.split(' ')).collect();
        let output = run_to_end(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(output.stdout.starts_with(b"{\"listening\":"), "{args:?}");
    }
}

#[test]
fn help_is_a_word_too() {
    for (word, flag) in [(&["help"][..], &["--help"][..]), (&["help", "policies"], &["policies", "--help"])] {
        let (word, flag) = (run_to_end(word), run_to_end(flag));
        assert_eq!((word.status.code(), word.stdout), (Some(0), flag.stdout));
    }
}

#[test]
fn the_first_line_tells_the_addresses_as_they_are_bound() {
    for host in ["0.0.0.0", "127.0.0.1"] {
        let args = ["--host", host, "--prometheus-host", host, "--admin-host", host, "--admin-port", "0"];
        let output = run_to_end(&[FREE_PORTS, &args].concat());
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
        for key in ["listening", "metrics", "admin"] {
            let url = said[key].as_str().expect("a URL");
            assert!(url.starts_with(&format!("http://{host}:")), "{url}");
        }
    }
}

#[test]
fn fewer_files_than_connections_are_told_of() {
    for (connections, is_told) in [("1000000000", true), ("10", false)] {
        let output = run_to_end(&[FREE_PORTS, &["--max-connections", connections]].concat());
        let said = String::from_utf8(output.stderr).expect("text");
        let lines: Vec<_> = said.lines().filter(|line| line.contains("open files")).collect();
        assert_eq!(lines.len(), usize::from(is_told), "{said}");
        assert!(lines.iter().all(|line| line.contains("WARN") && line.contains("LimitNOFILE")), "{said}");
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
fn keys_are_repeated_nowhere() {
    let cases =
        ["--api-key", "--worker-api-key"].map(|flag| [(flag, "sk-of-ours", 0), (flag, "sk-of ours", 2)]);
    for (flag, key, code) in cases.concat() {
        let output = run_to_end(&[FREE_PORTS, &["--log-level", "debug", flag, key]].concat());
        assert_eq!(output.status.code(), Some(code));
        let said = [output.stdout, output.stderr].concat();
        assert!(!said.is_empty());
        assert!(!String::from_utf8(said).expect("text").contains("sk-of"));
    }
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let router = Router::start_limited("-S -n 64", &[], &[]);
    let [soft, hard] = router.open_file_limits();
    assert_ne!(hard, "64", "this machine's hard limit is too low for the test to show anything");
    assert_eq!(soft, hard);
}

/// Options that the gateway does not have, with their defaults. Empty: off.
const OURS: &[(&str, &str)] = &[
    ("record-trace", "none"),
    ("record-trace-max-bytes", "1073741824"),
    ("record-trace-salt-file", "none; drawn at each start"),
    ("worker-api-key", "that of --api-key; without one the client's goes on"),
    ("extra-endpoints", "none"),
    ("load-poll-interval-secs", "1"),
    ("worker-info-interval-secs", "30"),
    ("config", "none"),
    ("worker-drain-timeout-secs", "180"),
    ("worker-warmup-secs", "60"),
    ("worker-warmup-share", "1"),
    ("max-connections", "65536"),
    ("max-header-bytes", "65536"),
    ("header-read-timeout-secs", "30"),
    ("idle-connection-timeout-secs", "90"),
    ("admin-host", "127.0.0.1"),
    ("admin-port", "none; admin routes are served where clients are"),
    ("shutdown-pause-secs", "1"),
    ("seed", "drawn at each start; the log tells it"),
    ("threads", "2, or 1 on a single core"),
    ("exit-with-stdin", ""),
    ("retry-statuses", "408 429 500 502 503 504"),
    ("retry-on-reset", "true"),
    ("retry-budget-percent", "20"),
    ("retry-budget-min", "100"),
    ("cb-half-open-permits", "1"),
    ("cb-try-least-bad", ""),
    ("connect-timeout-secs", "10"),
    ("first-byte-timeout-secs", "0"),
    ("stream-idle-timeout-secs", "600"),
    ("body-idle-timeout-secs", "60"),
    ("access-log", "text"),
    ("decision-headers", ""),
    ("load-metric", "tokens"),
    ("decode-dispatch-limit", "0"),
    ("prefer-pd", "true"),
    ("pd-least-uncached-tokens", "0"),
    ("dp-rank-field", "data_parallel_rank"),
    ("balance-scope", "owner"),
    ("max-tree-bytes", "1073741824"),
];

/// What `--help` says, by option: its text on one line. The headings are under their own names.
fn help() -> Vec<(String, String)> {
    let output = run_to_end(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).expect("text");
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in help.lines() {
        if let Some(option) = line.strip_prefix("      --") {
            let name = option.split([' ', '.']).next().expect("a name");
            parts.push((name.to_owned(), line.trim().to_owned()));
        } else if line.ends_with(':') && !line.starts_with(' ') {
            parts.push((line.to_owned(), String::new()));
        } else if let Some((_, text)) = parts.last_mut().filter(|_| !line.trim().is_empty()) {
            text.push_str(&format!(" {}", line.trim()));
        }
    }
    parts
}

#[test]
fn help_lists_every_option_with_its_default() {
    let parts = help();
    let options = parts.iter().filter(|(name, _)| !name.ends_with(':'));
    let mut listed: Vec<(&str, &str)> = options
        .map(|(name, text)| {
            let default = text.rsplit_once("default: ").and_then(|(_, rest)| rest.split_once(']'));
            (name.as_str(), default.map_or("", |(default, _)| default))
        })
        .collect();
    let without_effect: Vec<_> = WITHOUT_EFFECT.iter().map(|(name, _)| (*name, "")).collect();
    let taken: Vec<_> = TAKEN.iter().chain(PAIRED).map(|(name, _, default)| (*name, *default)).collect();
    let files: Vec<_> = FILES.iter().map(|(name, _, default)| (*name, *default)).collect();
    let mut expected = [OURS, &taken, &files, &without_effect].concat();
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
}

#[test]
fn help_is_in_groups() {
    let parts = help();
    let group = |option: &str| {
        let at = parts.iter().position(|(name, _)| name == option).expect("listed");
        parts[..at].iter().rev().find(|(name, _)| name.ends_with(':')).map(|(name, _)| name.as_str())
    };
    for (option, heading) in [
        ("host", "Traffic:"),
        ("worker-urls", "Workers:"),
        ("dp-aware", "Workers:"),
        ("prefill", "Prefill and decode:"),
        ("decode-policy", "Policy options:"),
        ("exit-with-stdin", "Process:"),
        ("api-key", "Security:"),
        ("model-path", "Taken from the SGLang gateway's command lines, without effect:"),
        ("max-concurrent-requests", "Limits:"),
        ("retry-max-retries", "Retries:"),
        ("disable-retries", "Retries:"),
        ("cb-failure-threshold", "Breakers:"),
        ("health-check-endpoint", "Health:"),
        ("request-timeout-secs", "Time limits:"),
        ("access-log", "Metrics and logs:"),
        ("policy", "Policy options:"),
        ("cache-threshold", "Policy options:"),
    ] {
        assert_eq!(group(option), Some(heading), "{option}");
    }
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
