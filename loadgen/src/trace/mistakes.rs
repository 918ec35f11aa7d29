//! Every kind of mistake in every format: refused with file, line and remedy, or with a reason why it cannot be.

use super::Format;
use super::tests::parsed;

/// What can be wrong with a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Garbage,
    Cut,
    MissingField,
    WrongType,
    NegativeLength,
    HugeLength,
    NegativeTime,
    BackInTime,
    IdsThatDoNotFit,
    NegativeId,
}

/// What comes of it in a format.
#[derive(Debug)]
enum Case {
    /// The one place that reads so is changed; the message names this line and says this.
    Refused(&'static str, &'static str, u64, &'static str),
    /// So many bytes at the end are missing.
    Short(usize, u64, &'static str),
    /// So many bytes at the end are missing, and that is passed over.
    PassedOver(usize),
    /// The format does not have what could be wrong.
    Without(&'static str),
}

use Case::{PassedOver, Refused, Short, Without};

const KINDS: [Kind; 10] = [
    Kind::Garbage,
    Kind::Cut,
    Kind::MissingField,
    Kind::WrongType,
    Kind::NegativeLength,
    Kind::HugeLength,
    Kind::NegativeTime,
    Kind::BackInTime,
    Kind::IdsThatDoNotFit,
    Kind::NegativeId,
];

const MOONCAKE: &str = r#"{"timestamp": 10, "input_length": 513, "output_length": 7, "hash_ids": [4, 5]}
{"timestamp": 20, "input_length": 500, "output_length": 8, "hash_ids": [6]}
{"timestamp": 30, "input_length": 400, "output_length": 9, "hash_ids": [7]}
"#;
const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n\
                     2023-11-16 18:17:04.0319600,500,11\n2023-11-16 18:17:05.0319600,3180,12\n";
const BURSTGPT: &str =
    "Timestamp,Session ID,Request tokens,Response tokens\n10,a,472,18\n20,b,500,19\n30,a,400,20\n";
const BAILIAN: &str = r#"{"chat_id": 1, "parent_chat_id": -1, "timestamp": 10, "input_length": 20, "output_length": 7, "hash_ids": [4, 5]}
{"chat_id": 2, "parent_chat_id": -1, "timestamp": 20.5, "input_length": 15, "output_length": 8, "hash_ids": [6]}
{"chat_id": 3, "parent_chat_id": 1, "timestamp": 30, "input_length": 14, "output_length": 9, "hash_ids": [7]}
"#;
const SHAREGPT: &str = r#"[{"id": "a", "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]},
{"id": "b", "conversations": [{"from": "human", "value": "Bye"}, {"from": "gpt", "value": "Farewell"}]}]
"#;
const AIPERF: &str = r#"{"timestamp": 10, "input_length": 513, "output_length": 7, "hash_ids": [4, 5], "session_id": "s"}
{"timestamp": 20, "input_length": 500, "output_length": 8, "hash_ids": [6], "session_id": "t"}
{"delay": 30, "input_length": 400, "output_length": 9, "hash_ids": [7], "session_id": "s"}
"#;
const WEKA: &str = r#"{"block_size": 64, "requests": [{"t": 1, "type": "n", "in": 64, "out": 5, "hash_ids": [1]}]}
{"block_size": 64, "requests": [{"t": 15, "type": "n", "in": 128, "out": 9, "hash_ids": [1, 2]},
  {"t": 16, "type": "subagent", "requests": [{"t": 17, "type": "n", "in": 100, "out": 6, "hash_ids": [7]}]},
  {"t": 20, "type": "n", "in": 500, "out": 8, "hash_ids": [1, 2, 3]}]}
"#;
const ROUTER: &str = r#"{"router_trace":1,"pieces":{"head":16384,"short":16,"long":64},"part":0}
{"e":"look","n":1,"scopes":{"regular":0,"prefill":null,"decode":null},"kind":"text","size":96,"tags":"000100020003000400050006"}
{"e":"request","n":1,"t":900,"arrived":100,"path":"/generate","status":200,"end":"complete","tries":1,"prompt_tokens":99,"cached_tokens":0,"output_tokens":7,"first_token_ns":null}
{"e":"tick","t":1000}
"#;

fn good(format: Format) -> &'static str {
    match format {
        Format::Mooncake => MOONCAKE,
        Format::Azure => AZURE,
        Format::BurstGpt => BURSTGPT,
        Format::Bailian => BAILIAN,
        Format::ShareGpt => SHAREGPT,
        Format::Aiperf => AIPERF,
        Format::Weka => WEKA,
        Format::Router => ROUTER,
    }
}

fn case(format: Format, kind: Kind) -> Case {
    match format {
        Format::Mooncake => lines_of_objects(kind, "timestamp 5 comes after 10"),
        Format::Aiperf => match kind {
            Kind::MissingField => Refused(
                "\"input_length\": 500",
                "\"inputs\": 500",
                2,
                "no input_length, text_input or messages",
            ),
            kind => lines_of_objects(kind, "timestamp 5 comes after 10"),
        },
        Format::Bailian => bailian(kind),
        Format::Azure => azure(kind),
        Format::BurstGpt => burstgpt(kind),
        Format::ShareGpt => sharegpt(kind),
        Format::Weka => weka(kind),
        Format::Router => router(kind),
    }
}

fn lines_of_objects(kind: Kind, back: &'static str) -> Case {
    match kind {
        Kind::Garbage => Refused("{\"timestamp\": 20", "timestamp: 20", 2, "expected ident at column 2"),
        Kind::Cut => Short(12, 3, "the row is cut or not JSON"),
        Kind::MissingField => {
            Refused("\"output_length\": 8", "\"outputs\": 8", 2, "missing field `output_length`")
        }
        Kind::WrongType => Refused("500", "\"many\"", 2, "string \"many\""),
        Kind::NegativeLength => Refused("500", "-500", 2, "input_length -500 is out of range"),
        Kind::HugeLength => Refused("500", "99999999999", 2, "input_length 99999999999 is out of range"),
        Kind::NegativeTime => {
            Refused("\"timestamp\": 20", "\"timestamp\": -20", 2, "timestamp -20 is out of range")
        }
        Kind::BackInTime => Refused("\"timestamp\": 20", "\"timestamp\": 5", 2, back),
        Kind::IdsThatDoNotFit => Refused("[6]", "[6, 8]", 2, "2 hash_ids do not fit input_length 500"),
        Kind::NegativeId => Refused("[6]", "[-6]", 2, "integer `-6`"),
    }
}

fn bailian(kind: Kind) -> Case {
    match kind {
        Kind::Garbage => Refused("{\"chat_id\": 2", "chat 2", 2, "the row is cut or not JSON"),
        Kind::WrongType => {
            Refused("\"input_length\": 15", "\"input_length\": 1.5", 2, "floating point `1.5`")
        }
        Kind::NegativeLength => {
            Refused("\"output_length\": 8", "\"output_length\": -8", 2, "output_length -8")
        }
        Kind::HugeLength => Refused(": 15", ": 99999999999", 2, "input_length 99999999999 is out of range"),
        Kind::NegativeTime => Refused("20.5", "-20.5", 2, "timestamp -20.5 is out of range"),
        Kind::BackInTime => Refused("20.5", "9.5", 2, "timestamp 9.5 comes after 10"),
        Kind::IdsThatDoNotFit => Refused("[6]", "[]", 2, "0 hash_ids do not fit input_length 15"),
        kind => lines_of_objects(kind, ""),
    }
}

fn azure(kind: Kind) -> Case {
    match kind {
        Kind::Garbage => Refused("2023-11-16 18:17:04.0319600,500,11", "hello", 3, "the row ends before"),
        Kind::Cut => Short(10, 4, "the row ends before `ContextTokens`"),
        Kind::MissingField => Refused(",11", "", 3, "the row ends before `GeneratedTokens`"),
        Kind::WrongType => Refused(",500", ",5e0.5", 3, "ContextTokens \"5e0.5\" is not a whole number"),
        Kind::NegativeLength => Refused(",500", ",-500", 3, "ContextTokens -500 is out of range"),
        Kind::HugeLength => Refused(",500", ",99999999999", 3, "ContextTokens 99999999999 is out of range"),
        Kind::NegativeTime => {
            Refused("2023-11-16 18:17:04", "-2023-11-16 18:17:04", 3, "is not a time stamp")
        }
        Kind::BackInTime => Refused("17:04.0319600", "17:02.0319600", 3, "comes after 2023-11-16 18:17:03"),
        Kind::IdsThatDoNotFit | Kind::NegativeId => Without("it has no ids"),
    }
}

fn burstgpt(kind: Kind) -> Case {
    match kind {
        Kind::Garbage => Refused("20,b,500,19", "hello", 3, "the row ends before `Request tokens`"),
        Kind::Cut => Short(4, 4, "the row ends before `Response tokens`"),
        Kind::MissingField => Refused(",19", "", 3, "the row ends before `Response tokens`"),
        Kind::WrongType => Refused("20,b", "noon,b", 3, "Timestamp \"noon\" is not a number"),
        Kind::NegativeLength => Refused(",19", ",-19", 3, "Response tokens -19 is out of range"),
        Kind::HugeLength => Refused("500", "99999999999", 3, "Request tokens 99999999999 is out of range"),
        Kind::NegativeTime => Refused("20,b", "-20,b", 3, "Timestamp -20 is out of range"),
        Kind::BackInTime => Refused("20,b", "9.5,b", 3, "timestamp 9.5 comes after 10"),
        Kind::IdsThatDoNotFit | Kind::NegativeId => Without("it has no ids"),
    }
}

fn sharegpt(kind: Kind) -> Case {
    match kind {
        Kind::Garbage => Refused("{\"id\": \"b\"", "hello {\"id\": \"b\"", 2, "not a JSON object"),
        Kind::Cut => Short(12, 2, "the object does not end"),
        Kind::MissingField => Refused("\"b\", \"conversations\"", "\"b\", \"talk\"", 2, "missing field"),
        Kind::WrongType => Refused("\"Bye\"", "7", 2, "integer `7`"),
        Kind::NegativeLength | Kind::HugeLength => Without("lengths are those of the text"),
        Kind::NegativeTime | Kind::BackInTime => Without("it has no times"),
        Kind::IdsThatDoNotFit | Kind::NegativeId => Without("ids are made from the text"),
    }
}

fn weka(kind: Kind) -> Case {
    match kind {
        Kind::Garbage => Refused("\"in\": 500", "\"in\": five", 2, "the row is cut or not JSON"),
        Kind::Cut => Short(12, 2, "the object does not end"),
        Kind::MissingField => Refused("\"out\": 8", "\"outs\": 8", 2, "missing field `out`"),
        Kind::WrongType => Refused("\"in\": 500", "\"in\": \"many\"", 2, "string \"many\""),
        Kind::NegativeLength => {
            Refused("\"in\": 500", "\"in\": -500", 2, "request 3: in -500 is out of range")
        }
        Kind::HugeLength => {
            Refused("\"in\": 100", "\"in\": 99999999999", 2, "request 1 of subagent 2: in 99999999999")
        }
        Kind::NegativeTime => Refused("\"t\": 20", "\"t\": -20", 2, "request 3: t -20 is out of range"),
        Kind::BackInTime => Refused("\"t\": 20", "\"t\": 9", 2, "request 3: t 9 comes after 15"),
        Kind::IdsThatDoNotFit => Refused("[7]", "[7, 8, 9]", 2, "subagent 2: 3 hash_ids do not fit"),
        Kind::NegativeId => Refused("[7]", "[-7]", 2, "integer `-7`"),
    }
}

fn router(kind: Kind) -> Case {
    match kind {
        Kind::Garbage => Refused("{\"e\":\"tick\"", "tick", 4, "the row is cut or not JSON"),
        Kind::Cut => PassedOver(12),
        Kind::MissingField => Refused("\"arrived\":100,", "", 3, "missing field `arrived`"),
        Kind::WrongType => Refused("\"size\":96", "\"size\":\"long\"", 2, "string \"long\""),
        Kind::NegativeLength => Refused("\"output_tokens\":7", "\"output_tokens\":-7", 3, "integer `-7`"),
        Kind::HugeLength => {
            Refused("\"output_tokens\":7", "\"output_tokens\":99999999999", 3, "output_tokens 99999999999")
        }
        Kind::NegativeTime => Refused("\"arrived\":100", "\"arrived\":-100", 3, "integer `-100`"),
        Kind::BackInTime => {
            Without("rows are sorted, as requests do not end in the order in which they come")
        }
        Kind::IdsThatDoNotFit => {
            Refused("\"size\":96", "\"size\":960", 2, "6 tags do not fit a prompt of 960")
        }
        Kind::NegativeId => Refused("\"tags\":\"0001", "\"tags\":\"-001", 2, "four hexadecimal digits"),
    }
}

fn changed(format: Format, from: &str, to: &str) -> String {
    let good = good(format);
    assert_eq!(good.matches(from).count(), 1, "{format:?}: {from}");
    good.replace(from, to)
}

fn short(format: Format, bytes: usize) -> &'static str {
    &good(format)[..good(format).len() - bytes]
}

#[test]
fn every_mistake_in_every_format_names_file_line_and_remedy() {
    let mut refusals = 0;
    for format in Format::ALL {
        let rows = parsed(format, good(format)).unwrap_or_else(|error| panic!("{format:?}: {error}")).rows;
        assert!(!rows.is_empty());
        for kind in KINDS {
            let (text, line, says) = match case(format, kind) {
                Refused(from, to, line, says) => (changed(format, from, to), line, says),
                Short(bytes, line, says) => (short(format, bytes).to_owned(), line, says),
                PassedOver(bytes) => {
                    assert_eq!(parsed(format, short(format, bytes)).unwrap().rows, rows, "{format:?}");
                    continue;
                }
                Without(why) => {
                    assert!(!why.is_empty());
                    continue;
                }
            };
            refusals += 1;
            let message =
                parsed(format, &text).map(|trace| trace.rows).expect_err(&format!("{format:?} {kind:?}"));
            assert!(message.starts_with(&format!("t:{line}: ")), "{format:?} {kind:?}: {message}");
            assert!(message.contains(says), "{format:?} {kind:?}: {message}");
            assert!(message.contains("; "), "a remedy: {format:?} {kind:?}: {message}");
            assert!(!message.contains("column 0"), "{format:?} {kind:?}: {message}");
        }
    }
    assert!(refusals >= 65, "{refusals}");
}

#[test]
fn a_bad_line_of_a_recording_takes_no_others_with_it() {
    let text = changed(Format::Router, "{\"e\":\"tick\",\"t\":1000}\n", &format!("tick\n{}", tail()));
    let refused = parsed(Format::Router, &text).unwrap_err();
    assert!(refused.starts_with("t:4: "), "{refused}");
    let options = super::Options { skip_bad: 1, ..super::Options::default() };
    let trace = super::tests::read_with(&options, &text).unwrap();
    assert_eq!(trace.rows.iter().map(|row| row.at_ns).collect::<Vec<_>>(), [50, 100]);
    assert_eq!(trace.skipped, 1);
}

/// A look and the end of another request.
fn tail() -> String {
    let lines: Vec<&str> = ROUTER.lines().skip(1).take(2).collect();
    lines.join("\n").replace("\"n\":1", "\"n\":2").replace("\"arrived\":100", "\"arrived\":50") + "\n"
}
