//! Every flag of SGLang's gateway (`python -m sglang_router.launch_router`, sglang_router 0.3.2) is taken, or refused by
//! its name.

use std::path::Path;

use super::checked;
use crate::common::Router;
use crate::common::tls::{Authority, Identity};

/// Flags that do what they say, each with a value that the gateway takes, and its default here: the gateway's, or why not.
/// Empty: it stands alone and is off.
pub(crate) const TAKEN: &[(&str, &str, &str)] = &[
    ("host", "127.0.0.1", "0.0.0.0"),
    ("port", "30000", "30000"),
    ("worker-urls", "http://127.0.0.1:1", "none"),
    ("policy", "manual", "cache_aware"),
    ("prefill-policy", "bucket", "--policy"),
    ("decode-policy", "random", "--policy"),
    ("dp-aware", "", ""),
    ("cache-threshold", "0.3", "0.3"),
    ("balance-abs-threshold", "64", "64"),
    ("balance-rel-threshold", "1.5", "1.5"),
    ("bucket-adjust-interval-secs", "5", "5"),
    ("max-tree-size", "67108864", "67108864"),
    ("max-idle-secs", "14400", "14400"),
    ("assignment-mode", "min_load", "random"),
    ("max-payload-size", "536870912", "536870912"),
    ("worker-startup-timeout-secs", "1800", "1800"),
    ("log-dir", "/tmp", "none"),
    ("log-level", "debug", "info"),
    ("prometheus-port", "29000", "29000"),
    ("prometheus-host", "0.0.0.0", "0.0.0.0"),
    // The gateway's end at 240.
    (
        "prometheus-duration-buckets",
        "1",
        "0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 15 30 45 60 90 120 180 240 360 600",
    ),
    ("request-id-headers", "x-id", "x-request-id x-correlation-id x-trace-id request-id"),
    ("request-timeout-secs", "1800", "1800"),
    ("shutdown-grace-period-secs", "180", "180"),
    // In the gateway any.
    ("cors-allowed-origins", "https://a.example", "none"),
    ("max-concurrent-requests", "-1", "-1"),
    ("queue-size", "100", "100"),
    ("queue-timeout-secs", "60", "60"),
    // In the gateway the bound on concurrent requests, which it makes a rate.
    ("rate-limit-tokens-per-second", "0", "0"),
    ("retry-max-retries", "5", "5"),
    ("retry-initial-backoff-ms", "50", "50"),
    ("retry-max-backoff-ms", "30000", "30000"),
    ("retry-backoff-multiplier", "1.5", "1.5"),
    ("retry-jitter-factor", "0.2", "0.2"),
    ("disable-retries", "", ""),
    ("cb-failure-threshold", "10", "10"),
    ("cb-success-threshold", "3", "3"),
    ("cb-timeout-duration-secs", "60", "60"),
    ("disable-circuit-breaker", "", ""),
    ("health-failure-threshold", "3", "3"),
    ("health-success-threshold", "2", "2"),
    ("health-check-timeout-secs", "5", "5"),
    ("health-check-interval-secs", "60", "60"),
    ("health-check-endpoint", "/health", "/health"),
    ("disable-health-check", "", ""),
    ("api-key", "k", "none is needed"),
    ("control-plane-api-keys", "id:name:admin:key", "none; --api-key is the operators' too"),
    ("control-plane-audit-enabled", "", ""),
    // Of the gateway's Rust binary.
    ("prefix-token-count", "256", "256"),
    ("prefix-hash-load-factor", "1.25", "1.25"),
];

/// Flags that need each other, as above.
pub(crate) const PAIRED: &[(&str, &str, &str)] = &[
    ("pd-disaggregation", "", ""),
    ("prefill", "http://127.0.0.1:2", "none"),
    ("decode", "http://127.0.0.1:3", "none"),
];

/// Flags that name a file, whether it is one of a key, and the default.
pub(crate) const FILES: &[(&str, bool, &str)] = &[
    ("client-cert-path", false, "none"),
    ("client-key-path", true, "none"),
    ("tls-cert-path", false, "none; clients speak plain HTTP"),
    ("tls-key-path", true, "none"),
    // In the gateway those of no system.
    ("ca-cert-paths", false, "those of the system"),
];

/// Flags that are taken and change nothing, with a value that the gateway takes.
pub(crate) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("backend", "sglang"),
    ("cb-window-duration-secs", "120"),
    ("worker-startup-check-interval", "30"),
    ("eviction-interval-secs", "60"),
    ("eviction-interval", "120"),
    ("enable-igw", ""),
    ("model-path", "m"),
    ("tokenizer-path", "t"),
    ("chat-template", "c"),
    ("tokenizer-cache-enable-l0", ""),
    ("tokenizer-cache-l0-max-entries", "10000"),
    ("tokenizer-cache-enable-l1", ""),
    ("tokenizer-cache-l1-max-memory", "52428800"),
    ("reasoning-parser", "qwen3"),
    ("tool-call-parser", "kimik2"),
    ("mcp-config-path", "mcp.yaml"),
    ("history-backend", "none"),
    ("oracle-wallet-path", "w"),
    ("oracle-tns-alias", "a"),
    ("oracle-connect-descriptor", "d"),
    ("oracle-dsn", "d"),
    ("oracle-username", "u"),
    ("oracle-user", "u"),
    ("oracle-password", "sk-of-a-store"),
    ("oracle-pool-min", "1"),
    ("oracle-pool-max", "16"),
    ("oracle-pool-timeout-secs", "30"),
    ("postgres-db-url", "postgres://u:sk-of-a-store@h/d"),
    ("postgres-pool-max", "16"),
    ("postgres-pool-max-size", "16"),
    ("redis-url", "redis://h"),
    ("redis-pool-max", "16"),
    ("redis-pool-max-size", "16"),
    ("redis-retention-days", "-1"),
    ("disable-audit-logging", ""),
];

/// Flags that would change what the router does.
const REFUSED: &[(&str, &str)] = &[
    ("mini-lb", ""),
    ("service-discovery", ""),
    ("selector", "a=b"),
    ("service-discovery-port", "80"),
    ("service-discovery-namespace", "n"),
    ("prefill-selector", "a=b"),
    ("decode-selector", "a=b"),
    ("enable-trace", ""),
    ("otlp-traces-endpoint", "localhost:4317"),
    ("jwt-issuer", "i"),
    ("jwt-audience", "a"),
    ("jwt-jwks-uri", "https://a"),
    ("jwt-role-mapping", "a=admin"),
    ("jwt-role-claim", "roles"),
    ("enable-wasm", ""),
    ("enable-mesh", ""),
    ("mesh-server-name", "n"),
    ("mesh-host", "0.0.0.0"),
    ("mesh-port", "39527"),
    ("mesh-peer-urls", "a:1"),
    // Of releases after 0.3.2.
    ("prefill-max-inflight-requests-per-worker", "8"),
    ("prefill-queue-size", "100"),
    ("prefill-queue-timeout-secs", "60"),
    ("pd-admission-wait-secs", "30"),
    ("epd-disaggregation", ""),
    ("encode", "http://127.0.0.1:4"),
    ("encode-policy", "random"),
    ("encode-selector", "a=b"),
    ("dp-minimum-tokens-scheduler", ""),
];

/// A flag with its value, if it takes one.
fn typed(name: &str, value: &str) -> Vec<String> {
    let flag = format!("--{name}");
    if value.is_empty() { vec![flag] } else { vec![flag, value.to_owned()] }
}

fn all(rows: &[(&str, &str)]) -> Vec<String> {
    rows.iter().flat_map(|(name, value)| typed(name, value)).collect()
}

fn check(args: &[String], code: i32) -> String {
    checked(&args.iter().map(String::as_str).collect::<Vec<_>>(), code)
}

#[test]
fn every_flag_that_does_something_is_taken_alone_and_with_all_others() {
    for (name, value, _) in TAKEN {
        check(&typed(name, value), 0);
    }
    let authority = Authority::new("test authority");
    let Identity { certificate, key } = authority.identity("localhost");
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let files = FILES
        .iter()
        .flat_map(|(name, is_key, _)| typed(name, &path(if *is_key { &key } else { &certificate })));
    let taken = TAKEN.iter().flat_map(|(name, value, _)| typed(name, value));
    let paired = PAIRED.iter().flat_map(|(name, value, _)| typed(name, value));
    check(&taken.chain(paired).chain(files).collect::<Vec<_>>(), 0);
}

#[test]
fn every_flag_without_effect_is_taken_and_said_to_have_none() {
    for (name, value) in WITHOUT_EFFECT {
        let said = check(&typed(name, value), 0);
        let warning = format!("router: warning: --{name} has no effect: ");
        assert_eq!(said.contains(&warning), *name != "backend", "{name}: {said}");
        assert!(!said.contains("sk-"), "{name}: {said}");
    }
    let said = check(&all(WITHOUT_EFFECT), 0);
    assert_eq!(said.matches(" has no effect: ").count(), WITHOUT_EFFECT.len() - 1, "{said}");
    assert!(!checked(&[], 0).contains("no effect"));
}

#[test]
fn a_flag_without_effect_takes_what_the_gateway_takes() {
    for (name, value, allowed) in [
        ("backend", "openai", "SGLang servers"),
        ("history-backend", "oracle", "kept by the workers"),
        ("tool-call-parser", "python", "pythonic"),
        ("cb-window-duration-secs", "0", "a whole number from 1"),
        ("redis-retention-days", "-2", "a whole number from -1"),
        ("enable-igw", "true", "true"),
    ] {
        let said = check(&typed(name, value), 2);
        assert!(said.contains(allowed) && said.lines().count() == 1, "{name}: {said}");
    }
}

#[test]
fn every_other_flag_is_refused_by_its_name_with_a_remedy() {
    for (name, value) in REFUSED {
        let said = check(&typed(name, value), 2);
        let begin = format!("router: --{name}: the SGLang gateway has this option and this router has not: ");
        assert!(said.starts_with(&begin) && said.lines().count() == 1, "{name}: {said}");
    }
}

#[test]
fn a_start_warns_of_what_has_no_effect() {
    let (mut router, log) = Router::start_logged(&[], &["--model-path", "m", "--policy", "random"]);
    router.close_stdin();
    router.wait();
    let lines = log.into_lines().join("");
    assert!(lines.contains("WARN") && lines.contains("--model-path has no effect: the workers"), "{lines}");
}
