//! Whole command lines of SGLang's gateway, one for each group of its flags: what runs here runs with the workers that were
//! named, and what does not is refused in one line.

use std::path::Path;

use super::{checked, said};
use crate::common::process::{run_to_end, run_with};
use crate::common::tls::{Authority, Identity};
use crate::common::worker::dead_url;
use crate::common::{Message, Router};

/// A line without its workers, the policy that it comes to, and what `check` says of it beside.
struct Runs {
    line: &'static str,
    policy: &'static str,
    check: &'static [&'static str],
}

const fn runs(line: &'static str, policy: &'static str, check: &'static [&'static str]) -> Runs {
    Runs { line, policy, check }
}

/// `CERT`, `KEY` and `CA` stand for files, `DIR` for a directory.
const RUNS: &[Runs] = &[
    runs(
        "--policy cache_aware --cache-threshold 0.5 --balance-abs-threshold 32 --balance-rel-threshold 1.0001 \
         --max-tree-size 1000000 --eviction-interval-secs 30",
        "cache_aware",
        &[
            "cache_threshold = 0.5",
            "balance_rel_threshold = 1.0001",
            "--eviction-interval-secs has no effect",
        ],
    ),
    runs(
        "--policy power_of_two --worker-startup-timeout-secs 300 --worker-startup-check-interval 5",
        "power_of_two",
        &["worker_startup_timeout_secs = 300", "which is --load-poll-interval-secs here"],
    ),
    runs(
        "--policy manual --assignment-mode min_group --max-idle-secs 60",
        "manual",
        &["assignment_mode = \"min_group\""],
    ),
    runs(
        "--policy prefix_hash --prefix-token-count 64 --prefix-hash-load-factor 1.5",
        "prefix_hash",
        &["prefix_token_count = 64"],
    ),
    runs("--policy random --cache-threshold 0.9", "random", &["no effect under --policy random"]),
    runs(
        "--policy round_robin --disable-retries --disable-circuit-breaker --disable-health-check",
        "round_robin",
        &["disable_retries = true", "disable_health_check = true"],
    ),
    runs(
        "--retry-max-retries 3 --retry-initial-backoff-ms 100 --retry-max-backoff-ms 1000 --retry-backoff-multiplier 2.0 \
         --retry-jitter-factor 0",
        "cache_aware",
        &["retry_max_retries = 3", "retry_backoff_multiplier = 2.0"],
    ),
    runs(
        "--cb-failure-threshold 5 --cb-success-threshold 2 --cb-timeout-duration-secs 30 --cb-window-duration-secs 60",
        "cache_aware",
        &["cb_failure_threshold = 5", "--cb-window-duration-secs has no effect"],
    ),
    runs(
        "--health-failure-threshold 1 --health-success-threshold 1 --health-check-timeout-secs 2 \
         --health-check-interval-secs 10 --health-check-endpoint /health_generate",
        "cache_aware",
        &["health_check_endpoint = \"/health_generate\""],
    ),
    runs(
        "--max-concurrent-requests 256 --queue-size 128 --queue-timeout-secs 30 --rate-limit-tokens-per-second 512 \
         --max-payload-size 1048576",
        "cache_aware",
        &["max_concurrent_requests = 256", "max_payload_size = 1048576"],
    ),
    runs(
        "--log-level warn --log-dir DIR --prometheus-duration-buckets 0.1 1 10 --request-id-headers x-a x-b",
        "cache_aware",
        &["prometheus_duration_buckets = [0.1, 1, 10]", "request_id_headers = [\"x-a\", \"x-b\"]"],
    ),
    runs(
        "--request-timeout-secs 600 --shutdown-grace-period-secs 60 --cors-allowed-origins https://a.example",
        "cache_aware",
        &["request_timeout_secs = 600", "cors_allowed_origins = [\"https://a.example\"]"],
    ),
    runs(
        "--api-key sk-1 --control-plane-api-keys 1:Ada:admin:sk-2 2:Bob:user:sk-3 --control-plane-audit-enabled",
        "cache_aware",
        &["# api_key = (set)", "# control_plane_api_keys = (set)", "control_plane_audit_enabled = true"],
    ),
    runs(
        "--client-cert-path CERT --client-key-path KEY --ca-cert-paths CA",
        "cache_aware",
        &["ca_cert_paths = [\"/"],
    ),
    // sgl-project/sglang#17052, sgl-project/sglang#11601: what cannot be read is not read, and prompts are matched as text.
    runs(
        "--model-path org/m --tokenizer-path /no/such/tokenizer.json --chat-template /no/such/template \
         --reasoning-parser qwen3 --tool-call-parser kimik2 --tokenizer-cache-enable-l0",
        "cache_aware",
        &["--tokenizer-path has no effect", "--chat-template has no effect"],
    ),
    runs(
        "--enable-igw --backend sglang --history-backend none --mcp-config-path mcp.yaml",
        "cache_aware",
        &["--worker-urls still count"],
    ),
];

/// Lines that end before they begin, and what is said.
const REFUSED: &[(&str, &[&str])] = &[
    ("--worker-urls grpc://w:1 --model-path m", &["--worker-urls", "gRPC is not spoken"]),
    ("--worker-urls w:30000", &["--worker-urls", "no scheme"]),
    ("--policy cache_aware --cache-threshold 2", &["--cache-threshold", "from 0 to 1"]),
    (
        "--retry-initial-backoff-ms 1000 --retry-max-backoff-ms 10",
        &["--retry-max-backoff-ms", "give as much or more"],
    ),
    ("--queue-size 10 --queue-timeout-secs 0", &["--queue-timeout-secs", "--queue-size 0"]),
    ("--tls-cert-path cert.pem", &["--tls-cert-path", "--tls-key-path"]),
    ("--service-discovery --selector app=sglang", &["--service-discovery, --selector", "Kubernetes"]),
    (
        "--mini-lb --pd-disaggregation --policy random --prefill http://p:1 --decode http://d:1",
        &["--mini-lb", "--policy random chooses as it does"],
    ),
    (
        "--pd-disaggregation --service-discovery --prefill-selector role=p --decode-selector role=d",
        &["--service-discovery, --prefill-selector, --decode-selector", "Kubernetes"],
    ),
    (
        "--jwt-issuer https://i --jwt-audience a",
        &["--jwt-issuer, --jwt-audience", "--control-plane-api-keys"],
    ),
    ("--enable-trace --otlp-traces-endpoint localhost:4317", &["--enable-trace", "no traces are sent"]),
    ("--port 29000", &["--prometheus-port", "--port too"]),
];

fn workers(router: &Router) -> Vec<String> {
    let mut client = router.client();
    client.send("GET /workers HTTP/1.1\r\nHost: router\r\nAuthorization: Bearer sk-3\r\n\r\n");
    let list: Message = client.receive();
    assert_eq!(list.status(), 200, "{}", list.text());
    let list = list.json();
    let url = |worker: &serde_json::Value| worker["url"].as_str().expect("a URL").to_owned();
    list["workers"].as_array().expect("a list").iter().map(url).collect()
}

// sgl-project/sglang#7904
#[test]
fn a_line_of_each_group_runs_with_the_workers_that_it_names() {
    let authority = Authority::new("test authority");
    let Identity { certificate, key } = authority.identity("router");
    let directory = tempfile::tempdir().expect("a directory");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let urls = [dead_url(), dead_url()];
    for Runs { line, policy, check } in RUNS {
        let words = line.split_whitespace().map(|word| match word {
            "CERT" => path(&certificate),
            "KEY" => path(&key),
            "CA" => path(&authority.path),
            "DIR" => path(&directory.path().join("logs")),
            word => word.to_owned(),
        });
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run_to_end(&[&["check", "--worker-urls", &urls[0], &urls[1]], &words[..]].concat());
        let warnings = said(&output, 0, line);
        let told = String::from_utf8(output.stdout).expect("text") + &warnings;
        for part in check.iter().copied().chain([format!("name = \"{policy}\"").as_str()]) {
            assert!(told.contains(part), "{line}: no {part} in {told}");
        }
        assert!(!told.contains("sk-"), "{line}: {told}");
        let router = Router::start(&urls, &words);
        assert_eq!(workers(&router), urls, "{line}");
    }
}

// sgl-project/sglang#7904, sgl-project/sglang#8644, sgl-project/sglang#8395
#[test]
fn a_line_that_cannot_run_is_refused_in_one() {
    for (line, parts) in REFUSED {
        let words: Vec<&str> = line.split_whitespace().collect();
        let told = checked(&words, 2);
        assert_eq!(told.lines().count(), 1, "{line}: {told}");
        assert!(parts.iter().all(|part| told.contains(part)), "{line}: {told}");
        assert_eq!(said(&run_to_end(&words), 2, &line), told, "as a start says it");
    }
}

#[test]
fn the_environment_counts_less_than_flags_and_more_than_a_file() {
    let variables = [
        ("SGLANG_ROUTER_P2C_LOAD_METRIC", "requests"),
        ("CONTROL_PLANE_API_KEYS", "1:Ada:admin:sk-1 2:Bob:user:sk-2"),
    ];
    let check = |args: &[&str]| {
        let line =
            [&["check", "--worker-urls", "http://a:1", "http://b:1", "--policy", "power_of_two"], args]
                .concat();
        let output = run_with(&variables, &line);
        let warnings = said(&output, 0, &line);
        String::from_utf8(output.stdout).expect("text") + &warnings
    };
    let is_told = |text: &str, value: &str, source: &str| {
        text.lines().any(|line| line.starts_with(value) && line.ends_with(&format!("# {source}")))
    };
    let text = check(&[]);
    assert!(is_told(&text, "load_metric = \"requests\"", "SGLANG_ROUTER_P2C_LOAD_METRIC"), "{text}");
    assert!(is_told(&text, "# control_plane_api_keys = (set)", "CONTROL_PLANE_API_KEYS"), "{text}");
    assert!(!text.contains("sk-"), "{text}");
    let text = check(&["--load-metric", "tokens"]);
    assert!(is_told(&text, "load_metric = \"tokens\"", "--load-metric"), "{text}");
    for (name, value, told) in [
        ("SGLANG_ROUTER_P2C_LOAD_METRIC", "loud", "one of tokens, requests, least_requests"),
        ("CONTROL_PLANE_API_KEYS", "1:Ada:admin:sk-1,2:Bob:user:sk-2", "write blanks between keys"),
    ] {
        let output = run_with(&[(name, value)], &["check", "--policy", "power_of_two"]);
        let problem = said(&output, 2, &name);
        assert!(problem.starts_with(&format!("router: {name}: ")) && problem.contains(told), "{problem}");
        assert!(!problem.contains("sk-"), "{problem}");
    }
}
