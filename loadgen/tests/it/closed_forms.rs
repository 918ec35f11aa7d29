//! Hit rates that can be computed by hand: cold caches, no eviction, requests one after the other.
//!
//! `s` shared tokens, `q` own tokens, `P` prompts a group, `N` workers. A sticky policy pays for a prefix once a
//! group: `(P−1)/P · s/(s+q)`. One that spreads pays once for every worker a group meets, on average
//! `D = N(1 − (1 − 1/N)^P)` of them: `(P−D)/P · s/(s+q)`.

use crate::support::summaries;

const GROUPS: u32 = 256;
const PROMPTS: u32 = 16;
const SYSTEM: u32 = 512;
const QUESTION: u32 = 32;

fn scenario(workers: u32) -> String {
    format!(
        r#"
schema = 1
name = "closed_form"
seed = 11
[workload]
kind = "shared_prefix"
groups = {GROUPS}
prompts_per_group = {PROMPTS}
system_tokens = {SYSTEM}
question_tokens = {QUESTION}
output_tokens = 2
[arrival]
kind = "closed"
concurrency = 1
[fleet]
workers = {workers}
preset = "a100-80g-llama3-8b"
kv_tokens = 4000000
[router]
policies = ["round_robin", "random", "cache_aware"]
"#
    )
}

#[test]
fn hit_rates_equal_their_closed_forms() {
    let share = f64::from(SYSTEM) / f64::from(SYSTEM + QUESTION);
    let prompts = f64::from(PROMPTS);
    for workers in [1, 2, 4, 8, 16] {
        let n = f64::from(workers);
        let met = n * (1.0 - (1.0 - 1.0 / n).powf(prompts));
        for summary in summaries(&scenario(workers), &[]) {
            let expected = match summary.policy.as_str() {
                "cache_aware" => (prompts - 1.0) / prompts * share,
                _ => (prompts - met) / prompts * share,
            };
            let (policy, measured) = (&summary.policy, summary.hit_rate);
            assert!(
                (measured - expected).abs() < 0.01,
                "{workers} workers, {policy}: measured {measured:.4}, closed form {expected:.4}"
            );
        }
    }
}
