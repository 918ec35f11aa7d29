use protocol::output::carries_output;

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

/// Events of `/v1/responses`; the type stands first, last, or elsewhere.
const RESPONSES: &[(&str, bool)] = &[
    (
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"max_output_tokens\":512,\"usage\":null,\
        \"metadata\":{\"n\":\"1\",\"delta\":\"x\",\"text\":\"x\"}}}",
        false,
    ),
    (
        "event: response.in_progress\ndata: {\"response\":{\"metadata\":{\"type\":\"response.a.delta\",\"delta\":\"x\"}},\
        \"sequence_number\":1,\"type\":\"response.in_progress\"}",
        false,
    ),
    (
        "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"item\":{\"content\":[]}}",
        false,
    ),
    (
        "event: response.content_part.added\ndata: {\"part\":{\"text\":\"\"},\"type\":\"response.content_part.added\"}",
        false,
    ),
    (
        r#"data: {"type":"response.reasoning_text.delta","delta":"hm, \"type\":\"response.done\" \"input_tokens\": 7,"}"#,
        true,
    ),
    (r#"data:{"delta":"so","type":"response.reasoning_summary_text.delta"}"#, true),
    (
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"delta\":\"Hi\"}",
        true,
    ),
    (
        "event: response.output_text.delta\ndata: {\"content_index\":0,\"delta\":\" you\",\"logprobs\":[],\
        \"type\":\"response.output_text.delta\"}",
        true,
    ),
    (
        "event: response.output_text.delta\ndata: {\"content_index\":0,\"delta\":\"\",\"type\":\"response.output_text.delta\"}",
        false,
    ),
    (
        "data: {\"type\": \"response.function_call_arguments.delta\", \"delta\": \"{\"}\nevent: response.function_call_arguments.delta",
        true,
    ),
    (r#"data: {"n":1,"delta":"no","type":"response.refusal.delta","m":2}"#, true),
    (
        "event: response.output_text.done\ndata: {\"text\":\"Hi you\",\"type\":\"response.output_text.done\",\"n\":3}",
        false,
    ),
    (r#"data: {"type":"response.output_text.done","index":0,"text":"Hi you"}"#, false),
    (r#"data: {"text": "Hi you", "type": "response.output_text.done"}"#, false),
    (r#"data: {"part":{"index":0,"text":"Hi you"},"type":"response.content_part.done"}"#, false),
    (r#"data: {"type":"response.output_item.done","item":{"content":[{"index":0,"text":"Hi"}]}}"#, false),
    (
        "event: response.completed\ndata: {\"response\":{\"max_output_tokens\":512,\"output\":[{\"text\":\"Hi you\"}],\
        \"usage\":{\"input_tokens\":2271,\"input_tokens_details\":{\"cached_tokens\":2135},\"output_tokens\":29,\
        \"output_tokens_details\":{\"reasoning_tokens\":5},\"total_tokens\":2300}},\"type\":\"response.completed\"}",
        false,
    ),
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
    for (events, end) in [(CHAT, "\n\n"), (CHAT, "\r\n\r\n"), (RESPONSES, "\n\n"), (RESPONSES, "\r\n\r\n")] {
        for size in [1, 2, 3, 7, 20, 48, 49, 300, 100_000] {
            let mut meter = Meter::new(true);
            let text = stream(events, end);
            let seen: u32 = text.as_bytes().chunks(size).map(|chunk| meter.see(chunk)).sum();
            assert_eq!(seen, tokens(events), "pieces of {size}");
            assert_eq!(meter.counts(), counts, "pieces of {size}");
            assert_eq!(meter.output_tokens(), 29);
        }
    }
}

#[test]
fn a_token_counts_with_the_chunk_that_completes_it() {
    for events in [CHAT, OTHERS, RESPONSES] {
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
fn what_is_no_whole_number_that_can_be_is_no_count() {
    for (said, count) in [
        ("12", Some(12)),
        ("12 ", Some(12)),
        ("4294967296", Some(1 << 32)),
        ("4294967297", None),
        ("18446744073709551616", None),
        ("1e3", None),
        ("1.9", None),
        ("0x10", None),
        ("-1", None),
        ("\"12\"", None),
        ("null", None),
    ] {
        let text = format!("{{\"meta_info\":{{\"prompt_tokens\":20,\"cached_tokens\":{said}}}}}");
        assert_eq!(
            number_after(text.split_once("cached_tokens\"").expect("it is there").1.as_bytes()),
            count,
            "{said}"
        );
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
fn a_response_in_one_piece_has_the_counts_of_its_own_names() {
    let answer = br#"{"id":"resp_1","object":"response","max_output_tokens":512,"output":[{"type":"message","content":
        [{"type":"output_text","text":"say \"output_tokens\": 9,"}]}],"usage":{"input_tokens":2271,"input_tokens_details":
        {"cached_tokens":2135},"output_tokens":29,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":2300}}"#;
    for size in [1, 5, 40, 1000] {
        let mut meter = Meter::new(false);
        assert!(answer.chunks(size).all(|chunk| meter.see(chunk) == 0));
        let expected =
            Counts { prompt_tokens: Some(2271), cached_tokens: Some(2135), completion_tokens: Some(29) };
        assert_eq!(meter.counts(), expected, "pieces of {size}");
    }
}

#[test]
fn whole_events_are_read_where_they_lie() {
    let event =
        "event: response.refusal.delta\ndata: {\"type\":\"response.refusal.delta\",\"delta\":\"no\"}\n\n";
    assert_eq!(whole_events(event.repeat(3).as_bytes()), Some(3));
    for other in ["event: x\n\n", "event: x\r\ndata: {}\n\n", "event: x\nevent: y\ndata: {}\n\n", "event: x"]
    {
        assert_eq!(whole_events(other.as_bytes()), None, "{other:?}");
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
    let all = [CHAT, OTHERS, RESPONSES].concat();
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
