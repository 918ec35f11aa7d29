use proptest::prelude::*;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::*;

/// The members of an object as they stand there: names read, values as they are written.
fn members(text: &[u8]) -> Vec<(String, String)> {
    struct InOrder;
    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<(String, String)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                members.push((name, value.get().to_owned()));
            }
            Ok(members)
        }
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let members = reader.deserialize_map(InOrder).expect("an object");
    reader.end().expect("nothing behind it");
    members
}

fn spliced(body: &str, members: &[Member<'_>]) -> String {
    String::from_utf8(splice(body.as_bytes(), members).expect("an object")).expect("UTF-8")
}

#[test]
fn the_bytes_of_everything_else_stay() {
    let room = [Member::new("room", "7")];
    for (body, expected) in [
        ("{}", r#"{"room":7}"#),
        (" { } ", r#" {"room":7 } "#),
        (r#"{"a": 1.50 }"#, r#"{"a": 1.50,"room":7 }"#),
        (r#"{"room":1}"#, r#"{"room":7}"#),
        (r#"{ "room" : 1 , "a":2}"#, r#"{"a":2,"room":7}"#),
        (r#"{"a":2, "room":[1,{"room":2}] }"#, r#"{"a":2,"room":7 }"#),
        (
            r#"{"a":2, "room":1 , "b":{"room":3},"room":4, "c":"room"}"#,
            r#"{"a":2 , "b":{"room":3}, "c":"room","room":7}"#,
        ),
        (r#"{"room":1,"\u0072oom":2,"a":3,"r\u006fom":4}"#, r#"{"a":3,"room":7}"#),
        (r#"{"ROOM":1,"room ":2,"roo\\u006d":3}"#, r#"{"ROOM":1,"room ":2,"roo\\u006d":3,"room":7}"#),
        ("\u{feff}{\"a\":1}", "\u{feff}{\"a\":1,\"room\":7}"),
        (r#"{"a":NaN,"b":1e400,"b":2}"#, r#"{"a":NaN,"b":1e400,"b":2,"room":7}"#),
    ] {
        assert_eq!(spliced(body, &room), expected, "{body}");
    }
    assert_eq!(spliced(r#"{"a":1, "b":2}"#, &[]), r#"{"a":1, "b":2}"#);
    let both = [Member::without("a"), Member::new("b", "null")];
    assert_eq!(spliced(r#"{"a":1, "b":2}"#, &both), r#"{"b":null}"#);
    assert_eq!(spliced(r#"{"a":1}"#, &both[..1]), "{}");
}

#[test]
fn what_is_no_object_is_told() {
    for body in [
        "",
        " ",
        "null",
        "7",
        "[]",
        r#""{}""#,
        "{",
        r#"{"a""#,
        r#"{"a":"#,
        r#"{"a":1"#,
        r#"{"a":1,}"#,
        r#"{a:1}"#,
        r#"{"a":1}x"#,
        r#"{"a":1}{"b":2}"#,
        r#"{"a":1]"#,
        r#"{"a":1 "b":2}"#,
        r#"[{"a":1}]"#,
        "{\"a\u{0}",
        "\u{feff}",
    ] {
        assert_eq!(splice(body.as_bytes(), &[Member::new("a", "2")]), Err(NoObject), "{body}");
    }
    let utf16: Vec<u8> = "{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(splice(&utf16, &[]), Err(NoObject));
}

#[test]
fn depth_and_length_cost_no_more_than_their_bytes() {
    let deep = format!(r#"{{"a":{}{},"room":1}}"#, "[".repeat(1_000_000), "]".repeat(1_000_000));
    let room = Member::new("room", "7");
    assert!(spliced(&deep, std::slice::from_ref(&room)).ends_with(r#"]],"room":7}"#));
    let many = format!("{{{}\"z\":0}}", r#""room":1,"#.repeat(300_000));
    assert_eq!(spliced(&many, &[room]), r#"{"z":0,"room":7}"#);
}

/// One way to write a name.
fn spelled(name: &str, escapes: u8) -> String {
    let char = |(at, char): (usize, char)| match escapes >> (at % 8) & 1 {
        1 => format!("\\u{:04x}", char as u32),
        _ => char.to_string(),
    };
    name.chars().enumerate().map(char).collect()
}

fn a_value() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[1-9][0-9]{0,3}(\\.[0-9]{1,3})?",
        "\"[ a-z{}:,\\[\\]]{0,6}\"",
        Just(r#""\"}\\""#.to_owned()),
        Just("null".to_owned()),
        Just("[1, [\"]\"], {\"room\": 2}]".to_owned()),
        Just("{\"host\": {}, \"a\": \"}\"}".to_owned()),
    ]
}

fn a_member() -> impl Strategy<Value = (&'static str, u8, String, &'static str)> {
    let names = prop_oneof![Just("room"), Just("host"), Just("port"), Just("a"), Just("roo"), Just("")];
    (names, any::<u8>(), a_value(), prop_oneof![Just(""), Just(" "), Just("\n\t")])
}

proptest! {
    #[test]
    fn members_are_as_if_the_object_had_been_read_and_written(
        given in proptest::collection::vec(a_member(), 0..8),
        host in proptest::option::of(a_value()),
    ) {
        let text: Vec<_> = given.iter().map(|(name, escapes, value, space)| {
            format!("{space}\"{}\"{space}:{space}{value}{space}", spelled(name, *escapes))
        }).collect();
        let body = format!("{{{}}}", text.join(","));
        let put = [Member::new("room", "[1,2]"), Member { name: "host", value: host }];
        let mut expected = members(body.as_bytes());
        expected.retain(|(name, _)| put.iter().all(|member| member.name != name));
        for Member { name, value } in &put {
            expected.extend(value.clone().map(|value| ((*name).to_owned(), value)));
        }
        let spliced = splice(body.as_bytes(), &put).expect("an object");
        prop_assert_eq!(members(&spliced), expected);
        prop_assert_eq!(splice(&spliced, &put).expect("an object"), spliced, "once is enough");
    }

    #[test]
    fn bytes_of_any_kind_are_no_object_or_come_back(bytes in proptest::collection::vec(prop_oneof![
        Just(b'{'), Just(b'}'), Just(b'"'), Just(b':'), Just(b','), Just(b'['), Just(b']'), Just(b'\\'), Just(b'a'), Just(b' '), any::<u8>(),
    ], 0..24)) {
        if let Ok(same) = splice(&bytes, &[]) {
            prop_assert_eq!(same, bytes);
        }
    }
}
