//! Random configurations under random loads: what must hold whatever happens.
//!
//! `ENGINE_SEED=17 cargo test -p simworker-core --test engine sweep` replays one seed.

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use simworker_core::cache::Eviction;
use simworker_core::{
    Engine, EngineConfig, EngineTotals, Event, FinishReason, Limits, Pace, RequestId, Schedule,
};

use crate::support::{Act, Script, a100, pick, play, request, seeds, tokens};

fn draw_config(rng: &mut Pcg64) -> EngineConfig {
    let page_size = pick(rng, &[1, 1, 4, 16]);
    EngineConfig {
        kv_tokens: rng.random_range(800..6000),
        page_size,
        schedule: pick(rng, &[Schedule::Fcfs, Schedule::Lpm]),
        in_batch_prefix_caching: rng.random(),
        eviction: pick(rng, &[Eviction::Lru, Eviction::Lfu, Eviction::Slru, Eviction::Priority]),
        disable_prefix_cache: rng.random_bool(0.1),
        chunked_prefill: pick(rng, &[None, Some(64), Some(500), Some(8192)]),
        max_prefill_tokens: pick(rng, &[100, 1000, 16_384]),
        max_running: pick(rng, &[1, 4, 2048, 2048]),
        conservativeness: pick(rng, &[0.01, 0.3, 1.0]),
        share_chunks_first: rng.random(),
        overlap: rng.random_bool(0.4),
        ..a100()
    }
}

fn draw_script(rng: &mut Pcg64) -> Script {
    let requests = rng.random_range(5..150);
    let mean_gap_ns = pick(rng, &[1, 1_000_000, 60_000_000]);
    let abort_share = pick(rng, &[0.0, 0.05, 0.3]);
    let most_new = pick(rng, &[2, 100, 400, 400]);
    let sure_share = pick(rng, &[0.0, 0.0, 0.5, 1.0]);
    let mut at_ns = 0;
    let mut script = Script::new();
    for id in 0..requests {
        at_ns += rng.random_range(0..=2 * mean_gap_ns);
        let group = u64::from(rng.random_range(0..6u32));
        let runs = [(1000 + group, rng.random_range(0..400)), (id, rng.random_range(1..150))];
        let mut submit = request(id, &runs, rng.random_range(1..=most_new));
        submit.ignore_eos = rng.random_bool(sure_share);
        submit.priority = rng.random_range(-1..3);
        submit.namespace = rng.random_range(0..2);
        script.push((at_ns, Act::Submit(submit)));
        if rng.random_bool(abort_share) {
            script.push((at_ns + rng.next_u64() % 800_000_000, Act::Abort(RequestId(id))));
        }
    }
    script.sort_by_key(|(at_ns, _)| *at_ns);
    script
}

/// Every accepted request ends once, with all its tokens; time does not go back; the books balance.
fn judge(script: &Script, limits: Limits, events: &[Event], totals: EngineTotals) {
    let submits: BTreeMap<u64, (u32, u32)> = script
        .iter()
        .filter_map(|(_, act)| match act {
            Act::Submit(s) => {
                let most = limits.max_output(s.prompt.len() as u64);
                Some((s.id.0, (s.prompt.len() as u32, s.max_new_tokens.min(most as u32))))
            }
            Act::Abort(_) => None,
        })
        .collect();
    let mut ended = BTreeMap::new();
    let (mut now_ns, mut outputs) = (0, 0);
    for event in events {
        let (Event::FirstToken { at_ns, .. }
        | Event::Step { at_ns, .. }
        | Event::KvWanted { at_ns, .. }
        | Event::KvSent { at_ns, .. }
        | Event::Finish { at_ns, .. }) = event;
        assert!(*at_ns >= now_ns, "time goes back at {event:?}");
        now_ns = *at_ns;
        let Event::Finish { id, reason, prompt_tokens, cached_tokens, output_tokens, .. } = event else {
            continue;
        };
        let (prompt, max_new) = submits[&id.0];
        assert_eq!(*prompt_tokens, prompt);
        assert!(*cached_tokens < prompt, "at least one token is computed: {event:?}");
        assert!(*output_tokens <= max_new);
        if *reason == FinishReason::Length {
            assert_eq!(*output_tokens, max_new, "{event:?}");
        }
        outputs += u64::from(*output_tokens);
        assert_eq!(ended.insert(id.0, ()), None, "{event:?} is its second end");
    }
    assert_eq!(ended.len(), submits.len(), "every request ends");
    assert_eq!(tokens(events), outputs);
    assert_eq!(totals.generated_tokens, outputs);
    assert_eq!(totals.finished_requests, ended.len() as u64);
}

struct Played {
    events: Vec<Event>,
    totals: EngineTotals,
    limits: Limits,
}

fn play_checked(config: &EngineConfig, script: &Script, pace: Pace) -> Played {
    let mut engine = Engine::new(EngineConfig { pace, ..config.clone() }).unwrap();
    // Steps are many, and most of them change next to nothing.
    let every = if pace == Pace::Step { 16 } else { 1 };
    let mut calls = 0;
    let events = play(&mut engine, script, |engine| {
        calls += 1;
        if calls % every == 0 {
            engine.check().unwrap();
        }
    });
    engine.check().unwrap();
    assert!(engine.is_idle());
    assert_eq!(engine.loads().used_tokens, 0, "nothing is protected or private when idle");
    assert!(engine.flush());
    assert_eq!(engine.loads().free_tokens, engine.loads().max_total_tokens);
    Played { events, totals: engine.totals(), limits: engine.limits() }
}

#[test]
fn whatever_happens_nothing_is_lost() {
    let mut sum = EngineTotals::default();
    let mut cut = 0;
    for seed in seeds() {
        println!("seed {seed}");
        let mut rng = Pcg64::seed_from_u64(seed);
        let (config, script) = (draw_config(&mut rng), draw_script(&mut rng));
        let stretch = play_checked(&config, &script, Pace::Stretch);
        judge(&script, stretch.limits, &stretch.events, stretch.totals);
        let step = play_checked(&config, &script, Pace::Step);
        assert_eq!(stretch.events, step.events, "the paces differ");
        assert_eq!(stretch.totals, step.totals);
        let again = play_checked(&config, &script, Pace::Stretch);
        assert_eq!(stretch.events, again.events, "the same inputs give the same outputs");
        let t = stretch.totals;
        sum.retractions += t.retractions;
        sum.evicted_tokens += t.evicted_tokens;
        sum.cached_tokens += t.cached_tokens;
        sum.aborted_requests += t.aborted_requests;
        cut += t.prefill_steps.saturating_sub(t.finished_requests + t.retractions);
    }
    if std::env::var_os("ENGINE_SEED").is_none() {
        assert!(sum.retractions > 50 && sum.evicted_tokens > 100_000, "the sweep is hard enough: {sum:?}");
        assert!(
            sum.aborted_requests > 100 && sum.cached_tokens > 10_000 && cut > 100,
            "and varied: {sum:?} {cut}"
        );
    }
}
