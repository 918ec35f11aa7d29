//! The part of YAML that the shipped files keep to, read strictly: blocks, plain and quoted scalars, `|` texts.
//! Whatever is outside it is refused, so a slip of the indentation does not pass for something else.

use serde_json::{Map, Value};

/// One line with something on it.
#[derive(Debug)]
struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
}

/// The documents of a file.
pub(super) fn documents(text: &str) -> Vec<Value> {
    let texts = text.split("\n---\n");
    texts.map(|text| document(text).unwrap_or_else(|problem| panic!("{problem} in\n{text}"))).collect()
}

fn document(text: &str) -> Result<Value, String> {
    let mut lines: Vec<Line> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let content = line.trim_start_matches(' ');
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if content.starts_with('\t') || line.ends_with(' ') {
            return Err(format!("line {}: a tab, or blanks at the end", at + 1));
        }
        lines.push(Line { number: at + 1, indent: line.len() - content.len(), text: content });
    }
    let mut at = 0;
    let value = block(&mut lines, &mut at)?;
    lines.get(at).map_or(Ok(value), |line| Err(format!("line {}: the indentation fits nothing", line.number)))
}

/// The block that begins at a line, as deep as that line is.
fn block(lines: &mut [Line], at: &mut usize) -> Result<Value, String> {
    let first = lines.get(*at).ok_or("nothing there")?;
    let indent = first.indent;
    if !first.text.starts_with("- ") {
        return if split_key(first.text).is_some() {
            mapping(lines, at, indent)
        } else {
            scalar_line(lines, at)
        };
    }
    let mut items = Vec::new();
    while let Some(line) = lines.get_mut(*at).filter(|line| line.indent == indent) {
        let Some(item) = line.text.strip_prefix("- ") else { break };
        // The item is a block of its own, which begins behind the dash.
        (line.indent, line.text) = (indent + 2, item);
        items.push(block(lines, at)?);
    }
    Ok(Value::Array(items))
}

fn mapping(lines: &mut [Line], at: &mut usize, indent: usize) -> Result<Value, String> {
    let mut map = Map::new();
    while let Some(line) = lines.get(*at).filter(|line| line.indent == indent) {
        let number = line.number;
        let Some((key, rest)) = split_key(line.text) else { return Err(format!("line {number}: no key")) };
        *at += 1;
        let deeper = lines.get(*at).is_some_and(|next| next.indent > indent);
        let value = match rest {
            "|" => literal(lines, at, indent),
            "" if deeper => block(lines, at)?,
            "" => Value::Null,
            _ if deeper => return Err(format!("line {number}: a value, and then a block")),
            scalar => self::scalar(scalar).ok_or(format!("line {number}: quote {scalar}"))?,
        };
        if map.insert(key.to_owned(), value).is_some() {
            return Err(format!("line {number}: {key} is there twice"));
        }
    }
    Ok(Value::Object(map))
}

fn literal(lines: &[Line], at: &mut usize, indent: usize) -> Value {
    let mut text = String::new();
    while let Some(line) = lines.get(*at).filter(|line| line.indent > indent) {
        text.push_str(line.text);
        text.push('\n');
        *at += 1;
    }
    Value::String(text)
}

fn scalar_line(lines: &[Line], at: &mut usize) -> Result<Value, String> {
    let line = &lines[*at];
    *at += 1;
    scalar(line.text).ok_or(format!("line {}: quote {}", line.number, line.text))
}

fn split_key(text: &str) -> Option<(&str, &str)> {
    let (key, rest) = text.split_once(": ").or_else(|| Some((text.strip_suffix(':')?, "")))?;
    key.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        .then_some((key, rest.trim()))
}

/// `None` for what would have to be quoted.
fn scalar(text: &str) -> Option<Value> {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            let inner = rest.strip_suffix(quote)?;
            return (!inner.contains([quote, '\\'])).then(|| Value::String(inner.to_owned()));
        }
    }
    if text.contains(": ") || text.contains(" #") || text.starts_with(|char| "{}[]&*!|>%@`,?".contains(char))
    {
        return None;
    }
    Some(match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text.parse::<u64>().map_or_else(|_| Value::String(text.to_owned()), Value::from),
    })
}

#[test]
fn blocks_are_read_and_slips_are_refused() {
    let text =
        "a:\n  - b: 1\n    c: 'x: y'\n  - http://h:1\nd: |\n  e {f}\n  g\n---\n# only\nh:\n  i: true\n";
    let read = documents(text);
    assert_eq!(read[0], serde_json::json!({"a": [{"b": 1, "c": "x: y"}, "http://h:1"], "d": "e {f}\ng\n"}));
    assert_eq!(read[1], serde_json::json!({"h": {"i": true}}));
    for slip in
        ["a:\n   b: 1\n  c: 2", "a: 1\n  b: 2", "a: {b}", "a: b: c", "\ta: 1", "a: 1\na: 2", "a: 1\nb"]
    {
        assert!(document(slip).is_err(), "{slip}");
    }
}
