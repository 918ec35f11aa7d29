//! How often engines are asked for their loads.

use simworker::config::{HostConfig, WorkerConfig};

use super::{Fleet, config};
use crate::common::{wait_for, wait_until};

const ENGINES: usize = 2;
const RANKS: u32 = 4;
const INTERVAL_S: f64 = 1.0;
/// So many intervals are looked at.
const INTERVALS: usize = 5;

// Each rank is a candidate of its own, but an engine answers for all of its ranks.
#[test]
fn an_engine_is_asked_once_in_an_interval_for_all_of_its_ranks() {
    let worker = WorkerConfig { dp_size: RANKS, ..config().worker };
    let fleet = Fleet::of(HostConfig { workers: ENGINES as u32, worker, ..config() }, &[]);
    let interval = INTERVAL_S.to_string();
    let args = ["--dp-aware", "--policy", "power_of_two", "--load-poll-interval-secs", &interval];
    let router = fleet.router(&args);
    wait_until("all ranks", || router.loads().len() == ENGINES * RANKS as usize);
    let before: Vec<usize> = (0..ENGINES).map(|engine| asked(&fleet, engine).len()).collect();
    for (engine, before) in before.into_iter().enumerate() {
        let times = wait_for("the next questions", || {
            let times = asked(&fleet, engine).split_off(before);
            (times.len() > INTERVALS).then_some(times)
        });
        let intervals = (times[INTERVALS] - times[0]) / INTERVAL_S;
        // On a busy machine one may be late, the first as well as the last.
        let expected = INTERVALS as f64;
        assert!((expected - 0.8..expected + 0.8).contains(&intervals), "engine {engine}: {times:?}");
    }
}

/// When an engine was asked, in seconds.
fn asked(fleet: &Fleet, engine: usize) -> Vec<f64> {
    let time = |request: serde_json::Value| request["arrived"].as_f64().expect("a time");
    ["/v1/loads", "/get_load"].into_iter().flat_map(|path| fleet.seen(engine, path)).map(time).collect()
}
