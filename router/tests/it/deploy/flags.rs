//! Flags that shipped files and pages name are flags of the router, and links lead somewhere.

use std::collections::BTreeSet;

use super::{help, shipped, text};
use crate::common::process::run_to_end;

/// Flags of other programs, as they stand in commands.
const OF_OTHERS: &[&str] = &[
    "--cacert",
    "--compat",
    "--disable-radix-cache",
    "--disaggregation-bootstrap-port",
    "--disaggregation-decode-enable-radix-cache",
    "--disaggregation-mode",
    "--download",
    "--enable-dp-attention",
    "--enable-hierarchical-cache",
    "--enable-metrics",
    "--health-at-once",
    "--jitter",
    "--kv-events-config",
    "--kv-link",
    "--legacy-loads",
    "--load-balance-method",
    "--locked",
    "--model-path",
    "--name",
    "--network",
    "--now",
    "--pd-admission-wait-secs",
    "--prefill-max-inflight-requests-per-worker",
    "--prefill-queue-size",
    "--prefill-queue-timeout-secs",
    "--prefill-workers",
    "--preset",
    "--release",
    "--served-model-name",
    "--system",
    "--time",
    "--token-overhead",
];

/// Files whose flags are looked at.
const FILES: &[&str] = &[
    "docs/OPERATIONS.md",
    "CHANGELOG.md",
    "deploy/systemd/router.service",
    "deploy/kubernetes/router.yaml",
    "deploy/prometheus/prometheus.yml",
    "deploy/grafana/router.json",
];

/// Words that begin with two dashes and a letter. One that ends in a dash is the beginning of several.
fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '-'));
    let flags = words.filter(|word| {
        word.strip_prefix("--").is_some_and(|name| name.starts_with(|char: char| char.is_ascii_lowercase()))
    });
    flags.filter(|word| !word.ends_with('-')).map(str::to_owned).collect()
}

#[test]
fn every_flag_that_is_named_exists() {
    let known = flags(&help(&["--help"]));
    let of_launch = flags(&help(&["launch", "--help"]));
    assert!(known.contains("--worker-urls"), "{known:?}");
    for file in FILES {
        for flag in flags(&text(file)) {
            let is_known =
                known.contains(&flag) || of_launch.contains(&flag) || OF_OTHERS.contains(&flag.as_str());
            assert!(is_known, "{file}: {flag} is no flag of the router");
        }
    }
}

#[test]
fn links_of_the_pages_lead_to_files() {
    for (folder, page) in [("", "README.md"), ("", "CHANGELOG.md"), ("docs/", "docs/OPERATIONS.md")] {
        let text = text(page);
        for link in text.split("](").skip(1).map(|rest| rest.split([')', '#']).next().expect("an end")) {
            let is_far = link.is_empty() || link.contains("://");
            assert!(is_far || shipped(&format!("{folder}{link}")).exists(), "{page}: {link} leads nowhere");
        }
    }
}

#[test]
fn the_shipped_configuration_is_one() {
    let file = shipped("deploy/systemd/router.toml");
    let checked = run_to_end(&["check", "--config", file.to_str().expect("UTF-8")]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}
