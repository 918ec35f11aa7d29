use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn asked(dialect: Dialect, body: &str) -> Asked {
    Asked::read(dialect, body.as_bytes()).expect("not too many")
}

fn list(of: &str, length: usize) -> String {
    format!("[{}]", vec![of; length].join(","))
}

// sgl-project/sglang#5531
#[test]
fn a_batch_is_as_long_as_its_list_of_prompts_or_else_as_the_answers_to_one() {
    use Dialect::{Chat, Completions, Generate};
    use Items::{Batch, Single};
    for length in [1, 2, 33] {
        for (dialect, body) in [
            (Generate, format!(r#"{{"text":{}}}"#, list(r#""a, [b""#, length))),
            (Generate, format!(r#"{{"input_ids":{}}}"#, list("[1,2,3]", length))),
            (Generate, format!(r#"{{"input_embeds":{}}}"#, list("[[0.5,1]]", length))),
            (Completions, format!(r#"{{"prompt":{}}}"#, list(r#""a""#, length))),
            (Completions, format!(r#"{{"prompt":{}}}"#, list("[1,2,3]", length))),
        ] {
            assert_eq!(asked(dialect, &body).items, Batch(length), "{body}");
        }
    }
    for (dialect, body, items) in [
        (Generate, r#"{"text":"a"}"#, Single),
        (Generate, r#"{"input_ids":[1,2,3]}"#, Single),
        (Generate, r#"{"input_embeds":[[0.5,1],[1,2]]}"#, Single),
        (Generate, r#"{"text":[]}"#, Single),
        (Generate, r#"{"input_ids":[[]]}"#, Batch(1)),
        (Generate, r#"{"text":"a","sampling_params":{"n":1}}"#, Single),
        (Generate, r#"{"text":"a","sampling_params":{"n":3}}"#, Batch(3)),
        (Generate, r#"{"text":["a","b"],"sampling_params":[{"n":3},{"n":3}]}"#, Batch(2)),
        (Generate, r#"{"input_ids":[[1],[2]],"sampling_params":{"n":3}}"#, Batch(2)),
        (Generate, r#"{"text":"a","n":3}"#, Single),
        (Completions, r#"{"prompt":[1,2,3]}"#, Single),
        (Completions, r#"{"prompt":"a","n":2}"#, Batch(2)),
        (Completions, r#"{"prompt":["a","b"],"n":2}"#, Batch(2)),
        (Completions, r#"{"prompt":["a"],"n":2}"#, Batch(1)),
        (Completions, r#"{"prompt":["a"],"n":1e300}"#, Batch(1)),
        (Completions, r#"{"prompt":[1,2],"n":2}"#, Batch(2)),
        (Chat, r#"{"messages":[{"role":"user","content":"a"},{}]}"#, Single),
        (Chat, r#"{"messages":[],"n":1}"#, Single),
        (Chat, r#"{"messages":[],"n":null}"#, Single),
        (Chat, r#"{"messages":[],"n":0}"#, Single),
        (Chat, r#"{"messages":[],"n":-4}"#, Single),
        (Chat, r#"{"messages":[],"n":"5"}"#, Single),
        (Chat, r#"{"messages":[],"n":4}"#, Batch(4)),
        (Chat, r#"{"n":2,"messages":[],"\u006e":4}"#, Batch(4)),
        (Chat, "nonsense", Single),
    ] {
        assert_eq!(asked(dialect, body).items, items, "{body}");
    }
    for body in
        [r#"{"n":16385}"#.to_owned(), r#"{"n":1e15}"#.to_owned(), r#"{"n":18446744073709551615}"#.to_owned()]
    {
        assert_eq!(Asked::read(Chat, body.as_bytes()), Err(TooMany), "{body}");
    }
    let many = format!(r#"{{"prompt":{}}}"#, list(r#""a""#, 16_385));
    assert_eq!(Asked::read(Completions, many.as_bytes()), Err(TooMany));
}

#[test]
fn ids_and_log_probabilities_are_asked_for_in_several_ways() {
    for (body, logprobs) in [
        (r#"{"return_logprob":true}"#, true),
        (r#"{"return_logprob":[false,true]}"#, true),
        (r#"{"return_logprob":[false,false]}"#, false),
        (r#"{"return_logprob":null}"#, false),
        (r#"{"return_logprob":"true"}"#, false),
        ("{}", false),
    ] {
        assert_eq!(asked(Dialect::Generate, body).input_logprobs, logprobs, "{body}");
        assert!(!asked(Dialect::Chat, body).input_logprobs, "its answers have no place for them");
    }
    for (body, rids) in [
        (r#"{"rid":"a"}"#, &["a"][..]),
        (r#"{"rid":["a","\u0062",""]}"#, &["a", "b"]),
        (r#"{"rid":""}"#, &[]),
        (r#"{"rid":7}"#, &[]),
        (r#"{"rid":null}"#, &[]),
    ] {
        assert_eq!(asked(Dialect::Chat, body).rids, rids, "{body}");
    }
}

#[test]
fn members_are_plain_or_lists_as_the_items_are() {
    let text = |items: Items, port, rooms: &[u64]| {
        let members = items.bootstrap("10.0.0.1", port, rooms);
        let members = members.map(|member| format!("{}={}", member.name, member.value.expect("a value")));
        members.join(" ")
    };
    assert_eq!(
        text(Items::Single, Some(8998), &[7]),
        r#"bootstrap_host="10.0.0.1" bootstrap_port=8998 bootstrap_room=7"#
    );
    assert_eq!(
        text(Items::Batch(1), None, &[9_223_372_036_854_775_807]),
        r#"bootstrap_host=["10.0.0.1"] bootstrap_port=[null] bootstrap_room=[9223372036854775807]"#
    );
    assert_eq!(
        text(Items::Batch(2), Some(1), &[1, 0]),
        r#"bootstrap_host=["10.0.0.1","10.0.0.1"] bootstrap_port=[1,1] bootstrap_room=[1,0]"#
    );
}

const PREFILL: &str = r#"{"text":" x","meta_info":{"id":"r","input_token_logprobs":[[null,5,null],[-1.50,6,null]],
    "input_top_logprobs":[ null,[[-0.1,6,"a]"]] ],"input_token_ids_logprobs":[],"output_token_logprobs":[[-9,9,null]]}}"#;

#[test]
fn the_prompts_lists_go_in_front_and_nothing_else_changes() {
    let lists = InputLists::read(PREFILL.as_bytes());
    for (decode, expected) in [
        (
            r#"{"text":"yz","meta_info":{"input_token_logprobs":[],"output_token_logprobs":[[-2,7,null]]},"a":1.0}"#,
            json!({"text": "yz", "a": 1.0, "meta_info": {
                "input_token_logprobs": [[null, 5, null], [-1.5, 6, null]],
                "input_top_logprobs": [null, [[-0.1, 6, "a]"]]],
                "output_token_logprobs": [[-2, 7, null]],
            }}),
        ),
        (
            r#"{"meta_info":{"input_token_logprobs":[[-3,7,null]],"input_top_logprobs":null}}"#,
            json!({"meta_info": {
                "input_token_logprobs": [[null, 5, null], [-1.5, 6, null], [-3, 7, null]],
                "input_top_logprobs": [null, [[-0.1, 6, "a]"]]],
            }}),
        ),
    ] {
        let merged = lists.merged(decode.as_bytes()).expect("merged");
        assert_eq!(serde_json::from_slice::<Value>(&merged).expect("JSON"), expected, "{decode}");
        assert!(String::from_utf8_lossy(&merged).contains("-1.50"), "numbers keep their spelling");
    }
    for decode in ["", "null", "[]", r#"{"error":"no"}"#, r#"{"meta_info":null}"#, r#"{"meta_info":{"a":1}"#]
    {
        assert_eq!(lists.merged(decode.as_bytes()), None, "{decode}");
    }
    for prefill in
        ["", "null", "{}", r#"{"meta_info":{"input_token_logprobs":[]}}"#, r#"{"meta_info":[1]}"#, "data"]
    {
        let lists = InputLists::read(prefill.as_bytes());
        assert!(lists.is_empty(), "{prefill}");
        assert_eq!(lists.merged(br#"{"meta_info":{}}"#), None, "{prefill}");
    }
}

#[test]
fn failures_within_an_answer_are_told() {
    let reason = |reason: &str| format!(r#"{{"text":"","meta_info":{{"finish_reason":{reason}}}}}"#);
    let abort = |status: &str| reason(&format!(r#"{{"type":"abort","message":"m","status_code":{status}}}"#));
    let error = |members: &str| format!(r#"{{"error":{{"message":"no"{members}}}}}"#);
    for (answer, status) in [
        (abort("500"), Some(500)),
        (abort("503"), Some(503)),
        (abort("400"), None),
        (abort("null"), None),
        (abort("70000"), None),
        (reason(r#"{"type":"length","length":0}"#), None),
        (reason("null"), None),
        (error(r#","code":500"#), Some(500)),
        (error(r#","code":400"#), Some(400)),
        (error(r#","type":"503""#), Some(503)),
        (error(r#","type":"InternalServerError""#), Some(500)),
        (error(r#","code":"internal_server_error""#), Some(500)),
        (error(r#","code":"context_length_exceeded","type":"invalid_request_error""#), Some(400)),
        // As SGLang tells of a request that it cannot take.
        (error(""), Some(400)),
        (r#"{"error":{"message":"KVTransferError(lost)"}}"#.to_owned(), Some(500)),
        (r#"{"error":"no"}"#.to_owned(), Some(400)),
        (r#"{"error":null}"#.to_owned(), None),
        (r#"{"message":"no","type":"InternalServerError"}"#.to_owned(), None),
        (r#"{"text":"{\"error\":{}}"}"#.to_owned(), None),
        ("nonsense".to_owned(), None),
        (String::new(), None),
    ] {
        let told = |answer: String| failure(answer.as_bytes()).map(|failed| failed.status);
        assert_eq!(told(answer.clone()), status, "{answer}");
        let good = reason("null");
        assert_eq!(told(format!("[{good},{answer}]")), status, "{answer} in a batch");
        let stream = format!("data: {good}\n\ndata: {answer}\n\ndata: [DONE]\n\n");
        assert_eq!(told(stream), status, "{answer} in a stream");
    }
}

#[test]
fn what_engines_say_of_a_failed_hand_off_is_told_apart_from_all_else() {
    for (message, kind) in [
        (
            "Decode transfer failed: KVTransferError(Lost connection with prefill instance)",
            Some(HandOff::LostPrefill),
        ),
        ("Losing connection with prefill instance (bootstrap_addr: a:1)", Some(HandOff::LostPrefill)),
        ("Decode handshake failed for request rank=0 with exception x", Some(HandOff::Handshake)),
        ("Decode transfer failed for request rank=0", Some(HandOff::Transfer)),
        ("Could not fetch prefill parallel info from bootstrap_addr: a:1", Some(HandOff::Bootstrap)),
        ("KVTransferError(bootstrap_room=7): aborted", Some(HandOff::Bootstrap)),
        ("KVTransferError(7): aborted", Some(HandOff::Other)),
        ("Out of memory", None),
        ("", None),
    ] {
        let message = json!(message);
        for answer in [
            format!(r#"{{"object":"error","message":{message},"type":"500","code":500}}"#),
            format!(r#"{{"error":{{"message":{message},"code":500}}}}"#),
            format!(r#"{{"detail":{message}}}"#),
            format!(r#"data: {{"error":{{"message":{message}}}}}"#),
            format!(
                r#"{{"meta_info":{{"finish_reason":{{"type":"abort","message":{message},"status_code":500}}}}}}"#
            ),
        ] {
            assert_eq!(hand_off(answer.as_bytes()), kind, "{answer}");
            let within = failure(answer.as_bytes());
            assert!(within.is_none_or(|failed| failed.hand_off == kind), "{answer}");
        }
        assert_eq!(hand_off(format!(r#"{{"text":{message}}}"#).as_bytes()), None, "generated");
    }
}

#[test]
fn a_second_request_of_the_same_id_is_told_from_other_mistakes() {
    for (message, expected) in [
        ("Duplicate request ID detected: r-1", true),
        ("Duplicate request IDs detected within the request: []", true),
        ("The prompt says: Duplicate request ID", false),
    ] {
        for answer in [
            json!({"error": {"message": message}}),
            json!({"object": "error", "message": message, "code": 400}),
        ] {
            assert_eq!(is_duplicate(answer.to_string().as_bytes()), expected, "{answer}");
        }
    }
}

fn item(numbers: &[i64]) -> String {
    format!(r#"{{"text":"a","meta_info":{{"input_token_logprobs":{}}}}}"#, json!(numbers))
}

#[test]
fn batches_are_merged_item_by_item() {
    let lists = InputLists::read(format!("[{}, {},{}]", item(&[1]), item(&[]), item(&[2, 3])).as_bytes());
    let decode = format!(" [{} ,{},7, {}]\n", item(&[]), item(&[4]), item(&[5]));
    let merged = String::from_utf8(lists.merged(decode.as_bytes()).expect("merged")).expect("UTF-8");
    // The third is no item, and the fourth has none before it.
    assert_eq!(merged, format!(" [{} ,{},7, {}]\n", item(&[1]), item(&[4]), item(&[5])));
    let decode = format!("[{},{},{}]", item(&[]), item(&[4]), item(&[5]));
    let merged: Value =
        serde_json::from_slice(&lists.merged(decode.as_bytes()).expect("merged")).expect("JSON");
    let of = |at: usize| &merged[at]["meta_info"]["input_token_logprobs"];
    assert_eq!([of(0), of(1), of(2)], [&json!([1]), &json!([4]), &json!([2, 3, 5])]);
}

fn frame(index: Option<u64>, text: &str, numbers: &[i64]) -> String {
    let index = index.map(|index| format!(r#""index":{index},"#)).unwrap_or_default();
    let meta = format!(r#"{{"id":"r","input_token_logprobs":{}}}"#, json!(numbers));
    format!("data: {{{index}\"text\":\"{text}\",\"meta_info\":{meta}}}\n\n")
}

fn through(lists: &InputLists, chunks: &[&[u8]]) -> String {
    let mut frames = Frames::new(lists.clone());
    let mut out: Vec<u8> = chunks.iter().flat_map(|chunk| frames.push(chunk)).collect();
    out.extend(frames.finish());
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn a_streams_first_frames_get_the_lists_and_the_rest_passes_as_it_came() {
    let prefill = format!("{}data: [DONE]\n\n", frame(None, "x", &[1, 2]));
    let lists = InputLists::read(prefill.as_bytes());
    let rest = format!(": c\n\n{}data: [DONE]\n\n", frame(None, "ab", &[]));
    let stream = format!(": hello\r\n\r\ndata: not JSON\n\n{}{rest}", frame(None, "a", &[]));
    let seen = through(&lists, &[stream.as_bytes()]);
    assert_eq!(seen, format!(": hello\r\n\r\ndata: not JSON\n\n{}{rest}", frame(None, "a", &[1, 2])));
    assert_eq!(through(&lists, &[b"data: {\"meta_info\":"]), "data: {\"meta_info\":", "cut off");
    assert_eq!(through(&InputLists::default(), &[stream.as_bytes()]), stream);
}

#[test]
fn a_streamed_batch_is_merged_by_index() {
    let prefill = [frame(Some(1), "y", &[3]), frame(Some(0), "x", &[1, 2])].concat();
    let lists = InputLists::read(prefill.as_bytes());
    let stream = |zero: &[i64], one: &[i64]| {
        let frames = [(1, one), (1, &[]), (0, zero), (0, &[]), (7, &[])];
        frames.map(|(at, numbers)| frame(Some(at), "a", numbers)).concat()
    };
    assert_eq!(through(&lists, &[stream(&[], &[]).as_bytes()]), stream(&[1, 2], &[3]));
}

proptest! {
    #[test]
    fn how_a_stream_is_cut_changes_nothing(cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let lists = InputLists::read([frame(Some(0), "x", &[1]), frame(Some(1), "y", &[2])].concat().as_bytes());
        let stream = format!(
            ": ping\r\n\r\nevent: e\r\n{}{}{}data: [DONE]\n\n",
            frame(Some(1), "é", &[]).replace("\n\n", "\r\n\r\n"), frame(Some(1), "b", &[]), frame(Some(0), "c", &[])
        );
        let bytes = stream.as_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        let whole = through(&lists, &[bytes]);
        prop_assert!(whole.contains("[2]") && whole.contains("[1]"));
        prop_assert_eq!(through(&lists, &chunks), whole);
    }

    #[test]
    fn nothing_that_comes_is_lost(bytes in proptest::collection::vec(prop_oneof![
        Just(b'{'), Just(b'}'), Just(b'"'), Just(b':'), Just(b'\n'), Just(b'\r'), Just(b'd'), any::<u8>(),
    ], 0..48), cut in any::<prop::sample::Index>()) {
        let lists = InputLists::read(PREFILL.as_bytes());
        let (head, tail) = bytes.split_at(cut.index(bytes.len() + 1));
        let mut frames = Frames::new(lists);
        let out = [frames.push(head), frames.push(tail), frames.finish()].concat();
        prop_assert_eq!(out, bytes);
    }
}

#[test]
fn the_rank_is_that_of_the_newer_name_or_of_the_older_one() {
    for (body, rank) in [
        (r#"{"data_parallel_rank":1}"#, Some(1)),
        (r#"{"routed_dp_rank":2,"data_parallel_rank":1}"#, Some(2)),
        (r#"{"routed_dp_rank":null,"data_parallel_rank":1}"#, Some(1)),
        (r#"{"data_parallel_rank":-1}"#, None),
        (r#"{"data_parallel_rank":"1"}"#, None),
        (r#"{"text":"a"}"#, None),
    ] {
        assert_eq!(asked(Dialect::Generate, body).dp_rank, rank, "{body}");
    }
}
