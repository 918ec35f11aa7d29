//! A run's work grows with its requests and with nothing else. Counted, not timed: what happens is what costs.

use super::testing::{cell, world};

/// Events per request of a run of so many requests on so many workers, as busy as any other.
fn events_per_request(policy: &str, requests: u32, workers: u32) -> f64 {
    let text = format!(
        "schema = 1\nname = \"growth\"\n[workload]\nkind = \"shared_prefix\"\ngroups = {}\nprompts_per_group = 10\n\
         system_tokens = 600\nquestion_tokens = 40\noutput_tokens = 30\n[arrival]\nkind = \"poisson\"\nrate = {}.0\n\
         [fleet]\nworkers = {workers}\npage = 64\nkv_tokens = 20000\n[router]\npolicies = [\"{policy}\"]\n",
        requests / 10,
        workers * 8,
    );
    let mut world = world(&cell(&text), 1);
    let mut events = 0;
    while world.step().is_some() {
        events += 1;
    }
    assert_eq!(world.finished, u64::from(requests));
    f64::from(events) / f64::from(requests)
}

#[test]
fn each_request_costs_as_many_events_however_many_there_are() {
    for policy in ["round_robin", "power_of_two", "cache_aware"] {
        let few = events_per_request(policy, 1_000, 4);
        for (requests, workers) in [(16_000, 4), (16_000, 64)] {
            let many = events_per_request(policy, requests, workers);
            assert!(many < few * 1.1, "{policy}, {workers} workers: {few} events each, then {many}");
        }
    }
}
