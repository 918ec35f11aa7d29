//! Policies, their decisions, and the roles of the workers that they were about.

use std::collections::BTreeSet;

use super::*;

#[test]
fn the_gateways_branches_are_our_reasons_and_stay_with_their_policy() {
    let counters = counters();
    counters.metrics.set_policies(everywhere(policy("manual")));
    counters.metrics.decided(Role::Prefill, &assignment(policy("prefix_hash"), "ring_hit"));
    let mut live = live(&counters.workers, 0..2);
    live.remembered_keys = Some(7);
    for (worker, keys) in live.workers.iter_mut().zip([3, 4]) {
        worker.routing_keys = Some(keys);
    }
    let text = counters.metrics.render(live, Format::Plain);
    let shown: BTreeSet<_> = text.lines().filter(|line| line.contains("branch=")).collect();
    let expected = [
        r#"smg_manual_policy_branch_total{branch="no_routing_id"} 0"#,
        r#"smg_manual_policy_branch_total{branch="occupied_hit"} 0"#,
        r#"smg_manual_policy_branch_total{branch="occupied_miss"} 0"#,
        r#"smg_manual_policy_branch_total{branch="vacant"} 0"#,
        r#"smg_prefix_hash_policy_branch_total{branch="fallback_least_load"} 0"#,
        r#"smg_prefix_hash_policy_branch_total{branch="load_balance_walk"} 0"#,
        r#"smg_prefix_hash_policy_branch_total{branch="ring_hit"} 1"#,
    ];
    assert_eq!(shown, BTreeSet::from(expected));
    for line in [
        "smg_manual_policy_cache_entries 7",
        r#"smg_worker_routing_keys_active{worker="http://w0",worker_type="regular"} 3"#,
        r#"smg_worker_routing_keys_active{worker="http://w1",worker_type="regular"} 4"#,
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn a_decision_counts_for_the_policy_that_made_it() {
    let counters = counters();
    let before = assignment(policy("cache_aware"), "cache_hit");
    let after = assignment(policy("manual"), "vacant");
    counters.metrics.set_policies(everywhere(after.policy));
    for decision in [before, after, before] {
        counters.metrics.decided(Role::Regular, &decision);
        counters.workers[0].selected(decision.policy);
    }
    let text = counters.render(0..2);
    let shown = |name: &str| -> Vec<&str> {
        let samples = text.lines().filter(|line| line.starts_with(name) && line.contains("policy="));
        samples.filter_map(|line| line.split_once("policy=")).map(|(_, rest)| rest).collect()
    };
    let decisions = [
        r#""cache_aware",reason="cache_hit",worker_type="regular"} 2"#,
        r#""manual",reason="occupied_hit",worker_type="regular"} 0"#,
        r#""manual",reason="occupied_miss",worker_type="regular"} 0"#,
        r#""manual",reason="vacant",worker_type="regular"} 1"#,
        r#""manual",reason="no_routing_id",worker_type="regular"} 0"#,
    ];
    assert_eq!(shown("smg_router_decisions_total"), decisions);
    let selections = [
        r#""cache_aware",worker="http://w0"} 2"#,
        r#""manual",worker="http://w0"} 1"#,
        r#""manual",worker="http://w1"} 0"#,
    ];
    assert_eq!(shown("smg_worker_selection_total"), selections);
}

#[test]
fn of_policies_those_are_shown_that_rule_over_somebody() {
    let counters = counters();
    let policies = PerRole { decode: policy("random"), ..everywhere(policy("round_robin")) };
    counters.metrics.set_policies(policies);
    let shown = |roles: [&'static str; 2]| {
        let mut live = live(&counters.workers, 0..2);
        live.workers.iter_mut().zip(roles).for_each(|(worker, role)| worker.role = role);
        let text = counters.metrics.render(live, Format::Plain);
        let named = ["round_robin", "random"].map(|name| {
            let label = format!("policy=\"{name}\"");
            text.lines().filter(|line| line.contains(&label)).count()
        });
        assert!(!text.contains("cache_aware"), "{text}");
        named
    };
    assert_eq!(shown(["regular", "regular"]), [3, 0], "a decision, and a row of each worker");
    assert_eq!(shown(["prefill", "decode"]), [2, 2]);
}

#[test]
fn the_policy_of_each_role_is_shown_with_its_decisions() {
    let counters = counters();
    let policies = PerRole { decode: policy("random"), ..everywhere(policy("round_robin")) };
    counters.metrics.set_policies(policies);
    counters.metrics.decided(Role::Prefill, &assignment(policy("round_robin"), "turn"));
    let mut pairs = live(&counters.workers, 0..2);
    pairs.workers.iter_mut().zip(["prefill", "decode"]).for_each(|(worker, role)| worker.role = role);
    let text = counters.metrics.render(pairs, Format::Plain);
    let shown: Vec<&str> =
        text.lines().filter(|line| line.starts_with("smg_router_decisions_total{")).collect();
    let expected = [
        r#"smg_router_decisions_total{policy="round_robin",reason="turn",worker_type="prefill"} 1"#,
        r#"smg_router_decisions_total{policy="random",reason="draw",worker_type="decode"} 0"#,
    ];
    assert_eq!(shown, expected);
}
