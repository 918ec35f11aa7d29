//! Keys about prefill and decode workers, ranks and faults: what they mean, and mistakes in them.

use super::mistakes::{GOOD, Mistake, all_are_told};
use super::testing::load_text;

const MISTAKES: &[Mistake] = &[
    (
        "workers = 2",
        "workers = 2\nprefill = 2",
        19,
        "fleet.prefill",
        "of 2 workers, 2 are taken, so that none decodes",
    ),
    ("workers = 2", "workers = 2\nprefill = 3", 19, "fleet.prefill", "0 to 2"),
    ("workers = 2", "workers = 2\nprefill = 1\nregular = 1", 20, "fleet.regular", "none decodes"),
    ("workers = 2", "workers = 2\nkv_link = \"ib400\"", 19, "fleet.kv_link", "did you mean `ib-400g`?"),
    ("workers = 2", "workers = 2\ndecode_radix_cache = 1", 19, "fleet.decode_radix_cache", "true or false"),
    (
        "workers = 2",
        "workers = 2\nreserved_decode_tokens = -1",
        19,
        "fleet.reserved_decode_tokens",
        "out of range",
    ),
    ("workers = 2", "workers = 2\ndp_size = 0", 19, "fleet.dp_size", "from 1 to 64"),
    ("workers = 2", "workers = 2\ndp_attention = 2", 19, "fleet.dp_attention", "true or false"),
    (
        "workers = 2",
        "workers = 2\nload_balance = \"round-robin\"",
        19,
        "fleet.load_balance",
        "mean `round_robin`",
    ),
    (
        "workers = 2",
        "workers = 2\nload_balance = \"follow_bootstrap_room\"",
        19,
        "fleet.load_balance",
        "set fleet.prefill",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"round_robin\", \"cache_aware\"]\ndecode_policy = \"bucket\"",
        24,
        "router.decode_policy",
        "cannot choose decode workers",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"round_robin\", \"cache_aware\"]\ndecode_policy = \"power_of_too\"",
        24,
        "router.decode_policy",
        "did you mean `power_of_two`?",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"round_robin\", \"cache_aware\"]\ndp_aware = \"yes\"",
        24,
        "router.dp_aware",
        "true or false",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"round_robin\", \"cache_aware\"]\ndecode_dispatch_limit = -1",
        24,
        "router.decode_dispatch_limit",
        "out of range",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"round_robin\", \"cache_aware\"]\nleast_uncached_tokens = 0.5",
        24,
        "router.least_uncached_tokens",
        "a whole number",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"router.dp_awar\" = [false, true]",
        30,
        "sweep.\"router.dp_awar\"",
        "did you mean `router.dp_aware`?",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"fleet.prefill\" = [0, 2]",
        30,
        "fleet.prefill",
        "none decodes",
    ),
    ("[slo]", "[faults]\nprefill_failure = 1.5\n[slo]", 32, "faults.prefill_failure", "from 0 to 1"),
    ("[slo]", "[faults]\nprefil_failure = 0.5\n[slo]", 32, "faults.prefil_failure", "did you mean"),
    ("[slo]", "[faults]\ndecode_lost = 5\n[slo]", 32, "faults.decode_lost", "not a duration"),
    ("[slo]", "[faults]\ndecode_back = \"5s\"\n[slo]", 32, "faults.decode_back", "add decode_lost"),
    ("[slo]", "[faults]\nclient_gone = 0.5\n[slo]", 31, "faults", "in virtual time only"),
    (
        "value = 0.8",
        "value = 0.8\nversus_params = { \"fleet.prefill\" = 0 }",
        39,
        "assert.versus_params",
        "add versus",
    ),
];

#[test]
fn mistakes_name_line_key_and_way_out() {
    all_are_told(MISTAKES);
}

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
