//! Keys that change nothing, and parameters of asserts that no cell has.

use super::Mistake;

pub(super) const MISTAKES: &[Mistake] = &[
    ("workers = 2", "workers = 2\nkv_link = \"nvlink\"", 19, "fleet.kv_link", "no worker prefills only"),
    ("workers = 2", "workers = 2\nregular = 1", 19, "fleet.regular", "set fleet.prefill"),
    ("workers = 2", "workers = 2\ndp_attention = true", 19, "fleet.dp_attention", "set fleet.dp_size"),
    ("[slo]", "[faults]\nprefill_lost = \"1s\"\n[slo]", 32, "faults.prefill_lost", "has no effect"),
    ("[slo]", "[faults]\nstalled = 0.1\n[slo]", 32, "faults.stalled", "set router.first_byte_timeout"),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"round_robin\", \"cache_aware\"]\ndp_aware = true",
        24,
        "router.dp_aware",
        "workers have one rank",
    ),
    (
        "policies = [\"round_robin\", \"cache_aware\"]",
        "policies = [\"round_robin\", \"cache_aware\"]\nleast_uncached_tokens = 5",
        24,
        "router.least_uncached_tokens",
        "set fleet.prefill and fleet.regular",
    ),
    (
        "\"router.options.cache_aware.max_tree_size\" = [1000, 2000]",
        "\"faults.transfer_failure\" = [0.0, 0.1]",
        30,
        "faults.transfer_failure",
        "has no effect",
    ),
    (
        "value = 0.8",
        "value = 0.8\nparams = { \"fleet.page\" = 1 }",
        39,
        "assert.params.fleet.page",
        "neither swept nor",
    ),
    (
        "value = 0.8",
        "value = 0.8\nversus = \"cache_aware\"\nversus_params = { max_tree_siz = 1000 }",
        40,
        "assert.versus_params.max_tree_siz",
        "neither swept nor",
    ),
];
