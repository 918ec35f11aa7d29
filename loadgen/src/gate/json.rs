//! A comparison as JSON, for programs. `reports/schema/comparison.schema.json` describes it.

use serde_json::{Value, json as object};

use super::comparison::{Comparison, Row};
use super::figures;

/// The version of the format.
const SCHEMA: u32 = 1;

/// All rows, worst first.
#[must_use]
pub(crate) fn json(comparison: &Comparison) -> Value {
    object!({
        "schema": SCHEMA,
        "kind": "comparison",
        "scenario": comparison.scenario,
        "outcome": comparison.outcome().word(),
        "rows": comparison.rows.iter().map(row).collect::<Vec<_>>(),
        "notes": comparison.notes,
    })
}

fn row(row: &Row) -> Value {
    object!({
        "mode": row.mode.label(),
        "policy": row.policy,
        "params": row.params,
        "metric": row.metric,
        "unit": figures::unit(&row.metric),
        "before": row.before,
        "after": row.after,
        "interval": row.interval.map(|interval| [interval.low, interval.high]),
        "p": row.p,
        "verdict": row.verdict.words(),
        "fails": row.fails(),
    })
}
