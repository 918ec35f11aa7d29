//! Sessions in virtual time: replies that are fed back, times to think, failures, and fleets that change or are uneven.

use std::collections::BTreeMap;

use protocol::record::RequestRecord;

use super::testing::{cell, world};
use super::world::World;
use crate::run::was_left;
use crate::workload::chain::PREDECESSOR_FAILED;

const CHAT: &str = "kind = \"chat\"\nsessions = 30\nturns = 4\nquestion_tokens = { uniform = [20, 60] }\n\
                    output_tokens = { uniform = [5, 40] }\nthink = { uniform = [\"100ms\", \"2s\"] }";
const AGENTIC: &str = "kind = \"agentic\"\nsessions = 20\nchildren = { uniform = [2, 5] }\nquestion_tokens = 300\n\
                       output_tokens = 30\nchild_tokens = 10\nchild_output_tokens = 20\njoin_tokens = 7";
const POISSON: &str = "kind = \"poisson\"\nrate = 5.0";

/// The world of a workload and an arrival, with more lines after `[fleet]`, played to its end.
fn played(workload: &str, arrival: &str, fleet: &str) -> World {
    let text = format!(
        "schema = 1\nname = \"sessions\"\n[workload]\n{workload}\n[arrival]\n{arrival}\n[router]\n\
         policies = [\"round_robin\"]\n[fleet]\n{fleet}"
    );
    let mut world = world(&cell(&text), 3);
    while world.step().is_some() {}
    assert_eq!(
        (world.finished as usize, world.router.in_flight()),
        (world.requests.len(), 0),
        "nothing hangs"
    );
    world
}

/// Records by session, in the order of the plan.
fn sessions(world: &World) -> BTreeMap<u64, Vec<&RequestRecord>> {
    let mut sessions: BTreeMap<u64, Vec<_>> = BTreeMap::new();
    for (request, record) in world.requests.iter().zip(&world.records) {
        sessions.entry(request.session.unwrap()).or_default().push(record);
    }
    sessions
}

#[test]
fn a_fed_back_reply_continues_the_cached_sequence() {
    let world = played(CHAT, POISSON, "workers = 1");
    assert!(world.records.iter().all(RequestRecord::succeeded));
    for turns in sessions(&world).values() {
        assert_eq!(turns.len(), 4);
        for pair in turns.windows(2) {
            // The KV of a reply's last token is never computed.
            assert_eq!(pair[1].cached_tokens, pair[0].prompt_tokens + pair[0].output_tokens - 1);
        }
    }
    let world = played(AGENTIC, POISSON, "workers = 1");
    for family in sessions(&world).values() {
        let (parent, rest) = family.split_first().unwrap();
        for later in rest {
            assert!(later.cached_tokens >= parent.prompt_tokens + parent.output_tokens - 1, "{later:?}");
        }
    }
}

#[test]
fn turns_are_due_when_the_one_before_has_ended_and_the_time_to_think_is_over() {
    for arrival in [POISSON, "kind = \"closed\"\nconcurrency = 3"] {
        for workload in [CHAT, AGENTIC] {
            let world = played(workload, arrival, "workers = 2");
            let mut followers = 0;
            for (request, record) in world.requests.iter().zip(&world.records) {
                let Some(after) = &request.after else { continue };
                let ended_ns =
                    after.seqs.iter().map(|seq| world.records[*seq as usize].last_ns).max().unwrap();
                assert_eq!(record.intended_ns, ended_ns + after.think_ns);
                assert_eq!(record.sent_ns, record.intended_ns);
                followers += 1;
            }
            assert!(followers > 60);
        }
    }
}

#[test]
fn a_closed_loop_keeps_so_many_sessions_under_way() {
    let world = played(CHAT, "kind = \"closed\"\nconcurrency = 3", "workers = 2");
    let spans: Vec<(u64, u64)> =
        sessions(&world).values().map(|turns| (turns[0].sent_ns, turns[turns.len() - 1].last_ns)).collect();
    for (begin, _) in &spans {
        let under_way = spans.iter().filter(|(from, to)| (*from..*to).contains(begin)).count();
        assert!(under_way <= 3, "{under_way}");
    }
    let (_, end) = spans.iter().max_by_key(|(_, end)| *end).unwrap();
    let busy: u64 = spans.iter().map(|(from, to)| to - from).sum();
    assert!(busy as f64 / *end as f64 > 2.4, "a slot is taken again when its session has ended");
}

#[test]
fn what_waits_for_a_failed_request_fails_too_and_says_so() {
    // The third and the fourth turn are longer than any prompt may be.
    let long = CHAT.replace("{ uniform = [20, 60] }", "100").replace("{ uniform = [5, 40] }", "20");
    for arrival in [POISSON, "kind = \"closed\"\nconcurrency = 2"] {
        let world = played(&long, arrival, "workers = 2\ncontext = 300");
        for turns in sessions(&world).values() {
            let errors: Vec<&str> = turns.iter().map(|record| record.error.as_str()).collect();
            assert_eq!((errors[0], errors[1], errors[3]), ("", "", PREDECESSOR_FAILED));
            assert!(!errors[2].is_empty() && errors[2] != PREDECESSOR_FAILED, "{errors:?}");
            assert_eq!((turns[3].status, turns[3].worker, turns[3].sent_ns), (0, None, turns[2].last_ns));
        }
    }
}

#[test]
fn a_client_that_leaves_takes_its_session_along() {
    let faults = "workers = 2\n[faults]\nclient_gone = 0.3";
    let world = played(&CHAT.replace("{ uniform = [5, 40] }", "400"), POISSON, faults);
    let (left, others): (Vec<_>, Vec<_>) = world.records.iter().partition(|record| was_left(record));
    assert!(left.len() > 10 && others.iter().all(|record| record.succeeded()));
    assert!(left.iter().any(|record| record.worker.is_none()), "some were never sent");
}

#[test]
fn workers_that_join_get_nothing_before_and_their_share_afterwards() {
    let independent = "kind = \"independent\"\nrequests = 400\nprompt_tokens = 50\noutput_tokens = 5";
    let constant = "kind = \"constant\"\nrate = 20.0";
    let world = played(independent, constant, "workers = 4\njoining = 2\njoin_at = \"8s\"");
    assert!(world.records.iter().all(RequestRecord::succeeded));
    let of = |from_s: u64, to_s: u64, late: bool| {
        let span = from_s * 1_000_000_000..to_s * 1_000_000_000;
        let here = |r: &&RequestRecord| span.contains(&r.sent_ns) && (r.worker >= Some(2)) == late;
        world.records.iter().filter(here).count()
    };
    assert_eq!((of(0, 9, true), of(0, 9, false)), (0, 180));
    assert!(of(10, 20, true).abs_diff(100) <= 2 && of(10, 20, false).abs_diff(100) <= 2);
}

#[test]
fn steps_of_a_slow_worker_take_so_many_times_as_long() {
    let independent = "kind = \"independent\"\nrequests = 40\nprompt_tokens = 4000\noutput_tokens = 100";
    let slow = "workers = 2\nrequest_overhead = \"0ms\"\nnetwork = \"0ms\"\n[faults]\nslow = [[1, 3.0]]";
    let world = played(independent, "kind = \"closed\"\nconcurrency = 1", slow);
    let mean_ns = |worker: u32| {
        let all: Vec<u64> = world
            .records
            .iter()
            .filter(|r| r.worker == Some(worker))
            .map(|r| r.last_ns - r.sent_ns)
            .collect();
        all.iter().sum::<u64>() as f64 / all.len() as f64
    };
    assert!((mean_ns(1) / mean_ns(0) - 3.0).abs() < 0.01, "{} {}", mean_ns(0), mean_ns(1));
}

#[test]
fn a_policy_by_key_keeps_a_session_on_its_worker() {
    let text = format!(
        "schema = 1\nname = \"keys\"\n[workload]\n{CHAT}\n[arrival]\n{POISSON}\n[router]\npolicies = [\"manual\"]\n\
         [fleet]\nworkers = 4"
    );
    let mut world = world(&cell(&text), 3);
    while world.step().is_some() {}
    let workers: Vec<Option<u32>> = sessions(&world)
        .values()
        .map(|turns| {
            assert!(turns.iter().all(|turn| turn.worker == turns[0].worker));
            turns[0].worker
        })
        .collect();
    assert!((0..4).all(|worker| workers.contains(&Some(worker))), "{workers:?}");
}
