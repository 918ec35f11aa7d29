//! What a scenario asks now and did not ask when its baseline was recorded, setting by setting.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Most settings that a message names.
const MOST_NAMED: usize = 6;
/// Most characters of a value in a message.
const MOST_CHARS: usize = 60;

/// The settings of a scenario by their paths, as typed.
type Asked = BTreeMap<String, Value>;

/// The settings that differ, such as `fleet.workers: 8 → 6`.
pub(super) fn words(before: &Asked, after: &Asked) -> String {
    if before.is_empty() {
        return "which of them, it does not say".into();
    }
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    let changes: Vec<String> =
        differ.map(|key| format!("{key}: {} → {}", shown(before.get(key)), shown(after.get(key)))).collect();
    match changes.len() {
        0 => "its fingerprint is another, though all settings are the same".into(),
        all if all > MOST_NAMED => {
            format!("{} and {} more", changes[..MOST_NAMED].join(", "), all - MOST_NAMED)
        }
        _ => changes.join(", "),
    }
}

/// A value, or as much of it as helps.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "unset".into() };
    let text = value.to_string();
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of<const N: usize>(settings: [(&str, Value); N]) -> Asked {
        settings.map(|(key, value)| (key.to_owned(), value)).into()
    }

    #[test]
    fn what_differs_is_told_with_both_values() {
        let before = of([("arrival.kind", json!("burst")), ("fleet.workers", json!(8)), ("same", json!(1))]);
        let after = of([("fleet.workers", json!(6)), ("same", json!(1)), ("slo.ttft", json!("1s"))]);
        let expected = "arrival.kind: \"burst\" → unset, fleet.workers: 8 → 6, slo.ttft: unset → \"1s\"";
        assert_eq!(words(&before, &after), expected);
        assert!(words(&of([]), &after).contains("does not say"));
        assert!(words(&after, &after).contains("all settings are the same"));
    }

    #[test]
    fn long_tales_are_cut() {
        let of = |value: Value| (0..9).map(|i| (format!("k{i}"), value.clone())).collect::<Asked>();
        let text = words(&of(json!(1)), &of(json!("ä".repeat(500))));
        assert!(text.ends_with("and 3 more") && text.chars().count() < 500, "{text}");
    }
}
