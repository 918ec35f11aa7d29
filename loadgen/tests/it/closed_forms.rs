//! Hit rates that can be computed by hand: cold caches, no eviction, requests one after the other.
//!
//! `s` shared tokens, `q` own tokens, `P` prompts a group, `N` workers. A sticky policy pays for a prefix once a
//! group: `(P−1)/P · s/(s+q)`. One that spreads pays once for every worker a group meets, on average
//! `D = N(1 − (1 − 1/N)^P)` of them: `(P−D)/P · s/(s+q)`. Conversations, families and trees have forms of their own, below.

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

/// A workload on workers that forget nothing, one session after the other.
fn one_by_one(workload: &str, workers: u32, policies: &str) -> String {
    format!(
        "schema = 1\nname = \"closed_form\"\nseed = 11\n[workload]\n{workload}\n[arrival]\nkind = \"closed\"\n\
         concurrency = 1\n[fleet]\nworkers = {workers}\nkv_tokens = 40000000\n[router]\npolicies = [{policies}]\n"
    )
}

fn is_near(case: &str, measured: f64, expected: f64, most: f64) {
    assert!((measured - expected).abs() <= most, "{case}: measured {measured:.5}, closed form {expected:.5}");
}

/// Turn `t` has `P(t) = t·q + (t−1)·r` prompt tokens, with replies of `r`. Where turn `j` was, all but the last token of its
/// reply is found. A policy that keeps a conversation together finds the turn before; one that draws workers finds turn `j` if
/// that is the last one on its worker, with a probability of `(1/N)·(1−1/N)^(t−1−j)`.
/// (The router knows no replies: where they are long, a second turn is below the threshold of `cache_aware`.)
#[test]
fn conversations_are_found_where_they_were() {
    const TURNS: i32 = 6;
    let (q, r, n) = (90.0, 60.0, 4.0_f64);
    let prompt = |turn: i32| f64::from(turn) * q + f64::from(turn - 1) * r;
    let kept = |turn: i32| prompt(turn) + r - 1.0;
    let all: f64 = (1..=TURNS).map(prompt).sum();
    let together = (1..TURNS).map(kept).sum::<f64>() / all;
    let last_on_worker = |turn: i32, before: i32| (1.0 - 1.0 / n).powi(turn - 1 - before) / n;
    let of_turn =
        |turn: i32| (1..turn).map(|before| last_on_worker(turn, before) * kept(before)).sum::<f64>();
    let drawn = (1..=TURNS).map(of_turn).sum::<f64>() / all;
    let chat = format!(
        "kind = \"chat\"\nsessions = 600\nturns = {TURNS}\nquestion_tokens = {q}\noutput_tokens = {r}\nthink = \"1s\""
    )
    .replace(".0", "");
    let policies = "\"random\", \"cache_aware\", \"manual\", \"consistent_hashing\"";
    for summary in summaries(&one_by_one(&chat, 4, policies), &[]) {
        let (expected, most) = if summary.policy == "random" { (drawn, 0.01) } else { (together, 1e-4) };
        is_near(&summary.policy, summary.hit_rate, expected, most);
    }
}

/// With `p` prompt and `r` reply tokens of a parent, each of `c` children finds `p + r − 1`, and the join one token more, for
/// the children have computed the reply's last one. A worker that draws finds the parent with `1/N`, and the join finds it where
/// any of the family was.
#[test]
fn children_and_joins_find_their_parent() {
    let (p, r, c, own, reply, join) = (500.0, 100.0, 5.0, 40.0, 30.0, 70.0);
    let all = p + c * (p + r + own) + (p + r + c * reply + join);
    let together = (c * (p + r - 1.0) + p + r) / all;
    let agentic = "kind = \"agentic\"\nsessions = 300\nchildren = 5\nquestion_tokens = 500\noutput_tokens = 100\n\
                   child_tokens = 40\nchild_output_tokens = 30\njoin_tokens = 70";
    for summary in summaries(&one_by_one(agentic, 4, "\"cache_aware\", \"manual\", \"random\""), &[]) {
        match summary.policy.as_str() {
            "random" => assert!(summary.hit_rate < 0.6 * together, "{}", summary.hit_rate),
            // A child that is computed after another one finds the last token too.
            policy => is_near(policy, summary.hit_rate, together, c / all),
        }
    }
}

/// Every branch of a tree is computed once on every worker that it meets; of `R` prompts, `R/b` meet each of `b` branches of a
/// level.
#[test]
fn branches_are_found_level_by_level() {
    let (levels, question, requests) = ([(3.0, 200.0), (12.0, 100.0), (48.0, 50.0)], 30.0, 4800.0);
    let tree = "kind = \"prefix_tree\"\nrequests = 4800\nlevels = [{ fan_out = 3, tokens = 200 }, \
                { fan_out = 4, tokens = 100 }, { fan_out = 4, tokens = 50 }]\nquestion_tokens = 30\noutput_tokens = 2";
    let all = requests * (levels.iter().map(|(_, tokens)| tokens).sum::<f64>() + question);
    for workers in [1.0_f64, 16.0] {
        let computed: f64 = levels
            .iter()
            .map(|(branches, tokens)| {
                let met = workers * (1.0 - (1.0 - 1.0 / (branches * workers)).powf(requests));
                branches * met * tokens
            })
            .sum();
        let expected = 1.0 - (computed + requests * question) / all;
        for summary in summaries(&one_by_one(tree, workers as u32, "\"random\""), &[]) {
            is_near(&format!("{workers} workers"), summary.hit_rate, expected, 0.001);
        }
    }
}

/// Under Zipf's law a group of rank `k` has a share of `k^-1/Z` of `R` requests, and is not met by one of `N` workers with a
/// probability of `(1 − share/N)^R`.
#[test]
fn popular_groups_are_found_more_often() {
    let (groups, requests, share) = (64, 1024, 480.0 / 512.0);
    let z: f64 = (1..=groups).map(|k| 1.0 / f64::from(k)).sum();
    let expected = |workers: f64| {
        let computed = |k: i32| workers * (1.0 - (1.0 - 1.0 / (f64::from(k) * z * workers)).powi(requests));
        (1.0 - (1..=groups).map(computed).sum::<f64>() / f64::from(requests)) * share
    };
    let zipf = "kind = \"shared_prefix\"\ngroups = 64\nprompts_per_group = 16\nsystem_tokens = 480\nquestion_tokens = 32\n\
                output_tokens = 2\npopularity = { zipf = 1.0 }";
    for summary in summaries(&one_by_one(zipf, 8, "\"random\", \"cache_aware\""), &[]) {
        let workers = if summary.policy == "random" { 8.0 } else { 1.0 };
        is_near(&summary.policy, summary.hit_rate, expected(workers), 0.015);
    }
}
