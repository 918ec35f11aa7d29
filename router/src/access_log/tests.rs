use super::*;

/// 2026-11-30T00:48:13.123Z.
const TIME_MS: u64 = 1_795_999_693_123;

fn text(record: &Record<'_>) -> String {
    String::from_utf8(record.line(false, TIME_MS)).expect("text")
}

fn json(record: &Record<'_>) -> String {
    String::from_utf8(record.line(true, TIME_MS)).expect("text")
}

fn streamed() -> Record<'static> {
    Record {
        request_id: b"chatcmpl-1",
        method: "POST",
        path: "/v1/chat/completions",
        model: Some("org/model"),
        streaming: true,
        status: Some(200),
        error_code: "",
        end: "complete",
        attempts: 2,
        decision: Some(Decision {
            worker: "http://127.0.0.1:30001",
            policy: "cache_aware",
            reason: "cache_hit",
            matched: Some(Matched { chars: 4000, prompt_chars: 8000, predicted_tokens: 1000 }),
        }),
        prefill: None,
        failed: None,
        estimated_prompt_tokens: Some(2000),
        prompt_tokens: Some(2010),
        cached_tokens: Some(996),
        output_tokens: Some(128),
        queue_ns: Some(0),
        first_token_ns: Some(85_004_999),
        duration_ns: 2_500_000_000,
        bytes: 37_120,
    }
}

fn refused() -> Record<'static> {
    Record {
        request_id: b"gnt-2",
        method: "POST",
        path: "/generate",
        status: Some(429),
        error_code: "queue_full",
        end: "refused",
        estimated_prompt_tokens: Some(3),
        duration_ns: 1_000,
        ..Record::default()
    }
}

fn gone() -> Record<'static> {
    Record { method: "POST", path: "/generate", end: "client_gone", duration_ns: 999, ..Record::default() }
}

#[test]
fn a_request_is_one_line_of_text() {
    let cases = [
        (
            streamed(),
            "2026-11-30T00:48:13.123Z  INFO access: request_id=chatcmpl-1 method=POST path=/v1/chat/completions \
             model=org/model stream=true status=200 end=complete attempts=2 worker=http://127.0.0.1:30001 \
             policy=cache_aware reason=cache_hit matched_chars=4000 prompt_chars=8000 \
             predicted_cached_tokens=1000 estimated_prompt_tokens=2000 prompt_tokens=2010 cached_tokens=996 \
             output_tokens=128 queue_ms=0.000 ttft_ms=85.004 duration_ms=2500.000 bytes=37120\n",
        ),
        (
            refused(),
            "2026-11-30T00:48:13.123Z  INFO access: request_id=gnt-2 method=POST path=/generate stream=false \
             status=429 error_code=queue_full end=refused attempts=0 estimated_prompt_tokens=3 \
             duration_ms=0.001 bytes=0\n",
        ),
        (
            gone(),
            "2026-11-30T00:48:13.123Z  INFO access: request_id=\"\" method=POST path=/generate stream=false \
             end=client_gone attempts=0 duration_ms=0.000 bytes=0\n",
        ),
    ];
    for (record, expected) in cases {
        assert_eq!(text(&record), expected);
    }
}

#[test]
fn a_request_is_one_object_of_json() {
    let cases = [
        (
            streamed(),
            r#"{"time":"2026-11-30T00:48:13.123Z","level":"info","log":"access","request_id":"chatcmpl-1","method":"POST","path":"/v1/chat/completions","model":"org/model","stream":true,"status":200,"end":"complete","attempts":2,"worker":"http://127.0.0.1:30001","policy":"cache_aware","reason":"cache_hit","matched_chars":4000,"prompt_chars":8000,"predicted_cached_tokens":1000,"estimated_prompt_tokens":2000,"prompt_tokens":2010,"cached_tokens":996,"output_tokens":128,"queue_ms":0.000,"ttft_ms":85.004,"duration_ms":2500.000,"bytes":37120}"#,
        ),
        (
            refused(),
            r#"{"time":"2026-11-30T00:48:13.123Z","level":"info","log":"access","request_id":"gnt-2","method":"POST","path":"/generate","stream":false,"status":429,"error_code":"queue_full","end":"refused","attempts":0,"estimated_prompt_tokens":3,"duration_ms":0.001,"bytes":0}"#,
        ),
    ];
    for (record, expected) in cases {
        assert_eq!(json(&record), format!("{expected}\n"));
    }
}

#[test]
fn nothing_from_outside_ends_a_line_or_begins_a_field() {
    let long = "x".repeat(100_000);
    let hostile: [&[u8]; 9] = [
        b"a\nb 2026-01-01T00:00:00.000Z  INFO access: status=200",
        b"a b=c",
        b"\"}\n{\"end\":\"complete\"",
        b"\x1b[31m\x7f\r\0",
        "\u{85}\u{9b}\u{2028}\u{2029}".as_bytes(),
        b"\xff\xfe broken \xe2\x82",
        "größe".as_bytes(),
        b"\\",
        long.as_bytes(),
    ];
    for value in hostile {
        let model = String::from_utf8_lossy(value);
        let record = Record { request_id: value, model: Some(&model), path: &model, ..streamed() };
        for line in [text(&record), json(&record)] {
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            assert!(!line.trim_end().contains(|c: char| c.is_control() || "\u{2028}\u{2029}".contains(c)));
            assert!(line.len() < 2000, "{}", line.len());
        }
        let line = json(&record);
        let parsed: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let cut = String::from_utf8_lossy(&value[..value.len().min(128)]).into_owned();
        assert_eq!(parsed["request_id"], cut);
        assert_eq!(parsed["end"], "complete");
        assert_eq!(fields(&text(&record)), fields(&text(&streamed())), "the same keys, no more");
    }
}

/// The keys of a text line, as a reader that knows quotation marks finds them.
fn fields(line: &str) -> Vec<String> {
    let (mut keys, mut word) = (Vec::new(), String::new());
    let (mut quoted, mut escaped) = (false, false);
    for char in line.chars() {
        match char {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' if !quoted => word.clear(),
            '=' if !quoted => keys.push(std::mem::take(&mut word)),
            _ => word.push(char),
        }
    }
    keys
}

#[test]
fn both_legs_are_told_each_under_names_of_its_own() {
    let prefill = Decision {
        worker: "http://127.0.0.1:30002@1",
        policy: "cache_aware",
        reason: "cache_hit",
        matched: Some(Matched { chars: 7, prompt_chars: 9, predicted_tokens: 2 }),
    };
    let decision = Decision { worker: "http://d", policy: "round_robin", reason: "in_turn", matched: None };
    let line = json(&Record { decision: Some(decision), prefill: Some(prefill.clone()), ..refused() });
    for part in [
        r#""worker":"http://d","policy":"round_robin","reason":"in_turn","prefill_worker":"http://127.0.0.1:30002@1""#,
        r#""prefill_policy":"cache_aware","prefill_reason":"cache_hit","prefill_matched_chars":7"#,
        r#""prefill_prompt_chars":9,"prefill_predicted_cached_tokens":2"#,
    ] {
        assert!(line.contains(part), "{line}");
    }
    // What engines tell as cached is compared with what was expected of the prefill worker.
    let (decision, prefill) = (Some(prefill.clone()), Some(Decision { matched: None, ..prefill }));
    let line = json(&Record { decision, prefill, ..refused() });
    assert!(
        line.contains(
            r#","decode_matched_chars":7,"decode_prompt_chars":9,"decode_predicted_cached_tokens":2"#
        ),
        "{line}"
    );
    assert!(!line.contains(r#","predicted_cached_tokens""#), "{line}");
}

#[test]
fn the_leg_that_failed_last_is_named_with_its_worker() {
    let line = text(&Record { failed: Some(("decode", "http://d b")), ..refused() });
    assert!(line.contains(r#" failed_leg=decode failed_worker="http://d b" "#), "{line}");
}
