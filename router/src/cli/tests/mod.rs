//! From what is typed to what the router runs with.

mod layers;

use std::num::NonZeroU32;
use std::time::Duration;

use clap::ValueEnum as _;
use router_core::{AdmissionConfig, BreakerConfig, RetryConfig};

use super::args::{Parsed, parse};
use super::observe::LogLevel;
use super::stop::Stop;
use crate::api_key::ApiKey;
use crate::config::{AccessLog, Config};
use crate::metrics::DURATION_BUCKETS;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn parsed(args: &str) -> Parsed {
    read(args).unwrap_or_else(|stop| panic!("{args}: {stop:?}"))
}

fn config(args: &str) -> Config {
    parsed(args).config
}

fn read(args: &str) -> Result<Parsed, Stop> {
    parse(std::iter::once("router").chain(args.split_whitespace()).map(Into::into), &|_| None)
}

#[test]
fn without_flags_the_core_s_defaults_hold() {
    let Parsed { config, log_level, warnings, .. } = parsed("");
    let settings = &config.settings;
    assert_eq!(settings.retry, RetryConfig::default());
    assert_eq!(settings.admission, AdmissionConfig::default());
    assert_eq!(config.breaker, Some(BreakerConfig::default()));
    assert!(!settings.decision_headers && !config.exit_with_stdin);
    assert_eq!(settings.timeouts.request, Duration::from_secs(1800));
    assert_eq!(settings.timeouts.connect, Duration::from_secs(10));
    assert_eq!(settings.timeouts.first_byte, None);
    assert_eq!(settings.timeouts.silence, Some(Duration::from_secs(600)));
    assert_eq!(settings.max_payload_size, 512 << 20);
    assert_eq!(settings.request_id_headers, ["x-request-id", "x-correlation-id", "x-trace-id", "request-id"]);
    assert_eq!(settings.duration_buckets, DURATION_BUCKETS);
    assert!(settings.extra_endpoints.is_empty());
    assert!(settings.api_key.is_none() && settings.worker_key.is_none());
    assert_eq!((settings.access_log, log_level), (AccessLog::Text, LogLevel::Info));
    assert_eq!(warnings.len(), 1, "only that there are no workers: {warnings:?}");
}

#[test]
fn who_gives_no_seed_gets_another_one_each_time() {
    assert_eq!([config("--seed 7").seed, config("--seed 7").seed], [7, 7]);
    assert_ne!(config("").seed, config("").seed);
}

#[test]
fn what_is_given_for_nothing_is_told() {
    let said = parsed("--disable-retries --retry-max-retries 3 --worker-urls http://a:1").warnings;
    assert_eq!(said, ["--retry-max-retries has no effect beside --disable-retries"]);
    assert_eq!(parsed("--retry-max-retries 3 --worker-urls http://a:1").warnings.len(), 0);
}

#[test]
fn limits_are_read() {
    for (args, expected) in [
        (
            "--max-concurrent-requests 7",
            AdmissionConfig { max_concurrent: NonZeroU32::new(7), ..AdmissionConfig::default() },
        ),
        ("--max-concurrent-requests 0", AdmissionConfig::default()),
        ("--max-concurrent-requests -5", AdmissionConfig::default()),
        (
            "--queue-size 3 --queue-timeout-secs 2",
            AdmissionConfig { queue_size: 3, queue_timeout_ns: 2 * SECOND, ..AdmissionConfig::default() },
        ),
        (
            "--queue-size 0 --queue-timeout-secs 0",
            AdmissionConfig { queue_size: 0, queue_timeout_ns: 0, ..AdmissionConfig::default() },
        ),
        (
            "--rate-limit-tokens-per-second 9",
            AdmissionConfig { tokens_per_second: NonZeroU32::new(9), ..AdmissionConfig::default() },
        ),
        ("--rate-limit-tokens-per-second 0", AdmissionConfig::default()),
    ] {
        assert_eq!(config(args).settings.admission, expected, "{args}");
    }
}

#[test]
fn retries_are_read() {
    let all = "--retry-max-retries 2 --retry-initial-backoff-ms 10 --retry-max-backoff-ms 10 \
               --retry-backoff-multiplier 1 --retry-jitter-factor 1 --retry-statuses 503 --retry-statuses 429 500 \
               --retry-on-reset false --retry-budget-percent 12.5 --retry-budget-min 0";
    let expected = RetryConfig {
        max_attempts: 2,
        initial_backoff_ns: 10 * MS,
        max_backoff_ns: 10 * MS,
        multiplier: 1.0,
        jitter: 1.0,
        statuses: [429, 500, 503].into_iter().collect(),
        on_reset: false,
        budget_percent: 12.5,
        budget_floor: 0,
    };
    assert_eq!(config(all).settings.retry, expected);
    assert_eq!(config(&format!("{all} --disable-retries")).settings.retry, RetryConfig::disabled());
    assert_eq!(config("--retry-statuses --seed 2").settings.retry.statuses.iter().count(), 0);
}

#[test]
fn the_breaker_is_read() {
    let all = "--cb-failure-threshold 1 --cb-success-threshold 2 --cb-timeout-duration-secs 3 --cb-half-open-permits 4 \
               --cb-try-least-bad";
    let expected = BreakerConfig {
        failure_threshold: 1,
        success_threshold: 2,
        open_ns: 3 * SECOND,
        half_open_permits: 4,
        try_least_bad: true,
    };
    assert_eq!(config(all).breaker, Some(expected));
    assert_eq!(config(&format!("{all} --disable-circuit-breaker")).breaker, None);
    let said = parsed("--cb-window-duration-secs 30").warnings.join(" ");
    assert!(said.contains("--cb-window-duration-secs has no effect"), "{said}");
}

#[test]
fn timeouts_are_read() {
    let timeouts = config(
        "--request-timeout-secs 5 --connect-timeout-secs 0.5 --first-byte-timeout-secs 1.5 --stream-idle-timeout-secs 0",
    )
    .settings
    .timeouts;
    assert_eq!(timeouts.request, Duration::from_secs(5));
    assert_eq!(timeouts.connect, Duration::from_millis(500));
    assert_eq!(timeouts.first_byte, Some(Duration::from_millis(1500)));
    assert_eq!(timeouts.silence, None);
}

#[test]
fn health_is_read() {
    let health = config(
        "--health-failure-threshold 4 --health-success-threshold 5 --health-check-timeout-secs 6 \
         --health-check-interval-secs 7 --health-check-endpoint /health_generate",
    );
    assert_eq!(health.settings.recovery_secs, 5);
    let health = health.health.expect("probes");
    assert_eq!((health.failure_threshold, health.success_threshold), (4, 5));
    assert_eq!((health.timeout, health.interval), (Duration::from_secs(6), Duration::from_secs(7)));
    assert_eq!(health.path, "/health_generate");
    assert!(config("--disable-health-check").health.is_none());
}

#[test]
fn the_worker_s_key_is_the_client_s_unless_it_has_its_own() {
    let key = ApiKey::new;
    for (args, client, worker) in [
        ("--api-key a", key("a"), key("a")),
        ("--api-key a --worker-api-key b", key("a"), key("b")),
        ("--worker-api-key b", None, key("b")),
    ] {
        let settings = config(args).settings;
        assert_eq!((settings.api_key, settings.worker_key), (client, worker), "{args}");
    }
}

#[test]
fn lists_are_read_in_any_form() {
    let settings = config(
        "--prometheus-duration-buckets 0.5 1 --prometheus-duration-buckets 2e1 --request-id-headers X-Id b \
         --extra-endpoints /v1/a --seed 3 --extra-endpoints /b /c",
    )
    .settings;
    assert_eq!(settings.duration_buckets, [0.5, 1.0, 20.0]);
    assert_eq!(settings.request_id_headers, ["x-id", "b"]);
    assert_eq!(settings.extra_endpoints, ["/v1/a", "/b", "/c"]);
    let one_argument = ["router", "--prometheus-duration-buckets", "1  2\n3"].map(Into::into);
    let buckets =
        parse(one_argument.into_iter(), &|_| None).expect("one argument").config.settings.duration_buckets;
    assert_eq!(buckets, [1.0, 2.0, 3.0]);
}

#[test]
fn log_levels_and_forms_are_read() {
    for (name, level) in [("error", LogLevel::Error), ("warn", LogLevel::Warn), ("info", LogLevel::Info)] {
        assert_eq!(parsed(&format!("--log-level {name}")).log_level, level);
    }
    assert_eq!(parsed("--log-level debug").log_level, LogLevel::Debug);
    assert_eq!(parsed("--log-level warning").log_level, LogLevel::Warn);
    for level in LogLevel::value_variants() {
        assert!(level.filter().parse::<tracing_subscriber::filter::LevelFilter>().is_ok(), "{level:?}");
    }
    for (name, form) in [("off", AccessLog::Off), ("text", AccessLog::Text), ("json", AccessLog::Json)] {
        assert_eq!(config(&format!("--access-log {name}")).settings.access_log, form);
    }
}
