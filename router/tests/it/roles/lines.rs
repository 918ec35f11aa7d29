//! Command lines of prefill and decode workers: each runs as it says, or is refused in one line that names the option.
//! sgl-project/sglang#7904, sgl-project/sglang#8644, sgl-project/sglang#8395.

use serde_json::{Value, json};

use super::listed;
use crate::common::Router;
use crate::common::process::run_to_end;
use crate::common::worker::dead_url;

/// A worker as it is listed: its letter in the line, role, bootstrap port (0: none is told) and policy.
type Row = (&'static str, &'static str, u16, &'static str);

/// A line that runs and who works then. `P`, `Q`, `D`, `E` and `R` stand for URLs.
const RUNS: &[(&str, &[Row])] = &[
    (
        "--pd-disaggregation --policy cache_aware --prefill P --decode D",
        &[("P", "prefill", 0, "cache_aware"), ("D", "decode", 0, "cache_aware")],
    ),
    (
        "--pd-disaggregation --prefill P 8998 --decode D",
        &[("P", "prefill", 8998, "cache_aware"), ("D", "decode", 0, "cache_aware")],
    ),
    (
        "--pd-disaggregation --prefill P none --prefill Q 65535 --decode D --decode E --policy random",
        &[
            ("P", "prefill", 0, "random"),
            ("Q", "prefill", 65535, "random"),
            ("D", "decode", 0, "random"),
            ("E", "decode", 0, "random"),
        ],
    ),
    (
        "--pd-disaggregation --prefill P NONE --decode D --policy round_robin",
        &[("P", "prefill", 0, "round_robin"), ("D", "decode", 0, "round_robin")],
    ),
    (
        "--decode D --prefill P None --pd-disaggregation --policy manual",
        &[("P", "prefill", 0, "manual"), ("D", "decode", 0, "manual")],
    ),
    (
        "--pd-disaggregation --prefill P --prefill-policy bucket --decode-policy power_of_two --decode D E",
        &[
            ("P", "prefill", 0, "bucket"),
            ("D", "decode", 0, "power_of_two"),
            ("E", "decode", 0, "power_of_two"),
        ],
    ),
    (
        "--pd-disaggregation --policy random --prefill-policy cache_aware --cache-threshold 0.5 --prefill P --decode D",
        &[("P", "prefill", 0, "cache_aware"), ("D", "decode", 0, "random")],
    ),
    (
        "--pd-disaggregation --policy power_of_two --prefill P 1 --decode D",
        &[("P", "prefill", 1, "power_of_two"), ("D", "decode", 0, "power_of_two")],
    ),
    (
        "--pd-disaggregation --policy bucket --decode-policy random --prefill P --decode D",
        &[("P", "prefill", 0, "bucket"), ("D", "decode", 0, "random")],
    ),
    (
        "--worker-urls R --pd-disaggregation --prefill P 9000 --decode D --prefer-pd false --pd-least-uncached-tokens 512",
        &[
            ("R", "regular", 0, "cache_aware"),
            ("P", "prefill", 9000, "cache_aware"),
            ("D", "decode", 0, "cache_aware"),
        ],
    ),
    (
        "--pd-disaggregation --prefill P --decode D --dp-aware --dp-rank-field routed_dp_rank --decode-dispatch-limit 8",
        &[("P", "prefill", 0, "cache_aware"), ("D", "decode", 0, "cache_aware")],
    ),
    ("--worker-urls R --decode-policy random", &[("R", "regular", 0, "cache_aware")]),
];

/// A line that cannot run, the option that is named, and what is said of it.
const REFUSED: &[(&str, &str, &str)] = &[
    ("--pd-disaggregation", "--pd-disaggregation", "name some with --prefill and --decode"),
    ("--pd-disaggregation --worker-urls R", "--pd-disaggregation", "with --prefill and --decode"),
    ("--pd-disaggregation --prefill P", "--pd-disaggregation", "name some with --decode"),
    ("--pd-disaggregation --decode D", "--pd-disaggregation", "name some with --prefill"),
    ("--prefill P --decode D", "--prefill", "needs --pd-disaggregation beside it"),
    ("--decode D", "--decode", "needs --pd-disaggregation beside it"),
    ("--pd-disaggregation --prefill P 0 --decode D", "--prefill", "`0` is neither a URL"),
    ("--pd-disaggregation --prefill P 65536 --decode D", "--prefill", "from 1 to 65535, or none"),
    ("--pd-disaggregation --prefill P -1 --decode D", "--prefill", "`-1` is neither"),
    ("--pd-disaggregation --prefill P nothing --decode D", "--prefill", "`nothing` is neither"),
    ("--pd-disaggregation --prefill P +8998 --decode D", "--prefill", "`+8998` is neither a URL"),
    ("--pd-disaggregation --prefill P EMPTY --decode D", "--prefill", "`` is neither a URL"),
    ("--pd-disaggregation --prefill EMPTY P --decode D", "--prefill", "worker URL ``"),
    ("--pd-disaggregation --prefill P --decode D EMPTY", "--decode", "worker URL ``"),
    ("--pd-disaggregation --prefill=http://p:1 8998 --decode D", "--prefill", "`8998` stands behind a value"),
    ("--pd-disaggregation --prefill=http://p:1 8998 --decode D", "--prefill", "write --prefill URL PORT"),
    ("--pd-disaggregation --prefill P --decode=http://d:1 http://e:1", "--decode", "write --decode URL URL"),
    ("--worker-urls=http://a:1 http://b:1", "--worker-urls", "write --worker-urls URL URL"),
    (
        "--pd-disaggregation --prefill P --decode D --prefill-queue-size 9",
        "--prefill-queue-size",
        "--decode-dispatch-limit",
    ),
    ("--pd-disaggregation --prefill P 1 2 --decode D", "--prefill", "`2`: no scheme"),
    ("--pd-disaggregation --prefill 8998 --decode D", "--prefill", "`8998`: no scheme"),
    ("--pd-disaggregation --prefill --decode D", "--prefill", "a value is required"),
    ("--pd-disaggregation --prefill w:1 --decode D", "--prefill", "worker URL `w:1`: no scheme"),
    ("--pd-disaggregation --prefill P --decode D 8998", "--decode", "`8998`: no scheme"),
    ("--pd-disaggregation --prefill P --decode grpc://d:1", "--decode", "gRPC is not spoken"),
    ("--worker-urls http://w:1@7 --dp-aware", "--worker-urls", "rank 7 of `http://w:1`"),
    (
        "--pd-disaggregation --prefill P --decode http://d:1@0",
        "--decode",
        "give `http://d:1`: with --dp-aware",
    ),
    ("--pd-disaggregation --prefill P --decode P", "--decode", "is given to --prefill too"),
    (
        "--pd-disaggregation --worker-urls D --prefill P --decode D",
        "--decode",
        "is given to --worker-urls too",
    ),
    ("--pd-disaggregation --prefill P 1 --prefill P 2 --decode D", "--prefill", "is given twice"),
    (
        "--pd-disaggregation --prefill P --decode D --decode-policy bucket",
        "--decode-policy",
        "cannot choose decode",
    ),
    (
        "--pd-disaggregation --prefill P --decode D --policy bucket",
        "--decode-policy",
        "beside --policy bucket",
    ),
    ("--pd-disaggregation --prefill P --decode D --prefill-policy none", "--prefill-policy", "cache_aware"),
    (
        "--pd-disaggregation --prefill P --decode D --decode-dispatch-limit x",
        "--decode-dispatch-limit",
        "number",
    ),
    ("--pd-disaggregation --prefill P --decode D --prefer-pd", "--prefer-pd", "a value is required"),
    ("--pd-disaggregation --prefill P --decode D --mini-lb", "--mini-lb", "leave it out"),
    (
        "--pd-disaggregation --port 1 --prometheus-port 0 --prefill http://localhost:1 --decode D",
        "--prefill",
        "where the router itself listens",
    ),
];

/// The letters of a line, and the URLs for which they stand; and the word for an argument without words.
fn urls() -> Vec<(&'static str, String)> {
    let urls = ["P", "Q", "D", "E", "R"].into_iter().map(|letter| (letter, dead_url()));
    urls.chain([("EMPTY", String::new())]).collect()
}

fn words(line: &str, urls: &[(&str, String)]) -> Vec<String> {
    let word = |word: &str| {
        let found = urls.iter().find(|(letter, _)| *letter == word);
        found.map_or_else(|| word.to_owned(), |(_, url)| url.clone())
    };
    line.split(' ').map(word).collect()
}

#[test]
fn case_82_a_line_that_can_run_runs_with_the_roles_ports_and_policies_that_it_names() {
    for (line, rows) in RUNS {
        let urls = urls();
        let words = words(line, &urls);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let url = |letter: &str| urls.iter().find(|(known, _)| *known == letter).expect("a letter").1.clone();
        let row = |(letter, role, port, policy): &Row| {
            let port = if *port == 0 { Value::Null } else { json!(port) };
            [json!(url(letter)), json!(role), port, json!(policy)]
        };
        let expected: Vec<_> = rows.iter().map(row).collect();
        let (mut router, log) = Router::start_logged(&[], &words);
        assert_eq!(listed(&router), expected, "{line}");
        router.close_stdin();
        assert_eq!(router.wait().code(), Some(0), "{line}");
        let said = log.into_lines().join("");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn case_82_a_line_that_cannot_run_is_refused_in_one_line_that_names_the_option() {
    for (line, option, problem) in REFUSED {
        let words = words(line, &urls());
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        for words in [words.clone(), [&["check"], &words[..]].concat()] {
            let output = run_to_end(&words);
            let said = String::from_utf8(output.stderr).expect("text");
            assert_eq!(output.status.code(), Some(2), "{line}: {said}");
            assert!(output.stdout.is_empty() && !said.contains("panicked"), "{line}: {said}");
            let lines: Vec<_> = said.lines().filter(|told| !told.contains(" warning: ")).collect();
            assert_eq!(lines.len(), 1, "{line}: {said}");
            assert!(lines[0].contains(option) && lines[0].contains(problem), "{line}: {said}");
        }
    }
}

#[test]
fn what_leaves_no_choice_or_waits_for_workers_is_told_at_the_start() {
    for (line, warning) in [
        (
            "--pd-disaggregation --prefill P --decode D --policy power_of_two",
            "--policy power_of_two has no choice with a single prefill worker",
        ),
        (
            "--pd-disaggregation --prefill P --decode D --decode-policy power_of_two",
            "--decode-policy power_of_two has no choice with a single decode worker",
        ),
        (
            "--worker-urls R --prefill-policy random",
            "--prefill-policy is for prefill workers, and none is named so far",
        ),
        (
            "--worker-urls R --max-idle-secs 9 --decode-policy random",
            "no effect under --policy cache_aware, --decode-policy random",
        ),
        (
            "--worker-urls R --decode-dispatch-limit 2",
            "--decode-dispatch-limit bounds what pairs do, and no prefill workers are named so far",
        ),
        (
            "--pd-disaggregation --prefill P --decode D --pd-least-uncached-tokens 9",
            "--pd-least-uncached-tokens chooses between pairs and regular workers, and no regular workers are named",
        ),
        (
            "--worker-urls R --prefer-pd false",
            "--prefer-pd false chooses between pairs and regular workers, and no prefill workers are named so far",
        ),
        (
            "--worker-urls R --dp-rank-field routed_dp_rank",
            "--dp-rank-field has no effect without --dp-aware",
        ),
    ] {
        let words = words(line, &urls());
        let words: Vec<_> = ["check"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let output = run_to_end(&words);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(0), "{line}: {said}");
        assert!(said.contains(warning), "{line}: {said}");
    }
}

#[test]
fn what_has_an_effect_is_not_warned_of() {
    let line = "--pd-disaggregation --prefill P Q --decode D E --worker-urls R --dp-aware --dp-rank-field routed_dp_rank \
                --decode-dispatch-limit 2 --pd-least-uncached-tokens 9 --prefer-pd false";
    let words = words(line, &urls());
    let words: Vec<_> = ["check"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let said = String::from_utf8(run_to_end(&words).stderr).expect("text");
    assert_eq!(said, "");
}

#[test]
fn what_check_prints_is_a_file_for_the_same_workers() {
    let line = "--pd-disaggregation --prefill P 9000 --prefill Q none --decode D --prefill-policy random --worker-urls R";
    let urls = urls();
    let words = words(line, &urls);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let printed = run_to_end(&[&["check"], &words[..]].concat());
    assert_eq!(printed.status.code(), Some(0));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("router.toml");
    let text = String::from_utf8(printed.stdout).expect("text");
    // The harness gives its own addresses.
    std::fs::write(&file, &text).expect("a file");
    let by_file = Router::start(&[], &["--config", file.to_str().expect("a path")]);
    assert_eq!(listed(&by_file), listed(&Router::start(&[], &words)), "{text}");
}
