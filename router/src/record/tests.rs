//! What is put in is what is written, and nothing waits for it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::line::{Header, Line, RoleName};
use super::salt::Salt;
use super::tape::{Item, Tape};
use super::writer::Writer;
use super::{Counts, header};
use crate::cli;

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
    fs::write(&path, "of a former run").expect("a file");
    let (tape, lines) = tape(1000);
    let mut writer = Writer::open(&path, 2000, begin(), Arc::clone(&tape)).expect("a file");
    let aside = directory.path().join("trace.1");
    assert_eq!(fs::read_to_string(&aside).expect("it was put aside"), "of a former run");
    tape.put(added(0));
    tape.put(added(1));
    tape.put(Line::Health { t: 2, worker: 1, healthy: true });
    tape.put(Line::Remove { t: 3, worker: 0 });
    (0..200).for_each(|t| tape.put(Line::Tick { t }));
    writer.drain(&lines);
    writer.flush();
    let ((former, before), (last, after)) = (read(&aside), read(&path));
    assert!(former.part > 0 && last.part == former.part + 1, "{} then {}", former.part, last.part);
    let again = [
        added(0),
        added(1),
        Line::Remove { t: 3, worker: 0 },
        Line::Health { t: 2, worker: 1, healthy: true },
    ];
    for (header, lines) in [(&former, &before), (&last, &after)] {
        assert_eq!((header.restated, &lines[..4]), (4, &again[..]));
    }
    let ticks: Vec<_> = before[4..].iter().chain(&after[4..]).cloned().collect();
    let first = 200 - ticks.len() as u64;
    assert_eq!(ticks, (first..200).map(|t| Line::Tick { t }).collect::<Vec<_>>(), "no line is lost");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 2, "one older file is kept");
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
