//! Keys about prefill and decode workers, ranks and faults: what they mean, and what contradicts what.

use super::mistakes::GOOD;
use super::testing::load_text;

#[test]
fn roles_and_ranks_come_from_the_fleet_and_the_router() {
    use simworker_core::EngineRole::{Decode, Prefill, Whole};
    let roles = |set: &[(&str, &str)]| -> Vec<_> {
        let scenario = load_text(GOOD, set).unwrap();
        scenario.fleet.worker_roles().collect()
    };
    assert_eq!(roles(&[]), [Whole, Whole]);
    assert_eq!(roles(&[("fleet.prefill", "1")]), [Prefill, Decode]);
    let mixed = [("fleet.workers", "5"), ("fleet.prefill", "2"), ("fleet.regular", "1")];
    assert_eq!(roles(&mixed), [Prefill, Prefill, Decode, Decode, Whole]);
    let scenario = load_text(
        GOOD,
        &[
            ("fleet.prefill", "1"),
            ("fleet.dp_size", "4"),
            ("fleet.kv_link", "25gbe"),
            ("fleet.reserved_decode_tokens", "7"),
            ("router.decode_policy", "cache_aware"),
            ("router.decode_dispatch_limit", "3"),
            ("sweep.router.dp_aware", "[false, true]"),
        ],
    )
    .unwrap();
    let prefill = scenario.fleet.engine_config(Prefill);
    assert_eq!((prefill.role, prefill.handoff.num_reserved_decode_tokens), (Prefill, 7));
    assert_eq!(Some(prefill.handoff.link), simworker_core::link("25gbe"));
    assert_eq!(scenario.routing.decode_dispatch_limit, Some(3));
    let threshold = scenario.routing.decode_policy.overrides().next().map(|(key, _)| key);
    assert_eq!(threshold, Some("cache_threshold"), "options of a policy are those of all its uses");
    let aware = scenario.cells().iter().filter(|cell| cell.scenario.routing.dp_aware).count();
    assert_eq!((aware, scenario.cells().len()), (5, 10));
    assert_eq!(scenario.fleet.ranks.of(Prefill).balance.label(), "follow_bootstrap_room");
    assert_eq!(scenario.fleet.ranks.of(Decode).balance.label(), "round_robin");
}

#[test]
fn bounds_that_ranks_share_must_be_large_enough() {
    let shared = |key: &str, value: &str| {
        let set = [("fleet.dp_size", "8"), ("fleet.dp_attention", "true"), (key, value)];
        load_text(GOOD, &set)
    };
    for (key, value) in [("fleet.max_running", "7"), ("fleet.chunked_prefill", "7")] {
        let error = shared(key, value).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--set {key}={value}: key `{key}`: ")), "{error}");
        assert!(load_text(GOOD, &[("fleet.dp_size", "8"), (key, value)]).is_ok(), "{key}");
    }
    assert!(shared("fleet.max_running", "8").is_ok());
}

#[test]
fn a_bound_on_the_queue_reaches_the_engine_and_none_is_none() {
    let most = |value: &str| {
        load_text(GOOD, &[("fleet.max_queued", value)]).unwrap().fleet.engine.config().max_queued
    };
    assert_eq!((most("7"), most("0")), (Some(7), None));
}

#[test]
fn a_room_cannot_lead_to_two_ranks() {
    let set = [
        ("fleet.prefill", "1"),
        ("fleet.dp_size", "2"),
        ("fleet.load_balance", "follow_bootstrap_room"),
        ("router.dp_aware", "true"),
    ];
    let error = load_text(GOOD, &set).unwrap_err().to_string();
    assert!(error.contains("key `fleet.load_balance`: with router.dp_aware, a room cannot"), "{error}");
    assert!(load_text(GOOD, &set[..3]).is_ok());
}
