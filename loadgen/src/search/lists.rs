//! Lists as they are typed behind a flag: `key=a,b,{ uniform = [0.1, 0.9] }`.

use crate::scenario::is_toml_value;

/// The parts of `text` between commas that stand in no bracket and in no quotes.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut quote, mut from) = (Vec::new(), 0_u32, None, 0);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            (',', None) if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.into_iter().map(str::trim).collect()
}

/// `KEY=V1,V2,…` as a key path of `[sweep]` and its list, as `--set` takes them. A word needs no quotes.
///
/// # Errors
/// There is no key, or a value is empty.
pub fn assignments(text: &str) -> Result<(String, String), String> {
    let usage = "write PATH=V1,V2,…, for example fleet.workers=4,8";
    let (key, values) = text.split_once('=').ok_or(usage)?;
    let key = key.trim();
    let values = parts(values);
    if key.is_empty() || values.iter().any(|value| value.is_empty()) {
        return Err(usage.to_owned());
    }
    let literal = |value: &&str| match is_toml_value(value) {
        true => (*value).to_owned(),
        false => quoted(value),
    };
    let list: Vec<String> = values.iter().map(literal).collect();
    Ok((format!("sweep.{}", quoted(key)), format!("[{}]", list.join(", "))))
}

/// A text as TOML has it.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_split_where_nothing_is_open() {
        let of = |text: &str| assignments(text).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("fleet.workers=4,8"), pair("sweep.\"fleet.workers\"", "[4, 8]"));
        assert_eq!(of("fleet.schedule = fcfs , lpm").1, "[\"fcfs\", \"lpm\"]");
        let tables = "w.match_ratio=full,{ uniform = [0.1, 0.9] }";
        assert_eq!(of(tables).1, "[\"full\", { uniform = [0.1, 0.9] }]");
        assert_eq!(of("a=\"x,y\",1.5s").1, "[\"x,y\", \"1.5s\"]");
        for wrong in ["a", "=1", "a=", "a=1,,2"] {
            assert!(assignments(wrong).is_err(), "{wrong}");
        }
    }
}
