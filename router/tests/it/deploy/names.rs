//! Metrics that the shipped files name are those that a router shows.

use serde_json::Value;

use super::exposed::Exposed;
use super::promql::{self, Selector};
use super::{text, yaml};

/// Labels that Prometheus adds to what it scrapes.
const OF_THE_TARGET: [&str; 2] = ["job", "instance"];

/// Checks names, labels and values of an expression.
pub(super) fn check(expr: &str, origin: &str) {
    let exposed = Exposed::shared();
    let read = promql::read(expr);
    assert!(!read.selectors.is_empty(), "{origin} reads nothing: {expr}");
    let own: Vec<&Selector> = read.selectors.iter().filter(|selector| selector.name != "up").collect();
    for Selector { name, matchers } in &own {
        let shown = exposed.labels(name);
        let shown = shown.unwrap_or_else(|| panic!("{origin}: a router shows no {name}: {expr}"));
        for (label, operator, value) in matchers {
            if OF_THE_TARGET.contains(&label.as_str()) {
                continue;
            }
            let values = shown.get(label).unwrap_or_else(|| panic!("{origin}: {name} has no label {label}"));
            for value in value.split('|').filter(|_| ["=", "=~"].contains(&operator.as_str())) {
                assert!(values.contains(value), "{origin}: {name} never has {label}={value}, but {values:?}");
            }
        }
    }
    for label in &read.grouping {
        let known = OF_THE_TARGET.contains(&label.as_str())
            || own
                .iter()
                .all(|selector| exposed.labels(&selector.name).is_some_and(|it| it.contains_key(label)));
        assert!(known, "{origin} groups by {label}, which not all have: {expr}");
    }
}

/// The words that are metrics' names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '_'))
        .filter(|word| word.starts_with("smg_"))
}

#[test]
fn alerts_look_at_what_there_is() {
    let alerts = yaml::documents(&text("deploy/prometheus/alerts.yml")).remove(0);
    let rules: Vec<&Value> = alerts["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"))
        .collect();
    assert!(rules.len() > 5, "{rules:?}");
    let tests = text("deploy/prometheus/alerts.test.yml");
    let tested: Vec<&str> =
        tests.lines().filter_map(|line| line.trim().strip_prefix("- alertname: ")).collect();
    for rule in &rules {
        let name = rule["alert"].as_str().expect("a name");
        check(rule["expr"].as_str().expect("an expression"), name);
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().expect("a severity")));
        assert!(rule["annotations"]["summary"].is_string() && rule["for"].is_string(), "{name}");
    }
    for name in tested {
        assert!(rules.iter().any(|rule| rule["alert"] == name), "{name} is tested and not there");
    }
}

#[test]
fn prometheus_scrapes_the_default_ports() {
    let config = yaml::documents(&text("deploy/prometheus/prometheus.yml")).remove(0);
    assert_eq!(config["rule_files"], serde_json::json!(["alerts.yml"]));
    let jobs = config["scrape_configs"].as_array().expect("jobs");
    let targets = |job: &str| {
        let found =
            jobs.iter().find(|entry| entry["job_name"] == job).unwrap_or_else(|| panic!("no job {job}"));
        (found["static_configs"][0]["targets"][0].clone(), found["metrics_path"].clone())
    };
    let port = super::default_of("--prometheus-port");
    assert_eq!(targets("router"), (format!("127.0.0.1:{port}").into(), Value::Null));
    let port = super::default_of("--port");
    assert_eq!(targets("sglang-engines"), (format!("127.0.0.1:{port}").into(), "/engine_metrics".into()));
}

#[test]
fn pages_name_metrics_that_there_are() {
    for page in ["docs/OPERATIONS.md", "README.md", "CHANGELOG.md"] {
        let text = text(page);
        for paragraph in text.split("\n\n") {
            // A family of names that are not there ends in an underscore.
            let is_shown = !paragraph.starts_with("Not among the metrics here:");
            for name in names(paragraph) {
                assert_eq!(Exposed::shared().has(name), is_shown, "{page}: {name}");
            }
        }
    }
    assert!(names(&text("docs/OPERATIONS.md")).count() > 5, "the page names what to look at");
}
