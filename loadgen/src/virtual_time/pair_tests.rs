//! Requests that go to two workers, one by one: what they take, who is blamed, what bounds them.

use protocol::record::RequestRecord;
use router_core::Role;
use simworker_core::EngineRole;

use super::testing::{cell, world};
use super::world::World;

/// `requests` equal prompts of 8,000 tokens, each with `more` keys of `[fleet]` and tables behind it.
fn scenario(requests: u32, rate: f64, output: u32, more: &str) -> String {
    format!(
        "schema = 1\nname = \"pairs\"\n[workload]\nkind = \"shared_prefix\"\ngroups = 1\n\
         prompts_per_group = {requests}\nsystem_tokens = 6000\nquestion_tokens = 2000\n\
         output_tokens = {output}\n[arrival]\nkind = \"constant\"\nrate = {rate:?}\n[router]\n\
         policies = [\"round_robin\"]\n{more}"
    )
}

fn records(text: &str) -> Vec<RequestRecord> {
    super::run(&cell(text), 1, &mut |_| {}).unwrap().records
}

/// Plays all of it, looking at the world after every event.
fn watched(text: &str, mut look: impl FnMut(&World)) -> World {
    let mut world = world(&cell(text), 1);
    while world.step().is_some() {
        look(&world);
    }
    world
}

/// Legs that failed on the workers of a role.
fn failures(world: &World, role: Role) -> u64 {
    let views = world.router.workers(u64::MAX).filter(|view| view.worker.role == role);
    views.map(|view| view.tally.failed).sum()
}

#[test]
fn a_pair_takes_two_hops_and_a_transfer_longer() {
    let first_ns = |fleet: &str| {
        let records = records(&scenario(1, 1.0, 1, &format!("[fleet]\nworkers = 2\n{fleet}")));
        assert!(records[0].succeeded(), "{records:?}");
        records[0].first_ns.unwrap()
    };
    let alone = first_ns("");
    for (link, setup_ms, gb_s) in [("nvlink", 0.3, 600.0), ("ib-400g", 1.0, 40.0), ("25gbe", 5.0, 2.5)] {
        let pair = first_ns(&format!("prefill = 1\nkv_link = \"{link}\""));
        // 131,072 bytes of KV per token; the hop that asks for them, and the hop that brings the last.
        let expected_ms = setup_ms + 8000.0 * 131_072.0 / (gb_s * 1e6) + 2.0 * 0.2;
        let more_ms = (pair - alone) as f64 / 1e6;
        assert!((more_ms - expected_ms).abs() < 0.002, "{link}: {more_ms} ms, expected {expected_ms} ms");
    }
}

#[test]
fn the_answer_tells_what_the_prefill_worker_had_found() {
    let records = records(&scenario(2, 0.1, 5, "[fleet]\nworkers = 2\nprefill = 1"));
    let told: Vec<_> =
        records.iter().map(|r| (r.prefill_worker, r.worker, r.cached_tokens, r.output_tokens)).collect();
    assert_eq!(told, [(Some(0), Some(1), 0, 5), (Some(0), Some(1), 6000, 5)]);
}

#[test]
fn the_leg_that_fails_is_blamed_alone() {
    for (fault, blamed, innocent) in [
        ("prefill_failure", Role::Prefill, Role::Decode),
        ("decode_failure", Role::Decode, Role::Prefill),
        // Of those that fail early the prefill worker tells first, of those that fail late only the decode worker.
        ("transfer_failure", Role::Prefill, Role::Regular),
        ("transfer_failure", Role::Decode, Role::Regular),
    ] {
        let more = format!("[fleet]\nworkers = 4\nprefill = 2\n[faults]\n{fault} = 0.1");
        let world = watched(&scenario(100, 4.0, 5, &more), |_| {});
        assert!(failures(&world, blamed) > 0, "{fault}");
        assert_eq!(failures(&world, innocent), 0, "{fault}");
        let bad: Vec<_> = world.records.iter().filter(|record| !record.succeeded()).collect();
        assert!(bad.is_empty(), "{fault}: another pair and another room do it: {bad:?}");
    }
}

#[test]
fn the_death_of_a_worker_ends_only_what_had_begun() {
    for (role, other) in [("prefill", Role::Decode), ("decode", Role::Prefill)] {
        let more = format!(
            "[fleet]\nworkers = 4\nprefill = 2\n[faults]\n{role}_lost = \"5s\"\n{role}_back = \"2s\""
        );
        let world = watched(&scenario(100, 4.0, 100, &more), |_| {});
        assert_eq!(failures(&world, other), 0, "{role}");
        let (good, bad): (Vec<_>, Vec<_>) = world.records.iter().partition(|record| record.succeeded());
        assert!(bad.iter().all(|record| record.first_ns.is_some()), "{role}: {bad:?}");
        assert_eq!(bad.is_empty(), role == "prefill", "{role}: {bad:?}");
        // The first worker of its role; it has its share before it dies and after it has come back.
        let lost = |record: &RequestRecord| {
            [record.worker, record.prefill_worker].contains(&Some(if role == "prefill" { 0 } else { 2 }))
        };
        for span in [0..5_000_000_000, 9_000_000_000..u64::MAX] {
            assert!(good.iter().any(|r| lost(r) && span.contains(&r.sent_ns)), "{role} {span:?}");
        }
        assert!(
            !good.iter().any(|r| lost(r) && (5_100_000_000..7_000_000_000).contains(&r.sent_ns)),
            "{role}"
        );
    }
}

#[test]
fn a_dispatch_limit_bounds_the_streams_that_come_from_a_prefill_worker() {
    let most = |limit: u32| {
        let more = format!("decode_dispatch_limit = {limit}\n[fleet]\nworkers = 4\nprefill = 2");
        let mut most = 0;
        let world = watched(&scenario(60, 20.0, 200, &more), |world| {
            most = world.router.workers(0).map(|view| view.derived).max().max(Some(most)).unwrap();
        });
        assert!(world.records.iter().all(RequestRecord::succeeded) && world.parked.is_empty());
        most
    };
    assert_eq!(most(3), 3);
    assert!(most(0) > 3, "without a limit there are more");
}

/// One prefill worker of two is away at first, and back while arrivals wait for decode streams to end. The first four have
/// tried it in vain, and may not have it again: until they are served, those behind them wait too.
#[test]
fn above_the_dispatch_limit_requests_start_in_their_order() {
    for back in ["1s", "5s"] {
        let more = format!(
            "decode_dispatch_limit = 1\n[fleet]\nworkers = 4\nprefill = 2\n[faults]\n\
             prefill_lost = \"0s\"\nprefill_back = \"{back}\""
        );
        let (mut started, mut longest) = (Vec::new(), 0);
        let world = watched(&scenario(60, 4.0, 100, &more), |world| {
            longest = longest.max(world.parked.len());
            for (seq, job) in world.jobs.iter().enumerate() {
                if job.as_ref().is_some_and(|job| job.sent.is_some()) && !started.contains(&seq) {
                    started.push(seq);
                }
            }
        });
        assert!(longest > 10, "{longest} waited");
        assert_eq!(started, (0..60).collect::<Vec<_>>(), "{back}");
        assert!(world.records.iter().all(RequestRecord::succeeded));
        let of_first = world.records.iter().filter(|record| record.prefill_worker == Some(0));
        let first_ns = of_first.filter_map(|record| record.first_ns).min().unwrap();
        // It is noticed after 6 s, and takes 0.74 s for a prompt; the next stream ends later than that.
        assert!(back == "1s" || first_ns < 6_750_000_000, "used at once: {first_ns}");
    }
}

#[test]
fn waiting_for_a_stream_to_end_has_an_end() {
    let more = "decode_dispatch_limit = 1\n[fleet]\nworkers = 2\nprefill = 1";
    let world = watched(&scenario(8, 1.0, 120_000, more), |_| {});
    let (good, bad): (Vec<_>, Vec<_>) = world.records.iter().partition(|record| record.succeeded());
    assert!(good.iter().any(|record| record.seq == 0) && bad.iter().any(|record| record.seq == 7), "{bad:?}");
    for record in bad {
        assert_eq!((record.status, record.error.as_str()), (503, "decode_dispatch_limit"));
        assert_eq!(record.last_ns - record.sent_ns, 1_800_000_000_000);
    }
    assert!(world.parked.is_empty());
}

/// What the books of prefill workers say of hand-offs that fail after the first token.
#[test]
fn a_prefill_worker_that_fails_in_flight_has_not_completed() {
    let more = "[fleet]\nworkers = 4\nprefill = 2\n[faults]\ntransfer_failure = 0.5";
    let world = watched(&scenario(200, 4.0, 5, more), |_| {});
    let tally = |what: &str| world.dice.tally().get(what).copied().unwrap_or(0);
    let (first, in_flight) = (tally("fails first"), tally("prefill failed in flight"));
    let (failed, before) = (failures(&world, Role::Prefill), tally("prefill failed before"));
    assert!(first > 10 && in_flight > 10, "{:?}", world.dice.tally());
    // A step under way goes on to its end; the decode worker tells sooner then, and has the blame.
    let all_told = first + in_flight..=before + in_flight;
    assert!(all_told.contains(&failed), "{failed} failed: {:?}", world.dice.tally());
}

#[test]
fn what_is_cached_is_not_split_where_workers_do_both() {
    let split = |least: u32| {
        let more = format!("least_uncached_tokens = {least}\n[fleet]\nworkers = 3\nprefill = 1\nregular = 1");
        let text = scenario(4, 0.2, 5, &more).replace("round_robin", "cache_aware");
        let records = records(&text);
        assert!(records.iter().all(RequestRecord::succeeded), "{records:?}");
        records.iter().map(|record| record.prefill_worker.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(split(0), [true; 4]);
    assert_eq!(split(3000), [true, false, false, false], "2,000 tokens are left to compute");
}

#[test]
fn rooms_lead_to_the_ranks_that_were_chosen() {
    for aware in [false, true] {
        let more = format!("dp_aware = {aware}\n[fleet]\nworkers = 2\nprefill = 1\ndp_size = 3");
        let mut busy = [[false; 3]; 2];
        let world = watched(&scenario(30, 5.0, 20, &more), |world| {
            for (host, ranks) in world.hosts.iter().zip(&mut busy) {
                for (rank, busy) in (0..).zip(ranks) {
                    *busy |= host.ranks.loads(rank).used_tokens > 0;
                }
            }
        });
        assert!(world.records.iter().all(RequestRecord::succeeded), "{aware}");
        assert_eq!(busy, [[true; 3]; 2], "{aware}");
        assert_eq!(world.router.workers(0).count(), if aware { 6 } else { 2 });
        assert_eq!(world.hosts[0].role, EngineRole::Prefill);
    }
}
