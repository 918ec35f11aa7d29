//! What a seed means.

use rand::{Rng, RngExt};
use rand_pcg::Pcg64;
use simworker_core::cache::{Eviction, WritePolicy};
use simworker_core::{
    BlockNaming, DpConfig, EngineConfig, HostTierConfig, LoadBalance, PauseMode, PrefillInterval,
    PriorityConfig, QueueConfig, RequestId, Schedule, Submit, preset,
};

use crate::support::{a100, request};

/// Something done to the ranks.
#[derive(Debug, Clone)]
pub(super) enum Act {
    Submit(Submit),
    Abort(RequestId),
    AbortAll,
    Flush,
    Pause(PauseMode),
    Resume,
    Slow(f64),
    /// Reads the load.
    Look,
}

/// What is done when, in order of time. No pause is left at the end.
pub(super) type Script = Vec<(u64, Act)>;

fn pick<T: Copy>(rng: &mut Pcg64, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

fn maybe<T>(rng: &mut Pcg64, share: f64, value: impl FnOnce(&mut Pcg64) -> T) -> Option<T> {
    if rng.random_bool(share) { Some(value(rng)) } else { None }
}

pub(super) fn config(rng: &mut Pcg64) -> (EngineConfig, DpConfig) {
    let disable_prefix_cache = rng.random_bool(0.1);
    let any = pick(rng, &Schedule::ALL);
    let schedule = match pick(rng, &[Schedule::Fcfs, any]) {
        Schedule::ShortestPrefillFirst if disable_prefix_cache => Schedule::Lof,
        schedule => schedule,
    };
    let takes_priorities = matches!(schedule, Schedule::Fcfs | Schedule::Lof);
    let size = pick(rng, &[1, 1, 1, 2, 3]);
    let dp = DpConfig {
        size,
        balance: pick(rng, &[LoadBalance::RoundRobin, LoadBalance::TotalRequests, LoadBalance::TotalTokens]),
        attention: rng.random_bool(0.3),
    };
    let config = EngineConfig {
        kv_tokens: rng.random_range(800..4500),
        page_size: pick(rng, &[1, 1, 4, 16]),
        schedule,
        queue: queue(rng, takes_priorities),
        in_batch_prefix_caching: rng.random(),
        eviction: pick(rng, &Eviction::ALL),
        disable_prefix_cache,
        host_tier: maybe(rng, 0.4, host_tier),
        chunked_prefill: pick(rng, &[None, Some(64), Some(500), Some(8192)]),
        max_prefill_tokens: pick(rng, &[100, 1000, 16_384]),
        prefill_max_requests: maybe(rng, 0.1, |rng| rng.random_range(1..4)),
        mixed_chunk: rng.random_bool(0.3),
        prefill_interval: PrefillInterval {
            steps: pick(rng, &[0, 0, 0, 1, 5]),
            min_batch: pick(rng, &[0, 0, 3]),
        },
        max_running: pick(rng, &[3, 4, 2048, 2048]),
        max_queued: maybe(rng, 0.2, |rng| rng.random_range(1..30)),
        conservativeness: pick(rng, &[0.01, 0.3, 1.0]),
        share_chunks_first: rng.random(),
        overlap: rng.random_bool(0.5),
        load_report_steps: pick(rng, &[1, 15]),
        decode_log_interval: pick(rng, &[1, 7, 40]),
        kv_events: maybe(rng, 0.6, |_| BlockNaming::Default),
        ..a100()
    };
    (config, dp)
}

fn host_tier(rng: &mut Pcg64) -> HostTierConfig {
    HostTierConfig {
        tokens: rng.random_range(100..10_000),
        write: pick(rng, &WritePolicy::ALL),
        bytes_per_second: pick(rng, &[1e9, 25e9]),
        ..HostTierConfig::of(preset("a100-80g-llama3-8b").unwrap(), 1)
    }
}

fn queue(rng: &mut Pcg64, takes_priorities: bool) -> QueueConfig {
    let priority = maybe(rng, if takes_priorities { 0.4 } else { 0.0 }, |rng| PriorityConfig {
        low_values_first: rng.random(),
        preempts_above: pick(rng, &[None, Some(0), Some(0), Some(10)]),
    });
    QueueConfig {
        seed: rng.next_u64(),
        priority,
        refuses_priorities: rng.random_bool(0.05),
        waiting_timeout_ns: maybe(rng, 0.06, |rng| rng.random_range(1..2_000_000_000)),
        running_timeout_ns: maybe(rng, 0.06, |rng| rng.random_range(1..3_000_000_000)),
    }
}

pub(super) fn script(rng: &mut Pcg64, plain: bool) -> Script {
    script_of(rng, plain, request)
}

/// A script of requests made by `request` of a name, runs of the prompt and the longest reply.
pub(super) fn script_of(
    rng: &mut Pcg64,
    plain: bool,
    mut request: impl FnMut(u64, &[(u64, u32)], u32) -> Submit,
) -> Script {
    let requests = rng.random_range(5..120);
    let mean_gap_ns = pick(rng, &[1, 1_000_000, 60_000_000]);
    let abort_share = pick(rng, &[0.0, 0.05, 0.3]);
    let most_new = pick(rng, &[2, 100, 400, 400]);
    let sure_share = pick(rng, &[0.0, 0.0, 0.5, 1.0]);
    let stop_share = pick(rng, &[0.0, 0.3]);
    let ranked_share = if plain { pick(rng, &[0.0, 0.7]) } else { 0.7 };
    let mut at_ns = 0;
    let mut script = Script::new();
    for id in 0..requests {
        at_ns += rng.random_range(0..=2 * mean_gap_ns);
        let group = u64::from(rng.random_range(0..6u32));
        let runs = [(1000 + group, rng.random_range(0..400)), (id, rng.random_range(1..150))];
        let submit = Submit {
            ignore_eos: rng.random_bool(sure_share),
            priority: maybe(rng, ranked_share, |rng| rng.random_range(-1..15)),
            namespace: rng.random_range(0..2),
            ends_after: maybe(rng, stop_share, |rng| rng.random_range(0..most_new)),
            match_limit: maybe(rng, 0.05, |rng| rng.random_range(0..300)),
            routing_key: maybe(rng, 0.5, |rng| rng.random_range(0..3)),
            is_prefill_only: rng.random_bool(0.05),
            ..request(id, &runs, rng.random_range(1..=most_new))
        };
        script.push((at_ns, Act::Submit(submit)));
        if rng.random_bool(abort_share) {
            script.push((at_ns + rng.next_u64() % 800_000_000, Act::Abort(RequestId(id))));
        }
    }
    disturb(rng, at_ns, &mut script);
    script.sort_by_key(|(at_ns, _)| *at_ns);
    script
}

/// What comes in between, at any time until a little after the last request.
fn disturb(rng: &mut Pcg64, last_ns: u64, script: &mut Script) {
    let at = |rng: &mut Pcg64| rng.next_u64() % (last_ns + 1_500_000_000);
    for _ in 0..rng.random_range(0..10) {
        script.push((at(rng), Act::Look));
        script.push((at(rng), Act::Flush));
    }
    for _ in 0..pick(rng, &[0, 0, 1, 4]) {
        let began_ns = at(rng);
        script.push((
            began_ns,
            Act::Pause(pick(rng, &[PauseMode::InPlace, PauseMode::Retract, PauseMode::Abort])),
        ));
        let lasted_ns = rng.next_u64() % pick(rng, &[1, 30_000_000, 900_000_000]);
        script.push((began_ns + lasted_ns / 2, Act::Flush));
        script.push((began_ns + lasted_ns, Act::Resume));
    }
    if rng.random_bool(0.1) {
        script.push((at(rng), Act::AbortAll));
    }
    for _ in 0..pick(rng, &[0, 0, 3]) {
        script.push((at(rng), Act::Slow(pick(rng, &[0.5, 1.0, 3.0]))));
    }
}
