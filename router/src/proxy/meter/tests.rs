use super::*;

/// Events, whether they end in CR LF is up to the test; and whether each is a token.
const CHAT: &[(&str, bool)] = &[
    (": ping", false),
    (r#"data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#, false),
    (r#"data: {"choices":[{"index":0,"delta":{"content":"a \"cached_tokens\": 99, \"delta\":{"}}]}"#, true),
    (r#"data: {"choices":[{"index":0,"delta":{"role":null,"content":"b","reasoning_content":null}}]}"#, true),
    (r#"data: {"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"c"}}]}"#, true),
    (r#"data:{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f"}}]}}]}"#, true),
    (r#"data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}"#, false),
    (
        r#"data: {"choices":[],"usage":{"prompt_tokens":2271,"total_tokens": 2300,"completion_tokens":29,"prompt_tokens_details":{"cached_tokens": 2135}}}"#,
        false,
    ),
    ("data: [DONE]", false),
];

const OTHERS: &[(&str, bool)] = &[
    (r#"data: {"text":"","output_ids":[],"meta_info":{"completion_tokens":0}}"#, false),
    (r#"data: {"text":" a","output_ids":[5],"meta_info":{"completion_tokens":1}}"#, true),
    (r#"data: {"text":"","output_ids":[6],"meta_info":{"completion_tokens":2}}"#, true),
    (r#"data: {"output_ids":[7]}"#, true),
    (r#"data: {"choices":[{"index":0,"text":"x","logprobs":null}]}"#, true),
    (r#"data: {"choices":[{"text":"y","index":0}]}"#, true),
    (r#"data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#, false),
    (r#"data: {"error":{"message":"no","object":{"index":0,"content":"x"}}}"#, false),
    ("data: [DONE]", false),
];

fn stream(events: &[(&str, bool)], end: &str) -> String {
    events.iter().flat_map(|(event, _)| [event, end]).collect()
}

fn tokens(events: &[(&str, bool)]) -> u32 {
    events.iter().map(|(_, token)| u32::from(*token)).sum()
}

#[test]
fn pieces_of_any_size_give_the_same_counts() {
    let counts = Counts { prompt_tokens: Some(2271), cached_tokens: Some(2135), completion_tokens: Some(29) };
    for end in ["\n\n", "\r\n\r\n"] {
        for size in [1, 2, 3, 7, 20, 48, 49, 300, 100_000] {
            let mut meter = Meter::new(true);
            let text = stream(CHAT, end);
            let seen: u32 = text.as_bytes().chunks(size).map(|chunk| meter.see(chunk)).sum();
            assert_eq!(seen, tokens(CHAT), "pieces of {size}");
            assert_eq!(meter.counts(), counts, "pieces of {size}");
            assert_eq!(meter.output_tokens(), 29);
        }
    }
}

#[test]
fn a_token_counts_with_the_chunk_that_completes_it() {
    for events in [CHAT, OTHERS] {
        let mut meter = Meter::new(true);
        for (event, token) in events {
            let event = format!("{event}\n\n");
            let (begin, end) = event.split_at(event.len() / 2);
            assert_eq!(meter.see(begin.as_bytes()), 0, "{event}");
            assert_eq!(meter.see(end.as_bytes()), u32::from(*token), "{event}");
            assert_eq!(meter.see(event.as_bytes()), u32::from(*token), "again, in one piece: {event}");
        }
    }
}

#[test]
fn an_answer_in_one_piece_has_counts_but_no_tokens_on_the_way() {
    let answer = br#" {"text":"x","meta_info":{"prompt_tokens":6,"cached_tokens":3}}"#;
    for streaming in [false, true] {
        let mut meter = Meter::new(streaming);
        assert_eq!(meter.see(answer), 0);
        assert_eq!(meter.counts().prompt_tokens, Some(6));
        assert_eq!(meter.counts().cached_tokens, Some(3));
    }
}

#[test]
fn a_stream_of_events_that_are_too_long_is_counted_by_their_beginnings() {
    let mut meter = Meter::new(true);
    let long = format!("data: {{\"text\":\"{}\"}}\n\n", "x".repeat(MAX_EVENT));
    let mut seen: u32 = long.as_bytes().chunks(1000).map(|chunk| meter.see(chunk)).sum();
    seen += meter.see(b"data: {\"text\":\"y\"}\n\ndata: [DONE]\n\n");
    assert_eq!(seen, 2);
}

/// A number below `end`, and the next state.
fn draw(state: &mut u64, end: usize) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % end
}

#[test]
fn tokens_are_what_the_shared_predicate_says() {
    let all: Vec<_> = CHAT.iter().chain(OTHERS).collect();
    for case in 0..2000 {
        let mut state = case;
        let text: String = (0..=draw(&mut state, 12))
            .map(|_| {
                let event = all[draw(&mut state, all.len())].0;
                format!("{event}{}", ["\n\n", "\r\n\r\n", "\r\r"][draw(&mut state, 9).saturating_sub(6)])
            })
            .collect();
        let bytes = text.as_bytes();
        let mut expected = 0;
        let read =
            Splitter::new(MAX_EVENT).push(bytes, |event| expected += u32::from(carries_output(event.data)));
        assert_eq!(read, Ok(()));
        let mut cuts: Vec<usize> =
            (0..draw(&mut state, 8)).map(|_| draw(&mut state, bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let mut meter = Meter::new(true);
        let seen: u32 = cuts.windows(2).map(|ends| meter.see(&bytes[ends[0]..ends[1]])).sum();
        assert_eq!(seen, expected, "case {case}: {text:?} cut at {cuts:?}");
    }
}
