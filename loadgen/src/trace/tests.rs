//! Every format, read and refused.

use std::sync::Arc;

use super::convert::{ConvertError, Names, Written, convert};
use super::info::{TraceInfo, analyse};
use super::*;
use crate::scenario::ScenarioError;

pub(super) fn rows_of(options: &Options, text: &str) -> Result<Rows, String> {
    let source: source::Source = Box::new(std::io::Cursor::new(text.to_owned().into_bytes()));
    Rows::new([source].into(), Arc::default(), vec!["t".into()], options).map_err(|error| error.to_string())
}

pub(super) fn read_with(options: &Options, text: &str) -> Result<Trace, String> {
    rows_of(options, text)?.collect_trace().map_err(|error| error.to_string())
}

pub(super) fn parsed(format: Format, text: &str) -> Result<Trace, String> {
    read_with(&Options { format: Some(format), ..Options::default() }, text)
}

/// With the format found by the content, which is `format`.
fn found(format: Format, text: &str) -> Trace {
    let trace = read_with(&Options::default(), text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(trace.format, format, "{text}");
    trace
}

fn refused(format: Format, case: &str, text: &str, line: u64, says: &str) {
    let message = parsed(format, text).map(|trace| trace.rows).expect_err(case);
    assert!(message.starts_with(&format!("t:{line}: ")), "{case}: {message}");
    assert!(message.contains(says), "{case}: {message}");
    assert!(!message.contains("at line"), "one line number: {message}");
    assert!(message.len() < 250, "short: {message}");
}

fn info_of(text: &str) -> TraceInfo {
    analyse(rows_of(&Options::default(), text).unwrap(), "t", None, |_| {}).unwrap()
}

fn converted(text: &str, to: Written, names: Names) -> String {
    let mut out = Vec::new();
    convert(rows_of(&Options::default(), text).unwrap(), &mut out, to, names, |_| {}).unwrap();
    String::from_utf8(out).unwrap()
}

fn line(timestamp: &str, input: &str, output: &str, ids: &str) -> String {
    format!(
        "{{\"timestamp\": {timestamp}, \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": {ids}}}\n"
    )
}

fn row(at_ns: u64, input_tokens: u32, output_tokens: u32, blocks: &[u64]) -> Row {
    Row { at_ns, input_tokens, output_tokens, blocks: blocks.into(), ..Row::default() }
}

#[test]
fn mooncake_rows_are_read() {
    let text =
        line("0", "513", "7", "[4, 5]") + "\n" + &line("27.5", "512", "0", "[4]").replace('}', ", \"x\": 1}");
    let trace = found(Format::Mooncake, text.trim_end());
    assert_eq!(trace.rows, [row(0, 513, 7, &[4, 5]), row(27_500_000, 512, 1, &[4])]);
    assert_eq!((trace.block_tokens, trace.timed), (512, true));
    assert_eq!(found(Format::Mooncake, &format!("\u{feff}{text}")).rows, trace.rows);
    assert_eq!(found(Format::Mooncake, &text.replace('\n', "\r\n")).rows, trace.rows);
}

#[test]
fn mooncake_rows_that_do_not_fit_are_refused() {
    let good = line("5", "512", "1", "[1]");
    let cases = [
        ("empty", String::new(), 1, "empty"),
        ("only blank lines", "\n\n".to_owned(), 1, "empty"),
        ("cut", good.clone() + &good[..40], 2, "cut"),
        ("not an object", good.clone() + "17\n", 2, "invalid type"),
        ("no JSON", "hello\n".to_owned(), 1, "not JSON"),
        ("a list", "[0, 1, 1, [1]]\n".to_owned(), 1, "the row is a list"),
        ("endless", "x".repeat(source::LONGEST_LINE + 1), 1, "longer than 16 MB"),
        ("unsorted", good.clone() + &good + &line("4", "512", "1", "[1]"), 3, "timestamp 4 comes after 5"),
        ("too few ids", line("0", "513", "1", "[1]"), 1, "1 hash_ids do not fit input_length 513"),
        ("too many ids", line("0", "512", "1", "[1, 2]"), 1, "2 hash_ids"),
        ("no ids", line("0", "512", "1", "[]"), 1, "0 hash_ids"),
        ("no prompt", line("0", "0", "1", "[]"), 1, "input_length 0"),
        ("negative prompt", line("0", "-5", "1", "[]"), 1, "input_length -5"),
        ("negative reply", line("0", "1", "-1", "[1]"), 1, "output_length -1"),
        ("negative time", line("-1", "1", "1", "[1]"), 1, "timestamp -1"),
        ("length is text", line("0", "\"9\"", "1", "[1]"), 1, "string \"9\""),
        ("negative id", line("0", "1", "1", "[-1]"), 1, "-1"),
        ("missing field", line("0", "1", "1", "[1]").replace("hash_ids", "ids"), 1, "hash_ids"),
        (
            "beyond 32 bits",
            line("0", "99999999999", "1", "[1]"),
            1,
            "input_length 99999999999 is out of range, 1 to 16777216;",
        ),
        ("late", line("1e300", "1", "1", "[1]"), 1, "timestamp 1e300 is out of range, 0 to 1000000000000;"),
        ("a float", line("0", "1e300", "1", "[1]"), 1, "floating point `1e+300`"),
        ("long", line("0", &format!("\"{}\"", "9".repeat(300)), "1", "[1]"), 1, "999…9"),
    ];
    for (case, text, line, says) in cases {
        refused(Format::Mooncake, case, &text, line, says);
    }
}

#[test]
fn azure_rows_of_both_years_are_read() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n\
                2023-11-16 18:17:04.0319600,3180,0";
    let trace = found(Format::Azure, text);
    let first_ns = 1_700_158_623_979_960_000;
    assert_eq!(trace.rows, [row(first_ns, 4808, 10, &[]), row(first_ns + 52_000_000, 3180, 1, &[])]);
    let text = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.001163+00:00,0,5,6\n\
                2024-05-12 00:00:01+00:00,1,7,8\n";
    let first_ns = 1_715_472_000_001_163_000;
    assert_eq!(
        found(Format::Azure, text).rows,
        [row(first_ns, 5, 6, &[]), row(first_ns + 998_837_000, 7, 8, &[])]
    );
}

#[test]
fn azure_rows_that_do_not_fit_are_refused() {
    let head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
    for (case, rows, line, says) in [
        ("no rows", "", 1, "empty"),
        ("no time", "yesterday,1,1", 2, "\"yesterday\" is not a time stamp"),
        ("negative", "2023-11-16 18:17:03,-1,1", 2, "ContextTokens -1 is out of range"),
        ("a word", "2023-11-16 18:17:03,many,1", 2, "ContextTokens \"many\" is not a whole number"),
        ("cut", "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:04,1", 3, "the row ends before `GeneratedTokens`"),
        (
            "unsorted",
            "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02.5,1,1",
            3,
            "timestamp 2023-11-16 18:17:02.5000000 comes after 2023-11-16 18:17:03.0000000",
        ),
    ] {
        refused(Format::Azure, case, &format!("{head}{rows}"), line, says);
    }
    for row in ["2023-11-16 18:17:03,1,234,56", "2023-11-16 18:17:03,1,2,"] {
        refused(Format::Azure, "a comma", &format!("{head}{row}"), 2, "the row has 4 fields, the header 3");
    }
    let twice = head.replace("Context", "Generated,Context").replace("Generated,", "GeneratedTokens,");
    refused(Format::Azure, "a column twice", &twice, 1, "the header has 2 columns `GeneratedTokens`");
    refused(Format::Azure, "no column", "TIMESTAMP,ContextTokens\n", 1, "no column `GeneratedTokens`");
}

#[test]
fn burstgpt_rows_are_read_and_failed_ones_left_out() {
    let old = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
               5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n\
               118.5,GPT-4,417.0,276,693,API log\n";
    let trace = found(Format::BurstGpt, old);
    assert_eq!(trace.rows, [row(5_000_000_000, 472, 18, &[]), row(118_500_000_000, 417, 276, &[])]);
    let info = info_of(old);
    assert_eq!((info.rows, info.left_out, &info.sessions), (2, 1, &None));
    assert!(info.render(info::Width::Ascii).contains("1 failed requests"));

    let new = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
               1,7,0.5,GPT-4,10,20,30,Conversation log\n2,,0.5,GPT-4,11,21,32,API log\n\
               3,7,0.5,GPT-4,12,0,12,Conversation log\n4,7,0.5,GPT-4,13,22,35,Conversation log\n";
    let rows = found(Format::BurstGpt, new).rows;
    assert_eq!(rows.iter().map(|row| row.parent).collect::<Vec<_>>(), [None, None, Some(0)]);
    assert!(rows[0].session.is_some() && rows[0].session == rows[2].session && rows[1].session.is_none());
    refused(Format::BurstGpt, "unsorted", &new.replace("\n4,", "\n0.5,"), 5, "timestamp 0.5 comes after 2");
    refused(Format::BurstGpt, "time", &new.replace("\n1,", "\nx,"), 2, "Timestamp \"x\"");
    refused(Format::BurstGpt, "negative", &new.replace(",22,", ",-22,"), 5, "Response tokens -22");
    refused(Format::BurstGpt, "a comma", &new.replace(",13,", ",1,013,"), 5, "9 fields, the header 8");
    let twice = new.replace("Elapsed time", "Request tokens");
    refused(Format::BurstGpt, "a column twice", &twice, 1, "2 columns `Request tokens`");
    let failed = "Timestamp,Request tokens,Response tokens\n1,2,0\n";
    refused(Format::BurstGpt, "nothing left", failed, 1, "none of the 1 rows is a request");
}

fn bailian(chat: i64, parent: i64, at: &str, input: u32, ids: &[u64]) -> String {
    format!(
        "{{\"chat_id\": {chat}, \"parent_chat_id\": {parent}, \"timestamp\": {at}, \"input_length\": {input}, \
         \"output_length\": 5, \"type\": \"text\", \"turn\": 1, \"hash_ids\": {ids:?}}}\n"
    )
}

#[test]
fn bailian_rows_are_read_with_their_sessions() {
    let text = bailian(10, -1, "1.5", 20, &[1, 2])
        + &bailian(11, 10, "2", 40, &[1, 2, 3])
        + &bailian(12, -1, "2", 16, &[9])
        + &bailian(13, 11, "61.114", 17, &[1, 4])
        + &bailian(14, 3, "62", 1, &[5])
        + &bailian(15, 3, "63", 1, &[5]);
    let trace = found(Format::Bailian, &text);
    assert_eq!(
        (trace.block_tokens, trace.rows[0].at_ns, trace.rows[3].at_ns),
        (16, 1_500_000_000, 61_114_000_000)
    );
    let sessions: Vec<_> = trace.rows.iter().map(|row| row.session.unwrap()).collect();
    assert_eq!(sessions, [10, 10, 12, 10, 3, 3], "the last two have a parent before the file began");
    let parents: Vec<_> = trace.rows.iter().map(|row| row.parent).collect();
    assert_eq!(parents, [None, Some(0), None, Some(1), None, None]);
    refused(Format::Bailian, "ids", &bailian(1, -1, "0", 17, &[1]), 1, "2 blocks of 16");
    refused(Format::Bailian, "no chat", &line("0", "1", "1", "[1]"), 1, "chat_id");
}

const CHATS: &str = r#"[
  {"id": "a", "conversations": [
    {"from": "human", "value": "Why is the sky blue? And } \" [ tell me slowly, with every step."},
    {"from": "gpt", "value": "Because of Rayleigh."},
    {"from": "human", "value": "And at night?"},
    {"from": "gpt", "value": "Then it is dark."}]},
  {"id": "b", "conversations": [{"from": "gpt", "value": "Hello!"}, {"from": "human", "value": "Bye."}]},
  {"id": "c", "conversations": [{"from": "system", "value": "Be brief."}, {"from": "user", "value": "Hi"},
    {"from": "assistant", "value": ""}]}
]"#;

#[test]
fn sharegpt_turns_become_requests_of_one_session() {
    let trace = found(Format::ShareGpt, CHATS);
    assert_eq!((trace.rows.len(), trace.timed, trace.block_tokens), (3, false, 16));
    let [first, second, third] = &trace.rows[..] else { panic!() };
    assert!(second.input_tokens > first.input_tokens);
    let full = (first.input_tokens / 16) as usize;
    assert!(full >= 1 && first.blocks[..full] == second.blocks[..full], "a turn begins like the one before");
    assert!(!third.blocks.contains(&first.blocks[0]));
    assert_eq!((first.session, second.session, third.session), (Some(0), Some(0), Some(2)));
    assert_eq!((first.parent, second.parent, third.parent), (None, Some(0), None));
    assert_eq!(third.output_tokens, 1, "an empty reply is read as one token");
    assert_eq!(info_of(CHATS).left_out, 1, "the conversation without a reply to anything");
    let lines = CHATS.trim_matches(['[', ']', '\n']).replace("},\n  {\"id\"", "}\n{\"id\"");
    assert_eq!(found(Format::ShareGpt, &lines).rows, trace.rows, "also without the array");
}

#[test]
fn sharegpt_chats_that_do_not_fit_are_refused() {
    let cases = [
        ("an unknown speaker", CHATS.replacen("gpt", "ghost", 1), 2, "\"ghost\" is not known"),
        ("no messages", CHATS.replacen("conversations", "talk", 1), 2, "conversations"),
        ("a number", CHATS.replacen("\"Bye.\"", "3", 1), 7, "invalid type"),
        ("cut", CHATS[..CHATS.len() - 20].to_owned(), 8, "the object does not end"),
        ("no end", CHATS.trim_end_matches(']').to_owned(), 10, "the array does not end"),
        ("not objects", "[1, 2]".to_owned(), 1, "not a JSON object"),
    ];
    for (case, text, line, says) in cases {
        refused(Format::ShareGpt, case, &text, line, says);
    }
}

#[test]
fn aiperf_rows_are_read_whatever_they_have() {
    let text = "{\"session_id\": \"a\", \"timestamp\": 1000, \"input_length\": 600, \"output_length\": 4, \"hash_ids\": [1, 2]}\n\
                {\"session_id\": \"a\", \"delay\": 250, \"input_length\": 10}\n{\"input_length\": 3, \"timestamp\": 1500}\n";
    let trace = found(Format::Aiperf, text);
    assert_eq!((trace.block_tokens, trace.timed), (512, true));
    assert_eq!(trace.rows[0].blocks[..], [1, 2]);
    assert_eq!(trace.rows[1].parent, Some(0));
    assert_eq!(trace.rows[1].think_ns, Some(250_000_000));
    assert_eq!(trace.rows[1].at_ns, 1_000_000_000, "it comes as soon as it may");
    assert_eq!((trace.rows[2].at_ns, trace.rows[2].session), (1_500_000_000, None));
    let text = "{\"text_input\": \"Once upon a time there was a princess who had a golden ball\", \"output_length\": 4}\n\
                {\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n";
    let trace = found(Format::Aiperf, text);
    assert_eq!((trace.block_tokens, trace.timed, trace.rows[0].blocks.len()), (16, false, 2));
    let mixed = text.to_owned() + "{\"input_length\": 3}\n";
    refused(Format::Aiperf, "two sizes of blocks", &mixed, 3, "blocks of one size");
    refused(
        Format::Aiperf,
        "nothing",
        "{\"output_length\": 4}",
        1,
        "no input_length, text_input or messages",
    );
    let early = "{\"input_length\": 4, \"delay\": -1}";
    refused(Format::Aiperf, "delay", early, 1, "delay -1 is out of range, 0 to 1000000000000;");
    refused(Format::Aiperf, "ids", "{\"input_length\": 4, \"hash_ids\": []}", 1, "0 hash_ids");
}

fn weka(scope: &str, inner_t: [f64; 2]) -> String {
    let [one, two] = inner_t;
    format!(
        r#"{{"id": "x", "models": [], "block_size": 64, "hash_id_scope": "{scope}", "tool_tokens": 3, "requests": [
        {{"t": 0.0, "type": "s", "model": "m", "in": 128, "out": 9, "hash_ids": [1, 2], "stop": "tool_use", "ttft": 0.5}},
        {{"t": 10.0, "type": "subagent", "agent_id": "a", "status": "completed", "requests": [
            {{"t": {one}, "type": "n", "in": 100, "out": 5, "hash_ids": [7]}},
            {{"t": {two}, "type": "s", "in": 200, "out": 5, "hash_ids": [7, 8, 9, 10]}}]}},
        {{"t": 12.5, "type": "n", "in": 130, "out": 0, "hash_ids": [1, 2, 3], "think_time": 1.5}}]}}"#
    )
}

#[test]
fn weka_conversations_are_read_with_both_kinds_of_nested_time() {
    for inner in [[11.0, 13.0], [1.0, 3.0]] {
        let trace = found(Format::Weka, &weka("local", inner));
        let times: Vec<_> = trace.rows.iter().map(|row| row.at_ns / 100_000_000).collect();
        assert_eq!(times, [0, 110, 125, 130], "sorted by time");
        let parents: Vec<_> = trace.rows.iter().map(|row| row.parent).collect();
        assert_eq!(parents, [None, Some(0), Some(0), Some(1)]);
        let session = |at: usize| trace.rows[at].session.unwrap();
        assert!(session(0) == session(2) && session(1) == session(3) && session(0) != session(1));
        assert_eq!((trace.block_tokens, trace.rows[2].think_ns), (64, Some(1_500_000_000)));
        assert_eq!(trace.rows[0].blocks[..2], trace.rows[2].blocks[..2]);
    }
}

#[test]
fn local_ids_of_weka_are_the_conversations_own() {
    let of = |scope: &str| {
        let text = weka(scope, [11.0, 13.0]);
        found(Format::Weka, &format!("{text}\n{text}\n")).rows
    };
    let (local, global) = (of("local"), of("global"));
    assert_eq!((local.len(), local[0].at_ns, local[1].at_ns), (8, 0, 0), "both begin at 0");
    assert_eq!(global[0].blocks, global[1].blocks);
    let good = weka("local", [11.0, 13.0]);
    let distinct = |conversations: usize| {
        let rows = found(Format::Weka, &vec![good.as_str(); conversations].join("\n")).rows;
        rows.iter().flat_map(|row| row.blocks.to_vec()).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(distinct(12), 12 * distinct(1), "no conversation has an id of another one");
    let cases = [
        ("ids", good.replace("[1, 2]", "[1, 2, 3]"), 1, "3 hash_ids do not fit"),
        ("time", good.replace("12.5", "-12.5"), 1, "t -12.5 is out of range"),
        ("type", good.replace("\"n\"", "\"q\""), 1, "unknown variant `q`"),
        ("think time", good.replace("1.5}", "-5}"), 1, "think_time -5 is out of range, 0 to 1000000000;"),
        ("block size", good.clone() + "\n" + &good.replace("64", "32"), 7, "block_size 32 does not fit"),
    ];
    for (case, text, line, says) in cases {
        refused(Format::Weka, case, &text, line, says);
    }
}

#[test]
fn bad_rows_are_passed_over_as_far_as_allowed() {
    let good = |at: u32| line(&at.to_string(), "512", "1", "[1]");
    let text = good(0) + "garbage\n" + &good(5) + &good(4) + &line("6", "512", "1", "[]") + &good(7);
    let with = |skip_bad| read_with(&Options { skip_bad, ..Options::default() }, &text);
    let trace = with(3).unwrap();
    assert_eq!(trace.rows.iter().map(|row| row.at_ns / 1_000_000).collect::<Vec<_>>(), [0, 5, 7]);
    assert_eq!(trace.skipped, 3);
    for (skip_bad, line) in [(0, 2), (1, 4), (2, 5)] {
        let message = with(skip_bad).unwrap_err();
        assert!(message.starts_with(&format!("t:{line}: ")), "{message}");
        assert_eq!(message.contains("bad rows before it"), skip_bad > 0, "{message}");
    }
    // Where objects come one after the other, what is no object is a bad row.
    let chats = CHATS.trim_matches(['[', ']', '\n']).replace("},\n  {\"id\"", "}\ngarbage {\n{\"id\"");
    let agents = format!("{0}\ngarbage {{\n{0} trailing\n{0}\n", weka("local", [11.0, 13.0]));
    for (text, rows, bad) in [(chats, 3, 2), (agents, 12, 2)] {
        let with = |skip_bad| read_with(&Options { skip_bad, ..Options::default() }, &text);
        let trace = with(bad).unwrap();
        assert_eq!((trace.rows.len(), trace.skipped), (rows, bad));
        let message = with(bad - 1).unwrap_err();
        assert!(message.contains("this is not a JSON object"), "{message}");
    }
    let skipping = || rows_of(&Options { skip_bad: 3, ..Options::default() }, &text).unwrap();
    let info = analyse(skipping(), "t", None, |_| {});
    let shown = info.unwrap().render(info::Width::Ascii);
    assert!(shown.contains("3 bad rows, the first: t:2: "), "{shown}");
    let copied = convert(skipping(), Vec::new(), Written::Azure, Names::numbered(), |_| {}).unwrap();
    assert!(copied.first_skipped.unwrap().starts_with("t:2: "), "the first is told");
    let one_bad_chat = CHATS.replacen("gpt", "ghost", 1);
    let rows = read_with(&Options { skip_bad: 1, ..Options::default() }, &one_bad_chat).unwrap().rows;
    assert_eq!(rows.len(), 1, "a bad conversation is one bad row");
    let endless = format!("{}{}\n{}", good(0), "x".repeat(source::LONGEST_LINE + 5), good(1));
    assert_eq!(read_with(&Options { skip_bad: 1, ..Options::default() }, &endless).unwrap().rows.len(), 2);
    let cut = &CHATS[..CHATS.len() - 20];
    let lost = read_with(&Options { skip_bad: 9, ..Options::default() }, cut).unwrap_err();
    assert!(lost.contains("the object does not end"), "nothing comes after what does not end: {lost}");
}

#[test]
fn the_limit_stops_before_later_rows() {
    let text = line("0", "1", "1", "[1]") + "garbage";
    assert_eq!(read_with(&Options { most: 1, ..Options::default() }, &text).unwrap().rows.len(), 1);
}

#[test]
fn a_file_of_no_known_format_is_refused() {
    let message = read_with(&Options::default(), "a,b\n1,2\n").unwrap_err();
    assert!(
        message.starts_with("t:1: this looks like no format") && message.contains("--format"),
        "{message}"
    );
    assert!(read_with(&Options::default(), "").unwrap_err().contains("empty"));
}

/// Two prompts of one block and a part of another, and one of less than a block.
const RECORDING: &str = r#"{"router_trace":1,"pieces":{"head":16384,"short":16,"long":64},"part":0}
{"e":"look","n":1,"scopes":{"regular":0,"prefill":null,"decode":null},"kind":"text","size":96,"tags":"000100020003000400050006"}
{"e":"look","n":2,"scopes":{"regular":0,"prefill":null,"decode":null},"kind":"text","size":90,"tags":"00010002000300040005ffff"}
{"e":"look","n":3,"scopes":{"regular":0,"prefill":null,"decode":null},"kind":"text","size":30,"tags":"00010002"}
{"e":"request","n":1,"t":900,"arrived":100,"path":"/generate","status":200,"end":"complete","tries":1,"prompt_tokens":99,"cached_tokens":0,"output_tokens":7,"first_token_ns":null}
{"e":"request","n":2,"t":900,"arrived":200,"path":"/generate","status":200,"end":"complete","tries":1,"prompt_tokens":99,"cached_tokens":0,"output_tokens":7,"first_token_ns":null}
{"e":"request","n":3,"t":900,"arrived":300,"path":"/generate","status":200,"end":"complete","tries":1,"prompt_tokens":99,"cached_tokens":0,"output_tokens":7,"first_token_ns":null}
"#;

/// What does not depend on the form a trace is in.
fn figures(info: &TraceInfo) -> TraceInfo {
    TraceInfo { format: "", looks: "", left_out: 0, left_out_are: "", ..info.clone() }
}

#[test]
fn an_anonymous_copy_has_the_same_figures_and_none_of_the_names() {
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n\
                 2023-11-16 18:17:09.0319600,3180,3\n";
    let burst =
        "Timestamp,Session ID,Request tokens,Response tokens\n1,alice,2,3\n2,bob,4,5\n4.5,alice,6,7\n";
    let chats = bailian(770_001, -1, "1.5", 40, &[880_001, 880_002, 880_003])
        + &bailian(770_002, 770_001, "2", 60, &[880_001, 880_002, 880_003, 880_004]);
    let mooncake =
        line("5", "600", "7", "[880001, 880002]") + &line("8.5", "1500", "7", "[880001, 880002, 880003]");
    let agents = weka("global", [11.0, 13.0]).replace("[7", "[880001").replace("[1,", "[880002,");
    for (text, secrets) in [
        (azure, &["2023"][..]),
        (burst, &["alice", "bob"]),
        (&chats, &["77000", "88000"]),
        (&mooncake, &["88000"]),
        (CHATS, &["Rayleigh", "blue", "human"]),
        (&agents, &["88000"]),
        (RECORDING, &["000100020003"]),
    ] {
        let before = info_of(text);
        let to = rows_of(&Options::default(), text).unwrap().format().of_anonymous();
        let copy = converted(text, to, Names::salted(b"0123456789abcdef"));
        let after = info_of(&copy);
        assert_eq!(figures(&before), figures(&after), "{copy}");
        assert!(!secrets.iter().any(|secret| copy.contains(secret)), "{copy}");
        assert_eq!(
            copy,
            converted(text, to, Names::salted(b"0123456789abcdef")),
            "a salt gives the same names"
        );
        if before.reuse.is_some() {
            assert_ne!(copy, converted(text, to, Names::salted(b"0123456789abcdeg")));
        }
    }
}

#[test]
fn conversion_keeps_what_the_target_can_say() {
    let mooncake = line("5", "600", "7", "[881, 882]") + &line("8.5", "1500", "7", "[881, 882, 883]");
    let to_mooncake = converted(&mooncake, Written::Mooncake, Names::numbered());
    assert_eq!(to_mooncake, line("0", "600", "7", "[0, 1]") + &line("3.5", "1500", "7", "[0, 1, 2]"));
    let fine = converted(&mooncake, Written::Bailian, Names::numbered());
    let (before, after) = (info_of(&mooncake), info_of(&fine));
    assert_eq!(before.arrivals, after.arrivals);
    assert_eq!(before.input_tokens, after.input_tokens);
    let bound = |info: &TraceInfo| info.reuse.as_ref().unwrap().infinite_by_token;
    // 38 blocks of 16 in place of 2 of 512, of which the last is cut: 600 tokens are still 600.
    assert!((bound(&after) - 608.0 / 2100.0).abs() < 1e-12, "{}", bound(&after));
    assert_eq!(
        info_of(&converted(&fine, Written::Mooncake, Names::numbered())).input_tokens,
        before.input_tokens
    );

    let azure = converted(&mooncake, Written::Azure, Names::numbered());
    assert_eq!(info_of(&azure).arrivals, before.arrivals);
    let unshared = info_of(&converted(&azure, Written::Mooncake, Names::numbered()));
    assert_eq!((unshared.rows, unshared.reuse.unwrap().infinite_by_block), (2, 0.0));

    let chats = converted(CHATS, Written::Aiperf, Names::numbered());
    let (before, after) = (info_of(CHATS), info_of(&chats));
    assert_eq!((&before.reuse, &before.sessions, after.arrivals), (&after.reuse, &after.sessions, None));
    let sessions = info_of(&converted(CHATS, Written::Bailian, Names::numbered())).sessions;
    assert_eq!(sessions, before.sessions, "through the parents");
}

#[test]
fn blocks_that_cannot_be_cut_are_refused() {
    let odd =
        r#"{"block_size": 100, "requests": [{"t": 0, "type": "n", "in": 150, "out": 1, "hash_ids": [1]}]}"#;
    let rows = rows_of(&Options::default(), odd).unwrap();
    let refused = convert(rows, Vec::new(), Written::Mooncake, Names::numbered(), |_| {}).unwrap_err();
    let ConvertError::Trace(TraceError::Row(error)) = refused else { panic!("{refused:?}") };
    let error: ScenarioError = error;
    assert!(error.to_string().contains("blocks of 100 tokens cannot become blocks of 512"), "{error}");
}
