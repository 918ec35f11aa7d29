//! Which format a file has, by what it says.

use super::Format;
use super::error::Mistake;

/// How many lines may be strange before the first that says what the file is.
const LINES: usize = 20;

/// The format of the file that begins with `head`.
pub(super) fn format(head: &[u8]) -> Result<Format, Mistake> {
    let text = head.trim_ascii_start();
    if text.is_empty() {
        return Err(("the trace is empty".to_owned(), "it needs one row per request"));
    }
    if text.starts_with(b"[") {
        return of_object(&text[1..]).ok_or_else(unknown);
    }
    let starts = text.split(|byte| *byte == b'\n').take(LINES);
    let mut at = 0;
    for line in starts {
        // From here on, because an object may go over many lines.
        let found =
            if line.trim_ascii_start().starts_with(b"{") { of_object(&text[at..]) } else { of_header(line) };
        if let Some(format) = found {
            return Ok(format);
        }
        at += line.len() + 1;
    }
    Err(unknown())
}

fn unknown() -> Mistake {
    let problem = "this looks like no format that is known".to_owned();
    (problem, "see docs/traces.md for the formats; --format NAME (workload.format) chooses one")
}

/// By the header of a CSV file.
fn of_header(line: &[u8]) -> Option<Format> {
    let line = String::from_utf8_lossy(line);
    let columns: Vec<&str> = line.split(',').map(|column| column.trim().trim_matches('"')).collect();
    let all = |names: &[&str]| names.iter().all(|name| columns.contains(name));
    if all(&["TIMESTAMP", "ContextTokens", "GeneratedTokens"]) {
        Some(Format::Azure)
    } else if all(&["Timestamp", "Request tokens", "Response tokens"]) {
        Some(Format::BurstGpt)
    } else {
        None
    }
}

/// By the keys of a JSON object.
fn of_object(text: &[u8]) -> Option<Format> {
    let keys = keys(text);
    let has = |key: &str| keys.contains(&key.as_bytes());
    let any = |names: &[&str]| names.iter().any(|name| has(name));
    let all = |names: &[&str]| names.iter().all(|name| has(name));
    if has("router_trace") {
        Some(Format::Router)
    } else if all(&["chat_id", "timestamp"]) {
        Some(Format::Bailian)
    } else if any(&["conversations", "conversation"]) {
        Some(Format::ShareGpt)
    } else if has("requests") && any(&["block_size", "hash_id_scope"]) {
        Some(Format::Weka)
    } else if any(&["session_id", "delay", "block_size"]) {
        Some(Format::Aiperf)
    } else if all(&["timestamp", "input_length", "output_length", "hash_ids"]) {
        Some(Format::Mooncake)
    } else if any(&["input_length", "text_input", "messages"]) {
        Some(Format::Aiperf)
    } else {
        None
    }
}

/// The keys of the first object in `text`, which may be cut; those of objects within it do not count.
fn keys(text: &[u8]) -> Vec<&[u8]> {
    let mut keys = Vec::new();
    let (mut depth, mut at) = (0u32, 0);
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => break,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let end = string_end(text, at);
                let is_key =
                    text.get(end + 1..).is_some_and(|rest| rest.trim_ascii_start().starts_with(b":"));
                if depth == 1 && is_key {
                    keys.push(&text[at + 1..end]);
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    keys
}

/// Where the string that begins at `start` has its closing quote.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at.min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_content() {
        let cases = [
            (r#"{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}"#, "mooncake"),
            ("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n", "azure"),
            ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", "azure"),
            ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", "burstgpt"),
            ("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n", "burstgpt"),
            (
                r#"{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 1, "hash_ids": []}"#,
                "bailian",
            ),
            (
                r#"[{"id": "a", "conversations": [{"from": "human", "value": "\"requests\": {"}]}]"#,
                "sharegpt",
            ),
            ("[\n  {\n    \"id\": \"a\",\n    \"conversations\": [", "sharegpt"),
            (r#"{"session_id": "a", "input_length": 3, "output_length": 4}"#, "aiperf"),
            (r#"{"text_input": "Hello {", "output_length": 4}"#, "aiperf"),
            (
                r#"{"id": "a", "models": [], "block_size": 64, "hash_id_scope": "local", "requests": [{"t": "#,
                "weka",
            ),
            ("{\n \"id\": \"a\",\n \"block_size\": 64,\n \"requests\": []\n}", "weka"),
            (r#"{"router_trace":1,"part":0,"restated":0}"#, "router"),
            (
                "garbage\n{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}",
                "mooncake",
            ),
        ];
        for (head, name) in cases {
            assert_eq!(format(head.as_bytes()).unwrap().label(), name, "{head}");
        }
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for head in
            ["hello\n", "a,b,c\n1,2,3\n", "[1, 2]", "{\"a\": {\"chat_id\": 1, \"timestamp\": 2}}", "{\"a"]
        {
            assert!(format(head.as_bytes()).unwrap_err().0.contains("no format"), "{head}");
        }
        assert!(format(b" \n").unwrap_err().0.contains("empty"));
    }
}
