//! Faults of a live run really happen, and are the scenario's doing alone.

use crate::program::Bench;

/// Two prefill and two decode workers under 80 requests in 8 s.
const SCENARIO: &str = r#"
schema = 1
name = "live_faults"
mode = "live"
[workload]
kind = "shared_prefix"
groups = 8
prompts_per_group = 10
system_tokens = 200
question_tokens = 20
output_tokens = 8
[arrival]
kind = "constant"
rate = 10.0
[fleet]
workers = 4
prefill = 2
[router]
policies = ["round_robin"]
first_byte_timeout = "5s"
[faults]
"#;

struct Row {
    sent_s: f64,
    last_s: f64,
    worker: String,
    prefill_worker: String,
    status: String,
    error: String,
}

fn rows(bench: &Bench) -> Vec<Row> {
    let mut reader = csv::Reader::from_path(bench.out().join("requests.csv")).unwrap();
    let headers = reader.headers().unwrap().clone();
    let place = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let [sent, last, worker, prefill, status, error] =
        ["sent_us", "last_us", "worker", "prefill_worker", "status", "error"].map(place);
    let row = |row: csv::StringRecord| Row {
        sent_s: row[sent].parse::<f64>().unwrap() / 1e6,
        last_s: row[last].parse::<f64>().unwrap() / 1e6,
        worker: row[worker].to_owned(),
        prefill_worker: row[prefill].to_owned(),
        status: row[status].to_owned(),
        error: row[error].to_owned(),
    };
    reader.records().map(Result::unwrap).map(row).collect()
}

fn run(faults: &str) -> (Bench, Vec<Row>) {
    run_text(&format!("{SCENARIO}{faults}"))
}

fn run_text(text: &str) -> (Bench, Vec<Row>) {
    let bench = Bench::new();
    let path = bench.file("live_faults.toml", text);
    let ended = bench.run(&[path.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let rows = rows(&bench);
    assert_eq!(rows.len(), 80);
    (bench, rows)
}

#[test]
fn workers_die_return_and_are_drained_at_their_time() {
    let (_bench, rows) =
        run("prefill_lost = \"1s\"\ndecode_lost = \"1s\"\ndecode_back = \"1s\"\ndecode_drained = \"3s\"");
    let of = |from_s: f64, to_s: f64| rows.iter().filter(move |row| (from_s..to_s).contains(&row.sent_s));
    let good = |row: &&Row| row.error.is_empty();
    assert!(of(0.0, 1.0).filter(good).any(|row| row.prefill_worker == "0"), "alive at first");
    assert!(of(0.0, 3.0).filter(good).any(|row| row.worker == "3"), "not yet drained");
    // With time for a machine that has much to do.
    let late: Vec<&Row> = of(5.5, 8.0).filter(good).collect();
    assert!(late.len() >= 20, "{} are served", late.len());
    assert!(late.iter().all(|row| row.prefill_worker == "1"), "the other one is dead");
    assert!(late.iter().all(|row| row.worker == "2"), "it is back, and the other one is drained");
}

#[test]
fn legs_hand_offs_and_clients_fail_in_their_shares() {
    let (bench, rows) = run(
        "prefill_failure = 0.1\ndecode_failure = 0.1\ntransfer_failure = 0.1\nbusy = 0.1\nstalled = 0.05\nclient_gone = 0.3",
    );
    let left = rows.iter().filter(|row| row.error == "the client left").count();
    let silent = rows.iter().filter(|row| row.status == "504").count();
    let good = rows.iter().filter(|row| row.error.is_empty()).count();
    assert!(left >= 1, "some leave before their answer");
    assert!(silent >= 1, "5 % of about 200 legs are silent");
    assert!(good >= 30, "{good} of 80 are served, many of them by another try");
    let run = &bench.runs()[0];
    assert_eq!(run["left"], left);
    assert_eq!(run["failed"].as_u64(), Some((80 - good - left) as u64));
}

#[test]
fn a_worker_that_joins_gets_its_share_and_a_slow_one_is_slow() {
    let fleet = "workers = 3\njoining = 1\njoin_at = \"2s\"";
    let text = SCENARIO.replace("workers = 4\nprefill = 2", fleet) + "slow = [[1, 20.0]]";
    let (_bench, rows) = run_text(&text);
    assert!(rows.iter().all(|row| row.error.is_empty()));
    let of = |from_s: f64, to_s: f64, worker: &'static str| {
        rows.iter().filter(move |row| (from_s..to_s).contains(&row.sent_s) && row.worker == worker)
    };
    assert_eq!(of(0.0, 2.0, "2").count(), 0, "not yet there");
    // With time for a machine that has much to do.
    assert!(of(5.0, 8.0, "2").count() >= 5, "{} of 30", of(5.0, 8.0, "2").count());
    let fastest = |worker| of(0.0, 8.0, worker).map(|row| row.last_s - row.sent_s).fold(f64::MAX, f64::min);
    assert!(fastest("1") > 3.0 * fastest("0"), "{} {}", fastest("1"), fastest("0"));
}
