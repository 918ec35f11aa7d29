//! Prompts that stand in for others.

use std::collections::BTreeMap;

use router::record::line::{Kind, Look, Pieces, Roles};

use super::prompt::Prompt;

fn look(kind: Kind, size: u64, tags: &str) -> Look {
    let (scopes, tags, shared) = (Roles::default(), tags.into(), BTreeMap::new());
    Look { n: 1, scopes, kind, size, chars: None, tags, starts: None, shared }
}

fn prompt(look: &Look) -> Prompt {
    Prompt::of(look, Pieces::WRITTEN)
}

fn common(a: &Prompt, b: &Prompt) -> usize {
    match (a, b) {
        (Prompt::Text(a), Prompt::Text(b)) => a.iter().zip(b).take_while(|(a, b)| a == b).count(),
        (Prompt::Ids(a), Prompt::Ids(b)) => a.iter().zip(b).take_while(|(a, b)| a == b).count(),
        _ => 0,
    }
}

#[test]
fn they_are_as_long_and_part_where_the_tags_do() {
    let one = prompt(&look(Kind::Text, 50, "00010002000300ff"));
    let other = prompt(&look(Kind::Text, 64, "0001000200040005"));
    assert_eq!((one.view().chars(), other.view().chars()), (50, 64));
    let shared = common(&one, &other);
    assert!((32..36).contains(&shared), "{shared}");
    let (one, other) =
        (prompt(&look(Kind::Ids, 10, "000100020003")), prompt(&look(Kind::Ids, 9, "000100020007")));
    assert_eq!((one.view().chars(), other.view().chars(), common(&one, &other)), (40, 36, 8));
    assert_eq!(prompt(&look(Kind::None, 0, "")).view().chars(), 0);
}

#[test]
fn wide_characters_start_where_they_did() {
    let starts = Some("9249249249".into());
    let wide = Look { chars: Some(14), starts, ..look(Kind::Text, 40, "aaaabbbbcccc") };
    let prompt = prompt(&wide);
    assert_eq!(prompt.view().chars(), 14);
    let Prompt::Text(text) = &prompt else { panic!("{prompt:?}") };
    assert_eq!(text.len(), 40);
    assert!((0..40).all(|at| router_core::prompt::starts_char(text[at]) == (at % 3 == 0)), "{text:?}");
}

#[test]
fn what_is_not_indexed_counts_for_its_length() {
    let tags = "0123".repeat(16_384 / 16 + (262_144 - 16_384) / 64);
    let prompt = prompt(&look(Kind::Text, 300_000, &tags));
    assert_eq!(prompt.view().chars(), 300_000);
}
