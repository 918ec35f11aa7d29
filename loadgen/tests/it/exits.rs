//! Exit codes and messages: what scripts and people get when something is wrong.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{self, Bench, children, is_alive, shipped, until};

const SMALL: &str = r#"
schema = 1
name = "small"
[workload]
kind = "shared_prefix"
groups = 8
prompts_per_group = 8
system_tokens = 64
question_tokens = 16
output_tokens = 4
[arrival]
kind = "constant"
rate = 100.0
[fleet]
workers = 2
[router]
policies = ["round_robin", "cache_aware"]
"#;

fn with(extra: &str) -> String {
    format!("{SMALL}{extra}")
}

#[test]
fn a_failed_assert_exits_with_1_and_says_what_was_measured() {
    let bench = Bench::new();
    let claim = "[[assert]]\nmetric = \"hit_rate\"\npolicy = \"cache_aware\"\nop = \">=\"\nvalue = 0.99\n";
    let scenario = bench.file("s.toml", &with(claim));
    let ended = bench.run(&[scenario.to_str().unwrap()]);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stdout.contains("FAILED") && ended.stdout.contains("measured"), "{}", ended.stdout);
    assert!(bench.out().join("report.html").exists(), "the report is written all the same");
}

#[test]
fn wrong_input_exits_with_2_and_one_message_that_names_place_and_key() {
    let cases = [
        ("an unknown key", with("[fleat]\nworkers = 1\n"), &["s.toml:18", "fleat"][..]),
        ("no workers", SMALL.replace("workers = 2", "workers = 0"), &["s.toml:15", "workers"][..]),
        (
            "an impossible threshold",
            with("[router.options.cache_aware]\ncache_threshold = 1.5\n"),
            &["s.toml:19", "cache_threshold", "1.5"][..],
        ),
        ("a wrong type", SMALL.replace("groups = 8", "groups = \"many\""), &["s.toml:6", "groups"][..]),
        (
            "an unknown policy",
            SMALL.replace("round_robin", "round_robbin"),
            &["s.toml:17", "round_robbin"][..],
        ),
        ("no TOML", "schema = ".to_owned(), &["s.toml:1"][..]),
    ];
    for (case, text, words) in cases {
        let bench = Bench::new();
        bench.file("s.toml", &text);
        let ended = bench.run(&["s.toml"]);
        assert_eq!(ended.code, Some(2), "{case}: {}", ended.stderr);
        for word in words {
            assert!(ended.stderr.contains(word), "{case}: no {word:?} in {}", ended.stderr);
        }
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{case}: {}", ended.stderr);
        assert!(ended.stdout.is_empty() && !bench.out().exists(), "{case}");
    }
}

#[test]
fn a_wrong_trace_exits_with_2_and_names_the_row() {
    let row = |stamp: u64, input: u64, ids: &str| {
        format!(
            "{{\"timestamp\":{stamp},\"input_length\":{input},\"output_length\":4,\"hash_ids\":[{ids}]}}\n"
        )
    };
    let cases = [
        ("an empty trace", String::new(), "t.jsonl"),
        ("a cut line", format!("{}{{\"timestamp\": 3, \"inp", row(0, 600, "1,2")), "t.jsonl:2"),
        ("unsorted times", row(9, 600, "1,2") + &row(3, 600, "1,2"), "t.jsonl:2"),
        ("ids that do not fit", row(0, 600, "1,2") + &row(3, 600, "1"), "t.jsonl:2"),
    ];
    for (case, trace, place) in cases {
        let bench = Bench::new();
        bench.file("t.jsonl", &trace);
        let ended = bench.run(&[&shipped("mooncake.toml"), "--trace", "t.jsonl"]);
        assert_eq!(ended.code, Some(2), "{case}: {}", ended.stderr);
        assert!(ended.stderr.contains(place), "{case}: no {place} in {}", ended.stderr);
    }
}

#[test]
fn results_that_cannot_be_written_are_one_clear_error() {
    let bench = Bench::new();
    let scenario = bench.file("s.toml", SMALL);
    bench.file("out", "a file where the folder should be");
    let ended = bench.run(&[scenario.to_str().unwrap()]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(ended.stderr.matches("loadgen: ").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("out") && ended.stderr.contains("--out"), "{}", ended.stderr);
    assert!(ended.stdout.contains("round_robin") && !ended.stdout.contains("report:"), "{}", ended.stdout);
    let quiet = bench.run(&[scenario.to_str().unwrap(), "--quiet"]);
    assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(2), ""), "no table is wanted");
}

/// Starts a live run of requests at `rate` per second and waits until it sends them to its router child; gives both.
fn live_run(bench: &Bench, rate: &str) -> (std::process::Child, u32) {
    let scenario = bench.file("s.toml", &SMALL.replace("rate = 100.0", &format!("rate = {rate}")));
    let args = [scenario.to_str().unwrap(), "--mode", "live", "--policy", "cache_aware"];
    let run = bench.command(&args).spawn().unwrap();
    let router = until(Duration::from_secs(30), || children(run.id(), "__router").first().copied());
    until(Duration::from_secs(30), || has_connection(run.id()).then_some(()));
    (run, router)
}

/// Whether process `pid` has an established TCP connection. Only a run that sends requests has one.
fn has_connection(pid: u32) -> bool {
    const ESTABLISHED: &str = "01";
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
    let own: Vec<String> = links
        .filter_map(|link| std::fs::read_link(link.path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned()))
        .collect();
    let all = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    all.lines().any(|line| {
        // Its number, both ends, the state, five columns of queues and timers, and the socket's inode.
        let columns: Vec<&str> = line.split_whitespace().collect();
        matches!(columns[..], [_, _, _, ESTABLISHED, _, _, _, _, _, inode, ..] if own.iter().any(|o| o == inode))
    })
}

fn signal(pid: u32, name: &str) {
    let kill =
        Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).stdin(Stdio::null()).status();
    assert!(kill.unwrap().success());
}

#[test]
fn a_router_that_is_killed_in_mid_run_is_told_and_nothing_hangs() {
    let bench = Bench::new();
    // An hour of requests: only a driver that notices the death ends in time.
    let (mut run, router) = live_run(&bench, "0.02");
    signal(router, "KILL");
    let status = program::wait(&mut run, Duration::from_secs(30));
    assert_eq!(status.code(), Some(5));
    let runs = bench.runs();
    assert!(runs[0]["failed"].as_u64().unwrap() > 0, "{runs:?}");
    assert!(bench.out().join("report.html").exists());
}

#[test]
fn a_signal_ends_the_run_and_its_children_even_stopped_ones() {
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let bench = Bench::new();
        let (mut run, router) = live_run(&bench, "0.02");
        let workers = children(run.id(), "__simworker");
        assert_eq!(workers.len(), 1);
        signal(router, "STOP");
        signal(workers[0], "STOP");
        signal(run.id(), name);
        let status = program::wait(&mut run, Duration::from_secs(10));
        assert_eq!(status.code(), Some(code), "{name}");
        until(Duration::from_secs(10), || (!is_alive(router) && !is_alive(workers[0])).then_some(()));
        let left = std::fs::read_dir(bench.out()).unwrap().count();
        assert_eq!(left, 0, "{name}: no half results");
    }
}

#[test]
fn children_do_not_outlive_a_parent_that_is_killed() {
    let bench = Bench::new();
    let (mut run, router) = live_run(&bench, "0.02");
    let workers = children(run.id(), "__simworker");
    signal(run.id(), "KILL");
    program::wait(&mut run, Duration::from_secs(10));
    until(Duration::from_secs(10), || (!is_alive(router) && !is_alive(workers[0])).then_some(()));
}

#[test]
fn readers_that_go_away_do_not_cost_the_results() {
    for command in [&["s.toml"][..], &["sweep", "s.toml"]] {
        let bench = Bench::new();
        bench.file("s.toml", SMALL);
        let mut run = bench.command(command).spawn().unwrap();
        drop((run.stdout.take(), run.stderr.take()));
        let status = program::wait(&mut run, Duration::from_secs(30));
        assert_eq!(status.code(), Some(0), "{command:?}");
        assert_eq!(bench.runs().len(), 2);
    }
}

#[test]
fn a_full_device_is_told_where_it_takes_the_results_and_does_not_cost_the_files() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let bench = Bench::new();
    bench.file("s.toml", SMALL);
    let output = bench.command(&["s.toml"]).stdout(full()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("cannot write to standard output: No space left"), "{told}");
    assert_eq!(bench.runs().len(), 2);
    let output = bench.command(&["s.toml"]).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn quiet_still_tells_what_failed() {
    let bench = Bench::new();
    let claim = "[[assert]]\nmetric = \"hit_rate\"\npolicy = \"cache_aware\"\nop = \">=\"\nvalue = 0.99\n";
    let scenario = bench.file("s.toml", &with(claim));
    let ended = bench.run(&[scenario.to_str().unwrap(), "--quiet"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    assert!(ended.stderr.contains("hit_rate") && ended.stderr.contains("measured"), "{}", ended.stderr);
}

#[test]
fn a_low_limit_on_open_files_is_raised() {
    let bench = Bench::new();
    let many = SMALL
        .replace("prompts_per_group = 8", "prompts_per_group = 50")
        .replace("output_tokens = 4", "output_tokens = 100")
        .replace("kind = \"constant\"\nrate = 100.0", "kind = \"burst\"\nover = \"100ms\"");
    let scenario = bench.file("s.toml", &many);
    let command = format!(
        "ulimit -Sn 256 && exec {} {} --mode live --policy round_robin --out {}",
        env!("CARGO_BIN_EXE_loadgen"),
        scenario.display(),
        bench.out().display()
    );
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    // On a busy machine such a burst may leave late, which is 4.
    assert!(matches!(output.status.code(), Some(0 | 4)), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((&bench.runs()[0]["requests"], &bench.runs()[0]["failed"]), (&400.into(), &0.into()));
}
