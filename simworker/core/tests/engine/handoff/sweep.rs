//! Random workers under random loads and faults: what must hold whatever happens.
//!
//! `ENGINE_SEED=17 cargo test -p simworker-core --test engine handoff::sweep` replays one seed.

use std::collections::BTreeMap;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use simworker_core::{
    BlockNaming, DpConfig, EngineConfig, EngineRole, EngineTotals, Event, FinishReason, HandoffConfig,
    HandoffFault, Link, LoadBalance, Pace, PauseMode, Schedule, Submit,
};

use super::world::{Act, Leg, World, config, in_room};
use crate::support::{pick, request, seeds, tokens};

fn draw_handoff(rng: &mut Pcg64) -> HandoffConfig {
    HandoffConfig {
        link: Link {
            setup_ns: pick(rng, &[0, 1_000, 5_000_000]),
            bytes_per_second: pick(rng, &[1e9, 4e10, 1e15]),
        },
        bootstrap_timeout_ns: pick(rng, &[200_000_000, 3_000_000_000]),
        transfer_timeout_ns: pick(rng, &[200_000_000, 3_000_000_000]),
        num_reserved_decode_tokens: pick(rng, &[0, 20, 512]),
        decode_radix_cache: rng.random_bool(0.3),
        ..config(EngineRole::Whole).handoff
    }
}

fn draw_config(rng: &mut Pcg64, role: EngineRole, handoff: HandoffConfig) -> EngineConfig {
    EngineConfig {
        handoff,
        kv_tokens: rng.random_range(900..6000),
        page_size: pick(rng, &[1, 1, 4, 16]),
        schedule: pick(
            rng,
            &[Schedule::Fcfs, Schedule::Lpm, Schedule::Lof, Schedule::Hrrn, Schedule::DfsWeight],
        ),
        disable_prefix_cache: rng.random_bool(0.1),
        chunked_prefill: pick(rng, &[None, Some(64), Some(500), Some(8192)]),
        max_prefill_tokens: pick(rng, &[100, 16_384]),
        max_running: pick(rng, &[1, 4, 2048, 2048]),
        overlap: rng.random_bool(0.4),
        kv_events: rng.random_bool(0.4).then_some(BlockNaming::Default),
        ..config(role)
    }
}

/// Ranks that an engine of this kind may be one of.
fn draw_ranks(rng: &mut Pcg64, engine: &EngineConfig) -> DpConfig {
    let size = pick(rng, &[1, 1, 2, 3]);
    DpConfig {
        size,
        balance: pick(rng, &LoadBalance::ALL),
        attention: rng.random() && engine.max_running >= size,
    }
}

/// One of the two workers.
type Worker = (EngineConfig, DpConfig);

/// What is done to both workers, and the requests by name.
struct Script {
    acts: Vec<(u64, Leg, Act)>,
    submits: BTreeMap<u64, Submit>,
    lossy: bool,
    hop_ns: u64,
}

fn draw_script(rng: &mut Pcg64) -> Script {
    let requests = rng.random_range(5..120);
    let mean_gap_ns = pick(rng, &[1, 1_000_000, 60_000_000]);
    let trouble = pick(rng, &[0.0, 0.1, 0.4]);
    let most_new = pick(rng, &[2, 100, 400]);
    let stop_share = pick(rng, &[0.0, 0.3]);
    let (mut acts, mut submits, mut at_ns) = (Vec::new(), BTreeMap::new(), 0);
    for id in 0..requests {
        at_ns += rng.random_range(0..=2 * mean_gap_ns);
        let group = u64::from(rng.random_range(0..6u32));
        let runs = [(1000 + group, rng.random_range(0..400)), (id, rng.random_range(1..150))];
        let mut submit = in_room(request(id, &runs, rng.random_range(1..=most_new)));
        submit.ignore_eos = rng.random();
        submit.ends_after = rng.random_bool(stop_share).then(|| rng.random_range(0..most_new));
        for leg in [Leg::Prefill, Leg::Decode] {
            let late_ns = if rng.random_bool(0.3) { rng.next_u64() % 30_000_000 } else { 0 };
            acts.push((at_ns + late_ns, leg, Act::Submit(submit.clone())));
            if rng.random_bool(trouble) {
                let fault = pick(rng, &[HandoffFault::Transfer, HandoffFault::PeerLost]);
                let act = if rng.random() { Act::Abort(id) } else { Act::Fail(id, fault) };
                let after_ns = late_ns + rng.next_u64() % pick(rng, &[1_000_000, 30_000_000, 900_000_000]);
                acts.push((at_ns + after_ns, leg, act));
            }
        }
        submits.insert(id, submit);
    }
    for leg in [Leg::Prefill, Leg::Decode] {
        for _ in 0..pick(rng, &[0, 0, 2]) {
            let began_ns = rng.next_u64() % (at_ns + 500_000_000);
            let mode = pick(rng, &[PauseMode::InPlace, PauseMode::Retract, PauseMode::Abort]);
            acts.push((began_ns, leg, Act::Pause(mode)));
            acts.push((began_ns + rng.next_u64() % 100_000_000, leg, Act::Resume));
        }
    }
    acts.sort_by_key(|(at_ns, ..)| *at_ns);
    Script { acts, submits, lossy: rng.random_bool(0.3), hop_ns: pick(rng, &[0, 0, 100_000]) }
}

fn play(prefill: &Worker, decode: &Worker, script: &Script, pace: Pace) -> World {
    let paced = |(engine, ranks): &Worker| (EngineConfig { pace, ..engine.clone() }, *ranks);
    let mut world = World::of(paced(prefill), paced(decode));
    world.check_every = if pace == Pace::Step { 16 } else { 1 };
    world.hop_ns = script.hop_ns;
    if script.lossy {
        world.lost = |id| id % 7 == 3;
    }
    for (at_ns, leg, act) in &script.acts {
        world.at(*at_ns, *leg, act.clone());
    }
    world.run();
    world
}

/// Every request ends once with what it made; time does not go back; the books balance. Gives back how each ended.
fn judge(
    script: &Script,
    leg: Leg,
    events: &[Event],
    totals: &[EngineTotals],
) -> BTreeMap<u64, FinishReason> {
    assert!(events.iter().map(Event::at_ns).is_sorted(), "time goes back");
    let (mut ended, mut outputs) = (BTreeMap::new(), 0);
    for event in events {
        let Event::Finish { id, reason, prompt_tokens, output_tokens, .. } = event else { continue };
        let submit = &script.submits[&id.0];
        assert_eq!(*prompt_tokens as usize, submit.prompt.len());
        let stop = submit.ends_after.map(|after| after.max(1)).filter(|after| *after < submit.max_new_tokens);
        let (whole, stop) = match leg {
            Leg::Prefill => (1, None),
            Leg::Decode => (submit.max_new_tokens, stop),
        };
        assert!(*output_tokens <= stop.unwrap_or(whole));
        assert!(*reason != FinishReason::Length || *output_tokens == whole, "{event:?}");
        assert!(*reason != FinishReason::Stop || Some(*output_tokens) == stop, "{event:?}");
        outputs += u64::from(*output_tokens);
        assert_eq!(ended.insert(id.0, *reason), None, "{event:?} is its second end");
    }
    assert_eq!(ended.len(), script.submits.len(), "every request ends");
    assert_eq!(tokens(events), outputs);
    let sum = |of: fn(&EngineTotals) -> u64| totals.iter().map(of).sum::<u64>();
    assert_eq!(sum(|totals| totals.generated_tokens), outputs);
    assert_eq!(sum(|totals| totals.finished_requests), ended.len() as u64);
    ended
}

#[derive(Debug, Default)]
struct Sum {
    whole: u64,
    retractions: u64,
    bootstrap_failed: u64,
    transfer_failed: u64,
    aborted: u64,
    /// Workers with several ranks.
    of_ranks: u64,
}

#[test]
fn whatever_happens_every_request_ends_once_on_both_sides() {
    let mut sum = Sum::default();
    for seed in seeds() {
        println!("seed {seed}");
        let mut rng = Pcg64::seed_from_u64(seed);
        let handoff = draw_handoff(&mut rng);
        let [prefill, decode] = [EngineRole::Prefill, EngineRole::Decode].map(|role| {
            let engine = draw_config(&mut rng, role, handoff);
            let ranks = draw_ranks(&mut rng, &engine);
            (engine, ranks)
        });
        let script = draw_script(&mut rng);
        let stretch = play(&prefill, &decode, &script, Pace::Stretch);
        let totals = [Leg::Prefill, Leg::Decode].map(|leg| stretch.totals(leg));
        let sender = judge(&script, Leg::Prefill, &stretch.prefill_events, &totals[0]);
        let receiver = judge(&script, Leg::Decode, &stretch.decode_events, &totals[1]);
        let step = play(&prefill, &decode, &script, Pace::Step);
        assert_eq!(stretch.prefill_events, step.prefill_events, "the paces differ");
        assert_eq!(stretch.decode_events, step.decode_events, "the paces differ");
        for (id, reason) in &receiver {
            let sent = sender[id] == FinishReason::Length;
            let is_whole = matches!(reason, FinishReason::Length | FinishReason::Stop);
            assert!(!is_whole || sent, "{id} has KV that nobody sent");
            sum.whole += u64::from(is_whole);
        }
        let several = [prefill.1, decode.1].iter().filter(|ranks| ranks.size > 1).count();
        sum.of_ranks += several as u64;
        for totals in totals.iter().flatten() {
            sum.retractions += totals.retractions;
            sum.bootstrap_failed += totals.bootstrap_failed_requests;
            sum.transfer_failed += totals.transfer_failed_requests;
            sum.aborted += totals.aborted_requests;
        }
    }
    if std::env::var_os("ENGINE_SEED").is_none() {
        assert!(sum.whole > 2_000 && sum.retractions > 50, "the sweep gets far: {sum:?}");
        assert!(sum.of_ranks > 100, "{sum:?}");
        let failures = [sum.bootstrap_failed, sum.transfer_failed, sum.aborted];
        assert!(failures.iter().all(|count| *count > 200), "and much goes wrong: {sum:?}");
    }
}
