//! Single faults, one by one: what each does to a request, and that all policies meet the same.

use std::collections::BTreeMap;

use protocol::record::RequestRecord;
use router_core::Role;

use super::testing::{cell, world};
use super::world::World;
use crate::run::was_left;

/// `requests` prompts in four groups on two prefill and two decode workers, five a second, under these faults.
fn played(policy: &str, requests: u32, router: &str, faults: &str) -> World {
    let text = format!(
        "schema = 1\nname = \"mishaps\"\n[workload]\nkind = \"shared_prefix\"\ngroups = 4\n\
         prompts_per_group = {}\nsystem_tokens = 600\nquestion_tokens = 20\noutput_tokens = 20\n[arrival]\n\
         kind = \"constant\"\nrate = 5.0\n[fleet]\nworkers = 4\nprefill = 2\n[router]\npolicies = [\"{policy}\"]\n\
         {router}\n[faults]\n{faults}",
        requests / 4
    );
    let mut world = world(&cell(&text), 1);
    while world.step().is_some() {}
    world
}

#[test]
fn all_policies_meet_the_same_faults() {
    let met = |policy: &str| {
        let faults = "prefill_failure = 0.05\ndecode_failure = 0.05\ntransfer_failure = 0.05\nbusy = 0.05\n\
                      client_gone = 0.1";
        let world = played(policy, 400, "", faults);
        let left: Vec<u64> = world.records.iter().filter(|r| was_left(r)).map(|r| r.seq).collect();
        // What else goes wrong depends on where a request was; what was drawn does not.
        let drawn = ["client leaves", "prefill 500", "prefill 429", "prefill 503", "decode 500"];
        let tally = world.dice.tally();
        let told: BTreeMap<&str, u64> =
            drawn.into_iter().map(|what| (what, tally.get(what).copied().unwrap_or(0))).collect();
        assert!(told.values().all(|count| *count > 0) && !left.is_empty(), "{told:?}");
        told
    };
    let first = met("round_robin");
    for policy in ["random", "cache_aware"] {
        let told = met(policy);
        assert_eq!(told["client leaves"], first["client leaves"], "{policy}");
        for (what, count) in told {
            // Attempts that a client has left, or a twin has ended, are not counted.
            assert!(count.abs_diff(first[what]) <= 2, "{policy}: {count} {what}, and {} before", first[what]);
        }
    }
}

#[test]
fn a_silent_worker_costs_the_routers_patience_and_one_request() {
    let world = played("round_robin", 200, "first_byte_timeout = \"3s\"", "stalled = 0.03");
    let (good, bad): (Vec<_>, Vec<_>) = world.records.iter().partition(|record| record.succeeded());
    assert!(good.len() > 150 && bad.len() > 3, "{} failed", bad.len());
    for record in bad {
        assert_eq!((record.status, record.error.as_str()), (504, "no first byte in time"), "{record:?}");
        assert_eq!(record.last_ns - record.sent_ns, 3_000_000_000);
    }
    assert_eq!(world.router.in_flight(), 0);
}

#[test]
fn a_busy_worker_is_asked_again_when_it_said() {
    let world = played("round_robin", 200, "", "busy = 0.3");
    assert!(world.dice.tally()["prefill 429"] > 5 && world.dice.tally()["decode 503"] > 5);
    let late =
        |record: &&RequestRecord| record.first_ns.is_some_and(|ns| ns - record.sent_ns > 1_000_000_000);
    let waited = world.records.iter().filter(late).count();
    assert!(waited > 0, "where both workers of a role are busy, the first is waited for");
}

#[test]
fn a_drained_worker_gets_nothing_new_and_ends_what_it_has() {
    let world = played("round_robin", 200, "", "prefill_drained = \"5s\"\ndecode_drained = \"10s\"");
    assert!(world.records.iter().all(RequestRecord::succeeded));
    let last_sent = |worker: u32| {
        let there = |r: &&RequestRecord| r.worker == Some(worker) || r.prefill_worker == Some(worker);
        world.records.iter().filter(there).map(|record| record.sent_ns).max().unwrap()
    };
    let drained = [last_sent(1), last_sent(3)];
    assert!((4_000_000_000..=5_000_000_000).contains(&drained[0]), "{drained:?}");
    assert!((9_000_000_000..=10_000_000_000).contains(&drained[1]), "{drained:?}");
    let idle = world.router.workers(u64::MAX).filter(|view| view.worker.draining).count();
    assert_eq!(
        (idle, world.router.workers(0).filter(|view| view.worker.role == Role::Decode).count()),
        (2, 2)
    );
}

#[test]
fn records_tell_the_rank_that_computed_the_prompt() {
    let text = |fleet: &str| {
        format!(
            "schema = 1\nname = \"ranks\"\n[workload]\nkind = \"shared_prefix\"\ngroups = 8\nprompts_per_group = 4\n\
             system_tokens = 60\nquestion_tokens = 20\noutput_tokens = 2\n[arrival]\nkind = \"constant\"\n\
             rate = 20.0\n[fleet]\nworkers = 2\n{fleet}\n[router]\npolicies = [\"round_robin\"]"
        )
    };
    let ranks = |fleet: &str| -> Vec<Option<u32>> {
        let records = super::run(&cell(&text(fleet)), 1, &mut |_| {}).unwrap().records;
        let mut ranks: Vec<_> = records.iter().map(|record| record.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    };
    assert_eq!(ranks(""), [None]);
    assert_eq!(ranks("dp_size = 2"), [Some(0), Some(1)]);
    assert_eq!(ranks("dp_size = 2\nprefill = 1"), [Some(0), Some(1)]);
}
