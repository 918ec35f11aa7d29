//! Text of every script: nothing is cut inside a character in a way that anybody could see.

use std::collections::HashSet;
use std::fmt::Write;

use crate::common::{Message, Router, Worker};

/// Neighbours whose encodings share all but the last byte, or all but the last character.
const NEIGHBOURS: [[&str; 2]; 6] = [
    ["\u{6253}", "\u{6254}"],
    ["\u{1f469}\u{200d}\u{1f4bb}", "\u{1f469}\u{200d}\u{1f4bc}"],
    ["\u{1f600}", "\u{1f601}"],
    ["e\u{301}", "e\u{300}"],
    ["\u{b0}", "\u{b1}"],
    ["\u{1112}\u{1161}\u{11ab}", "\u{1112}\u{1161}\u{11ac}"],
];
const SCRIPTS: [&str; 5] = [
    "\u{6771}\u{4eac}\u{306f}",
    "\u{1f9d1}\u{1f3fd}\u{200d}\u{1f680}",
    "a\u{308}\u{323}",
    "\u{5e9}\u{5dc}",
    "\u{d7}\u{394}\u{b0}x",
];

fn fleet(size: usize) -> (Vec<Worker>, Vec<String>) {
    let workers: Vec<_> = (0..size).map(|_| Worker::fixed("{}")).collect();
    let urls = workers.iter().map(Worker::url).collect();
    (workers, urls)
}

fn decided(answer: &Message) -> usize {
    answer.header("x-router-worker").expect("a decision").parse().expect("a number")
}

/// Text that begins with `length` characters of a script, forks at neighbouring characters, and goes on for a while.
fn forked(number: usize, length: usize, fork: usize) -> String {
    let script = SCRIPTS[number % SCRIPTS.len()];
    let shared: String = script.chars().cycle().skip(number / 30).take(length).collect();
    let at = NEIGHBOURS[number % NEIGHBOURS.len()][fork];
    format!("{shared}{at}{}", script.repeat(20))
}

/// As JSON text, with every other character escaped or none.
fn json(text: &str, escaped: bool) -> String {
    let mut json = String::from("\"");
    for (at, character) in text.chars().enumerate() {
        if escaped && (at % 2 == 0 || character.is_ascii()) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(json, "\\u{unit:04x}").expect("a string");
            }
        } else {
            json.push(character);
        }
    }
    json + "\""
}

fn body(path: &str, text: &str, escaped: bool) -> String {
    let text = json(text, escaped);
    match path {
        "/generate" => format!(r#"{{"text":{text},"rid":"\u6253"}}"#),
        "/v1/completions" => format!(r#"{{"prompt":[{text}]}}"#),
        _ => format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"text","text":{text}}}]}}]}}"#),
    }
}

// sgl-project/sglang#11766: text was cut at a byte within a character, and the task panicked.
#[test]
fn prompts_that_part_within_a_character_are_all_answered() {
    for policy in ["cache_aware", "prefix_hash"] {
        let (workers, urls) = fleet(3);
        let (mut router, log) =
            Router::start_logged(&urls, &["--policy", policy, "--max-tree-size", "20000"]);
        let mut client = router.client();
        let mut sent = HashSet::new();
        for number in 0..120 {
            for fork in [0, 1] {
                for (path, escaped) in
                    [("/generate", false), ("/v1/chat/completions", true), ("/v1/completions", false)]
                {
                    let body = body(path, &forked(number, 1 + number * 7 % 61, fork), escaped);
                    assert_eq!(client.post(path, "", body.as_bytes()).status(), 200, "{policy}: {body}");
                    sent.insert(body);
                }
            }
        }
        let arrived = workers.iter().flat_map(Worker::take_seen).map(|request| request.text());
        assert_eq!(arrived.collect::<HashSet<_>>(), sent, "{policy}: byte for byte");
        drop(client);
        router.signal("TERM");
        assert_eq!(router.wait().code(), Some(0));
        let lines = log.into_lines();
        assert!(!lines.iter().any(|line| line.contains("panicked")), "{policy}: {lines:?}");
    }
}

// sgl-project/sglang#11766: without the panic, the prefix still has to count.
#[test]
fn a_prefix_of_any_script_is_known_again_however_it_is_written() {
    let (_workers, urls) = fleet(4);
    let router = Router::start(&urls, &["--policy", "cache_aware", "--decision-headers"]);
    let mut client = router.client();
    let mut used = HashSet::new();
    for path in ["/generate", "/v1/chat/completions", "/v1/completions"] {
        for number in 0..40 {
            let mut ask = |fork, escaped| {
                // Each has a beginning of its own, and neighbours part late.
                let text = format!("{path} {number} {}", forked(number, 400, fork));
                client.post(path, "", body(path, &text, escaped).as_bytes())
            };
            let first = ask(0, false);
            used.insert(decided(&first));
            for (fork, escaped) in [(0, false), (0, true), (1, false), (1, true)] {
                let again = ask(fork, escaped);
                assert_eq!(decided(&again), decided(&first), "{path}, {number}, {fork}, escaped: {escaped}");
                let tokens = again.header("x-router-predicted-tokens").expect("a belief");
                assert!(tokens.parse::<u64>().expect("a number") > 50, "{path}, {number}: {tokens}");
            }
        }
    }
    assert_eq!(used.len(), 4, "and not because all go to one");
}
