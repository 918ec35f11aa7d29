//! What is put in is what is written, and nothing waits for it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{IndexLimits, PrefixIndex};
use router_core::prompt::PromptView;

use super::facts::Facts;
use super::line::{Header, Line, RoleName, Roles};
use super::salt::Salt;
use super::tape::{Item, Tape};
use super::writer::Writer;
use super::{Counts, header, look_of};
use crate::cli;

const FORMER: &str = "{\"router_trace\":1,\"of\":\"a former run\"}\n";

fn begin() -> Header {
    let parsed = cli::parse_router_args([std::ffi::OsString::from("router")].into_iter());
    header(&parsed.expect("a configuration").config)
}

fn tape(lines: usize) -> (Arc<Tape>, std::sync::mpsc::Receiver<Item>) {
    let (tape, receiver) = Tape::new(Salt::of([1; 16]), lines);
    (Arc::new(tape), receiver)
}

fn read(path: &Path) -> (Header, Vec<Line>) {
    let text = fs::read_to_string(path).expect("a file");
    let mut lines = text.lines();
    let header = serde_json::from_str(lines.next().expect("a header")).expect("a header");
    (header, lines.map(|line| serde_json::from_str(line).expect("a line")).collect())
}

fn added(worker: u32) -> Line {
    let url = format!("http://w{worker}").into();
    Line::Add { t: 1, worker, url, model: None, role: RoleName::Regular }
}

#[test]
fn what_finds_no_room_is_dropped_counted_and_told_where_it_is_missing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    let (tape, lines) = tape(3);
    let mut writer = Writer::open(&path, u64::MAX, begin(), Arc::clone(&tape)).expect("a file");
    (0..8).for_each(|t| tape.put(Line::Tick { t }));
    assert_eq!(tape.counts(), Counts { written: 0, dropped: 5 });
    assert!(!writer.drain(&lines));
    tape.put(Line::Tick { t: 8 });
    writer.drain(&lines);
    writer.flush();
    let told: Vec<_> = read(&path).1;
    let tick = |t| Line::Tick { t };
    assert_eq!(told, [tick(0), tick(1), tick(2), Line::Dropped { dropped: 5 }, tick(8)]);
    assert_eq!(tape.counts(), Counts { written: 4, dropped: 5 });
}

#[test]
fn a_full_file_is_put_aside_and_the_next_one_says_again_who_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    fs::write(&path, FORMER).expect("a file");
    let (tape, lines) = tape(1000);
    let mut writer = Writer::open(&path, 2000, begin(), Arc::clone(&tape)).expect("a file");
    let aside = directory.path().join("trace.1");
    assert_eq!(fs::read_to_string(&aside).expect("it was put aside"), FORMER);
    tape.put(added(0));
    tape.put(added(1));
    tape.put(Line::Health { t: 2, worker: 1, healthy: true });
    let load = |worker, t| Line::Load { t, asked: t, worker, report: None };
    tape.put(load(0, 2));
    tape.put(Line::Remove { t: 3, worker: 0 });
    tape.put(load(1, 4));
    tape.put(load(1, 5));
    (0..200).for_each(|t| tape.put(Line::Tick { t }));
    writer.drain(&lines);
    writer.flush();
    let ((former, before), (last, after)) = (read(&aside), read(&path));
    assert!(former.part > 0 && last.part == former.part + 1, "{} then {}", former.part, last.part);
    // Of a worker that is gone nothing is said.
    let again = [added(1), Line::Health { t: 2, worker: 1, healthy: true }, load(1, 5)];
    for (header, lines) in [(&former, &before), (&last, &after)] {
        assert_eq!((header.restated, &lines[..3]), (3, &again[..]));
    }
    let ticks: Vec<_> = before[3..].iter().chain(&after[3..]).cloned().collect();
    let first = 200 - ticks.len() as u64;
    assert_eq!(ticks, (first..200).map(|t| Line::Tick { t }).collect::<Vec<_>>(), "no line is lost");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 2, "one older file is kept");
}

#[test]
fn what_is_said_again_does_not_grow_with_the_workers_that_came_and_went() {
    let mut facts = Facts::new(begin());
    for worker in 0..1000 {
        facts.learn(&added(worker));
        facts.learn(&Line::Model { worker, model: Some("m".into()) });
        facts.learn(&Line::Drain { t: 2, worker });
        facts.learn(&Line::Remove { t: 3, worker });
    }
    assert_eq!(facts.restate().1, []);
    let model = |name: &str| Line::Model { worker: 1000, model: Some(name.into()) };
    let drain = Line::Drain { t: 5, worker: 1000 };
    [added(1000), model("a"), drain.clone(), model("b")].iter().for_each(|line| facts.learn(line));
    assert_eq!(facts.restate().1, [added(1000), model("b"), drain]);
    assert_eq!(facts.target("http://w1000/").as_deref(), Some("http://w1000/"));
    assert_eq!(facts.target("http://w1"), None, "it is gone");
}

#[test]
fn what_is_no_recording_is_not_put_aside_in_mid_run_either() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("trace");
    let (tape, lines) = tape(1000);
    let mut writer = Writer::open(&path, 2000, begin(), Arc::clone(&tape)).expect("a file");
    let aside = directory.path().join("trace.1");
    fs::write(&aside, "somebody's").expect("a file");
    (0..200).for_each(|t| tape.put(Line::Tick { t }));
    writer.drain(&lines);
    assert_eq!(fs::read_to_string(&aside).expect("a file"), "somebody's");
    assert!(tape.counts().dropped > 0, "the recording has ended");
}

#[test]
fn lines_are_read_as_they_were_written() {
    let json = serde_json::to_string(&added(3)).expect("JSON");
    assert_eq!(json, r#"{"e":"add","t":1,"worker":3,"url":"http://w3","model":null,"role":"regular"}"#);
    let header = begin();
    let again: Header =
        serde_json::from_str(&serde_json::to_string(&header).expect("JSON")).expect("a header");
    assert_eq!(again, header);
}

#[test]
fn a_look_tells_how_much_of_the_prompt_is_held_and_since_which_credit() {
    let mut index = PrefixIndex::new(IndexLimits { max_tree_size: 1000, max_tree_bytes: 1 << 20 });
    for prompt in ["somebody else", "hello world"] {
        index.credit(ScopeId(4), PromptView::Text(prompt.as_bytes()), WorkerId(0));
    }
    let told = |scope, prompt: &str| {
        let (scopes, prompt) =
            (Roles { decode: Some(scope), ..Roles::default() }, PromptView::Text(prompt.as_bytes()));
        let mut look = look_of([1; 16], 1, scopes, prompt);
        look.share(prompt, &index);
        let json = serde_json::to_string(&Line::Look(Box::new(look))).expect("JSON");
        assert!(matches!(serde_json::from_str(&json), Ok(Line::Look(_))), "{json}");
        json
    };
    assert!(told(4, "hello there").ends_with(r#","shared":{"decode":[6,2]}}"#));
    assert!(told(4, "hello world, hello").ends_with(r#","shared":{"decode":[11,2]}}"#));
    assert!(!told(4, "good morning").contains("shared"));
    assert!(!told(3, "hello there").contains("shared"), "another scope");
}
