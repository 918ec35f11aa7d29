//! The Grafana dashboard: what Grafana would silently bend or hide.

use std::collections::BTreeSet;

use serde_json::Value;

use super::names;

/// Width of Grafana's grid.
const COLUMNS: u64 = 24;

fn dashboard() -> Value {
    serde_json::from_str(&super::text("deploy/grafana/router.json")).expect("JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is no list")).as_slice()
}

fn title(panel: &Value) -> &str {
    panel["title"].as_str().filter(|title| !title.is_empty()).unwrap_or_else(|| panic!("no title: {panel}"))
}

/// Columns and rows of a panel, each from and to.
fn place(panel: &Value) -> [u64; 4] {
    let at =
        |key: &str| panel["gridPos"][key].as_u64().unwrap_or_else(|| panic!("{}: no {key}", title(panel)));
    [at("x"), at("x") + at("w"), at("y"), at("y") + at("h")]
}

#[test]
fn every_expression_reads_what_there_is() {
    for panel in list(&dashboard(), "panels").iter().filter(|panel| panel["type"] != "row") {
        let mut names = BTreeSet::new();
        assert!(!list(panel, "targets").is_empty(), "{} shows nothing", title(panel));
        for target in list(panel, "targets") {
            let expr = target["expr"].as_str().unwrap_or_else(|| panic!("{}: no expr", title(panel)));
            names::check(expr, title(panel));
            let selected = r#"{job="$job",instance=~"$instance""#;
            assert_eq!(
                expr.matches("smg_").count(),
                expr.matches(selected).count(),
                "not by the variables: {expr}"
            );
            assert!(
                names.insert(target["refId"].as_str().expect("a name")),
                "{}: a refId twice",
                title(panel)
            );
            check_legend(target["legendFormat"].as_str().expect("a legend"), expr);
        }
    }
}

/// The labels of a legend are those that the expression leaves.
fn check_legend(legend: &str, expr: &str) {
    for label in legend.split("{{").skip(1).map(|part| part.split("}}").next().expect("an end")) {
        let grouping = super::promql::read(expr).grouping;
        assert!(grouping.iter().any(|left| left == label), "`{legend}` of {expr}");
    }
}

#[test]
fn panels_have_ids_of_their_own_and_do_not_overlap() {
    let dashboard = dashboard();
    let panels = list(&dashboard, "panels");
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.len(), panels.len());
    for (at, panel) in panels.iter().enumerate() {
        let [left, right, top, bottom] = place(panel);
        assert!(left < right && right <= COLUMNS && top < bottom, "{}", title(panel));
        for other in &panels[at + 1..] {
            let [other_left, other_right, other_top, other_bottom] = place(other);
            let apart =
                right <= other_left || other_right <= left || bottom <= other_top || other_bottom <= top;
            assert!(apart, "{} and {}", title(panel), title(other));
        }
    }
}

#[test]
fn rows_come_in_the_order_of_the_questions() {
    let dashboard = dashboard();
    let rows = list(&dashboard, "panels").iter().filter(|panel| panel["type"] == "row").map(title);
    let expected = [
        "At a glance",
        "Traffic",
        "Latency",
        "Cache",
        "Balance across workers",
        "Prefill and decode",
        "Queue and rejections",
        "Retries",
        "Workers: health and breakers",
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    let known: Vec<&str> = list(&dashboard["templating"], "list")
        .iter()
        .map(|it| it["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(known, ["datasource", "job", "instance"]);
}
