//! What the router is told in virtual time, and what it is not: how requests go on and end, whose fault an end was, what a cache
//! has lost; and the time that each way takes.

use protocol::record::RequestRecord;
use router_core::{BreakerState, LoadReport, WorkerView};

use super::testing::{cell, world};
use super::world::World;

/// The world of prompts of 1,000 tokens in `groups` groups of ten, played to its end; `look` sees it after every event.
fn played(groups: u32, arrival: &str, policy: &str, fleet: &str, mut look: impl FnMut(&World, u64)) -> World {
    let text = format!(
        "schema = 1\nname = \"told\"\n[workload]\nkind = \"shared_prefix\"\ngroups = {groups}\n\
         prompts_per_group = 10\nsystem_tokens = 900\nquestion_tokens = 100\noutput_tokens = 50\n\
         order = \"round_robin_groups\"\n[arrival]\n{arrival}\n[router]\npolicies = [\"{policy}\"]\n[fleet]\n{fleet}"
    );
    let mut world = world(&cell(&text), 1);
    while let Some(now_ns) = world.step() {
        look(&world, now_ns);
    }
    world
}

fn views(world: &World) -> Vec<WorkerView<'_>> {
    world.router.workers(u64::MAX).collect()
}

const SLOWLY: &str = "kind = \"constant\"\nrate = 0.1";

#[test]
fn a_request_takes_two_hops_and_the_time_of_the_front_end() {
    let times = |network: &str, overhead: &str| {
        let fleet = format!("workers = 1\nnetwork = \"{network}\"\nrequest_overhead = \"{overhead}\"");
        let record = played(1, SLOWLY, "round_robin", &fleet, |_, _| ()).records.remove(0);
        [record.first_ns.unwrap() - record.sent_ns, record.last_ns - record.sent_ns]
    };
    let none = times("0ms", "0ms");
    assert_eq!(times("7ms", "0ms"), none.map(|ns| ns + 14_000_000));
    assert_eq!(times("0ms", "5ms"), none.map(|ns| ns + 5_000_000));
}

#[test]
fn the_ledger_hears_of_first_tokens_and_of_those_that_follow() {
    let (mut queued, mut decoding, mut grown) = (0, 0, 0);
    let world = played(1, SLOWLY, "power_of_two", "workers = 2", |world, _| {
        for load in views(world).iter().map(|view| view.load).filter(|load| load.requests == 1) {
            match load.queued_prefill_tokens {
                0 => decoding += 1,
                _ => queued += 1,
            }
            grown += u32::from(load.tokens > 1010);
        }
    });
    assert!(queued > 0 && decoding > 0 && grown > 0, "{queued} {decoding} {grown}");
    assert!(views(&world).iter().all(|view| view.load.requests == 0 && view.load.tokens == 0));
}

#[test]
fn every_token_after_the_first_is_a_gap() {
    let world = played(4, "kind = \"constant\"\nrate = 20.0", "round_robin", "workers = 2", |_, _| ());
    assert!(world.records.iter().all(RequestRecord::succeeded));
    assert_eq!(world.itl_ns.len(), 40 * 49);
}

#[test]
fn nobody_is_blamed_for_clients_who_leave() {
    let fleet = "workers = 2\n[faults]\nclient_gone = 0.9";
    let world = played(20, "kind = \"constant\"\nrate = 20.0", "round_robin", fleet, |_, _| ());
    let gone: u64 = views(&world).iter().map(|view| view.tally.client_gone).sum();
    assert!(gone > 40, "{gone}");
    for view in views(&world) {
        assert_eq!((view.tally.failed, view.breaker.state), (0, BreakerState::Closed));
    }
}

/// A hundred retries in ten seconds, and one for every five requests; without a bound each of them would be tried five times. Busy
/// workers are not to blame, so no breaker ends it.
#[test]
fn retries_have_a_budget() {
    let fleet = "workers = 8\n[faults]\nbusy = 1.0";
    let world = played(40, "kind = \"constant\"\nrate = 400.0", "round_robin", fleet, |_, _| ());
    let tries: u64 = world.dice.tally().values().sum();
    assert!(world.records.iter().all(|record| [429, 503].contains(&record.status)));
    assert!((401..=400 + 100 + 400 / 5).contains(&tries), "{tries}");
}

/// A report is as old as the question: one that was overtaken by a later one tells nothing new.
#[test]
fn a_report_is_as_old_as_its_question() {
    let text = "schema = 1\nname = \"old\"\n[workload]\nkind = \"independent\"\nrequests = 1\nprompt_tokens = 200\n\
                output_tokens = 4\n[arrival]\nkind = \"constant\"\nrate = 1.0\n[router]\npolicies = [\"power_of_two\"]\n\
                [fleet]\nworkers = 2";
    let mut world = world(&cell(text), 1);
    let report = |total_tokens| [LoadReport { total_tokens, running: 3, waiting: 0, token_usage: 0.1 }];
    world.report(20, 0, 10, &report(100));
    world.report(20, 1, 10, &report(500));
    world.report(21, 0, 5, &report(9000));
    while world.step().is_some() {}
    assert_eq!(world.records[0].worker, Some(0));
}

#[test]
fn what_a_worker_has_lost_with_its_life_is_not_believed_in() {
    // Two workers that have a request every other second each; the first one is away for a quarter of a second in between.
    let fleet = "workers = 2\n[faults]\ndecode_lost = \"20500ms\"\ndecode_back = \"250ms\"";
    let world = played(8, "kind = \"constant\"\nrate = 1.0", "cache_aware", fleet, |_, _| ());
    let later = |record: &&RequestRecord| record.sent_ns > 22_000_000_000 && record.worker == Some(0);
    let there: Vec<&RequestRecord> = world.records.iter().filter(later).collect();
    assert!(there.len() > 8 && there.iter().any(|record| record.cached_tokens >= 900), "{}", there.len());
    for record in there {
        let believed = record.predicted_cached_tokens.unwrap_or(0);
        assert!(believed <= record.cached_tokens + 8, "{record:?}");
    }
}

/// Prefixes that are asked for in turn, and a cache that holds two of twenty: each was evicted when it is asked for again.
#[test]
fn a_cache_that_never_holds_what_was_believed_is_found_out() {
    let world = played(
        20,
        "kind = \"constant\"\nrate = 1.0",
        "cache_aware",
        "workers = 1\nkv_tokens = 2200",
        |_, _| (),
    );
    let deceived =
        |record: &RequestRecord| record.predicted_cached_tokens >= Some(800) && record.cached_tokens < 80;
    let runs = world.records.chunk_by(|a, b| deceived(a) == deceived(b));
    let longest = runs.filter(|run| deceived(&run[0])).map(<[RequestRecord]>::len).max();
    assert_eq!(longest, Some(8), "eight in a row are enough to doubt it");
}

#[test]
fn a_slow_worker_that_returns_is_slow_again() {
    let fleet = "workers = 2\n[faults]\nslow = [[0, 3.0]]\ndecode_lost = \"45s\"\ndecode_back = \"1s\"";
    let world = played(1, SLOWLY, "round_robin", fleet, |_, _| ());
    // What is found in a cache takes no time, and both caches hold the prefix but for the first requests.
    let taken = |worker: u32, from_s: u64, to_s: u64| {
        let span = from_s * 1_000_000_000..to_s * 1_000_000_000;
        let mut records =
            world.records.iter().filter(|r| r.worker == Some(worker) && span.contains(&r.sent_ns));
        let record = records.find(|record| record.cached_tokens > 0).unwrap();
        (record.last_ns - record.sent_ns) as f64
    };
    let factor = taken(0, 50, 100) / taken(1, 50, 100);
    assert!((2.8..3.01).contains(&factor), "{factor}");
}
