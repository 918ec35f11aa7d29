//! Pauses, slowed steps, and reports of the load.

use simworker_core::{
    DpConfig, Engine, EngineConfig, Event, FinishReason, Pace, PauseMode, PrefillInterval, Ranks, RequestId,
};

use crate::support::{a100, end, first_ns, request, run, submit};

const LATER_NS: u64 = 5_000_000_000;

/// An engine at `at_ns` with one request that decodes and one that waits for its place.
fn busy(at_ns: u64) -> (Engine, Vec<Event>) {
    let mut engine = Engine::new(EngineConfig { max_running: 1, ..a100() }).unwrap();
    let mut events = Vec::new();
    engine.submit(0, request(0, &[(1, 100)], 100), &mut events).unwrap();
    engine.submit(1, request(1, &[(2, 100)], 10), &mut events).unwrap();
    engine.advance(at_ns, &mut events);
    (engine, events)
}

fn finish(engine: &mut Engine, events: &mut Vec<Event>) {
    while let Some(due) = engine.next_deadline() {
        engine.advance(due, events);
        engine.check().unwrap();
    }
    assert!(engine.is_idle());
}

#[test]
fn in_place_nothing_moves_and_all_keep_their_kv() {
    let (mut engine, mut events) = busy(400_000_000);
    engine.pause(400_000_000, PauseMode::InPlace, &mut events);
    assert!(engine.is_paused());
    engine.advance(450_000_000, &mut events);
    let made = engine.running().next().unwrap().1;
    assert_eq!(engine.next_deadline(), None, "nothing is due");
    assert!(!engine.flush(), "KV is held");
    engine.submit(500_000_000, request(2, &[(3, 50)], 3), &mut events).unwrap();
    engine.advance(LATER_NS, &mut events);
    engine.check().unwrap();
    assert_eq!(engine.running().collect::<Vec<_>>(), [(RequestId(0), made)]);
    assert_eq!(engine.loads().waiting, 2);
    engine.resume(LATER_NS, &mut events);
    finish(&mut engine, &mut events);
    assert_eq!([0, 1, 2].map(|id| end(&events, id).outputs), [100, 10, 3]);
    assert_eq!(end(&events, 0).retractions, 0);
    let longest = events.iter().filter_map(|event| match event {
        Event::Step { gap_ns, .. } => Some(*gap_ns),
        _ => None,
    });
    assert!(longest.max().unwrap() > 4_000_000_000, "the pause is a gap between two tokens");
}

#[test]
fn retracted_ones_lose_their_kv_and_go_on_with_their_outputs() {
    let (mut engine, mut events) = busy(400_000_000);
    engine.pause(400_000_000, PauseMode::Retract, &mut events);
    engine.advance(450_000_000, &mut events);
    assert_eq!((engine.running().count(), engine.loads().waiting, engine.loads().used_tokens), (0, 2, 0));
    assert!(engine.flush(), "nobody holds KV, though two wait");
    assert_eq!(engine.loads().evictable_tokens, 0);
    engine.check().unwrap();
    engine.resume(LATER_NS, &mut events);
    finish(&mut engine, &mut events);
    assert_eq!([0, 1].map(|id| end(&events, id).outputs), [100, 10]);
    assert_eq!((end(&events, 0).retractions, end(&events, 1).retractions), (1, 0));
    assert!(first_ns(&events, 1) < end(&events, 0).at_ns, "it waits as the last");
}

#[test]
fn a_chunked_prompt_is_retracted_too() {
    for mode in [PauseMode::InPlace, PauseMode::Retract] {
        let mut engine = Engine::new(a100()).unwrap();
        let mut events = Vec::new();
        engine.submit(0, request(0, &[(1, 20_000)], 3), &mut events).unwrap();
        engine.advance(1, &mut events);
        engine.pause(2, mode, &mut events);
        engine.advance(LATER_NS, &mut events);
        let held = engine.loads().used_tokens;
        assert_eq!(held, if mode == PauseMode::InPlace { 8192 } else { 0 });
        engine.resume(LATER_NS, &mut events);
        finish(&mut engine, &mut events);
        assert_eq!(end(&events, 0).outputs, 3);
    }
}

#[test]
fn aborting_all_ends_everything() {
    let (mut engine, mut events) = busy(400_000_000);
    assert_eq!(engine.abort_all(400_000_000, &mut events), 2);
    assert_eq!(end(&events, 1).at_ns, 400_000_000);
    finish(&mut engine, &mut events);
    assert!(end(&events, 0).at_ns < 420_000_000);
}

#[test]
fn a_pause_that_aborts_leaves_nobody_behind() {
    // A prompt between two of its parts, of which a decode step comes first; one that runs; and one that waits.
    let queue = PrefillInterval { steps: 4, ..PrefillInterval::default() };
    for overlap in [false, true] {
        for at_ns in (0..60).map(|ms| 600_000_000 + ms * 20_000_000) {
            let config = EngineConfig { prefill_interval: queue, overlap, max_running: 2, ..a100() };
            let mut engine = Engine::new(config).unwrap();
            let mut events = Vec::new();
            engine.submit(0, request(0, &[(1, 100)], 4_000), &mut events).unwrap();
            engine.submit(500_000_000, request(1, &[(2, 60_000)], 10), &mut events).unwrap();
            engine.submit(500_000_001, request(2, &[(3, 100)], 10), &mut events).unwrap();
            engine.advance(at_ns, &mut events);
            engine.pause(at_ns, PauseMode::Abort, &mut events);
            engine.submit(at_ns + 1, request(3, &[(4, 50)], 3), &mut events).unwrap();
            engine.advance(at_ns + LATER_NS, &mut events);
            engine.check().unwrap();
            for id in 0..3 {
                let end = end(&events, id);
                assert!(
                    matches!(end.reason, FinishReason::Abort { .. }),
                    "{id} at {at_ns}: {:?}",
                    end.reason
                );
            }
            assert_eq!((engine.loads().waiting, engine.loads().running), (1, 0), "the new one waits");
            assert!(engine.flush(), "nobody holds KV");
            engine.resume(at_ns + LATER_NS, &mut events);
            finish(&mut engine, &mut events);
            assert_eq!(end(&events, 3).outputs, 3);
        }
    }
}

#[test]
fn ranks_are_flushed_all_or_none() {
    let mut ranks = Ranks::new(a100(), DpConfig { size: 2, ..DpConfig::default() }).unwrap();
    let mut events = Vec::new();
    ranks.submit(0, request(0, &[(1, 100)], 1), Some(0), &mut events).unwrap();
    ranks.submit(0, request(1, &[(2, 100)], 1_000), Some(1), &mut events).unwrap();
    ranks.advance(400_000_000, &mut events);
    ranks.pause(400_000_000, PauseMode::InPlace, &mut events);
    ranks.advance(500_000_000, &mut events);
    let cached = ranks.loads(0).evictable_tokens;
    assert!(cached > 0);
    assert!(!ranks.flush(), "the second rank has a request that holds KV");
    assert_eq!(ranks.loads(0).evictable_tokens, cached, "nothing was done");
    ranks.pause(500_000_000, PauseMode::Retract, &mut events);
    ranks.advance(500_000_000, &mut events);
    assert!(ranks.flush());
    assert_eq!(ranks.loads(0).evictable_tokens, 0);
}

#[test]
fn a_slowed_engine_takes_its_factor_longer_from_the_next_step_on() {
    let script = [submit(0, request(0, &[(1, 1000)], 101))];
    let normal = run(a100(), &script.to_vec());
    let (prefill_ns, end_ns) = (first_ns(&normal, 0), end(&normal, 0).at_ns);
    let mut engine = Engine::new(a100()).unwrap();
    let mut events = Vec::new();
    engine.submit(0, request(0, &[(1, 1000)], 101), &mut events).unwrap();
    engine.advance(0, &mut events);
    engine.set_pace_factor(1, 2.5, &mut events);
    finish(&mut engine, &mut events);
    assert_eq!(first_ns(&events, 0), prefill_ns, "the step in progress ends as planned");
    let (slow, fast) = (end(&events, 0).at_ns - prefill_ns, end_ns - prefill_ns);
    assert!((slow as f64 / fast as f64 - 2.5).abs() < 1e-6, "{slow} {fast}");
    engine.set_pace_factor(LATER_NS, 1.0, &mut events);
    engine.submit(LATER_NS, request(1, &[(2, 1000)], 101), &mut events).unwrap();
    finish(&mut engine, &mut events);
    assert_eq!(end(&events, 1).at_ns - LATER_NS, end_ns, "and as before again");
}

#[test]
fn reports_change_only_when_sglang_takes_them() {
    let mut engine = Engine::new(EngineConfig { pace: Pace::Step, ..a100() }).unwrap();
    let mut events = Vec::new();
    engine.submit(0, request(0, &[(1, 1000)], 41), &mut events).unwrap();
    engine.advance(0, &mut events);
    engine.submit(1, request(1, &[(2, 10)], 1), &mut events).unwrap();
    let report = engine.reported_loads(1);
    assert_eq!((report.loads.running, report.loads.waiting), (0, 0), "as of the start");
    assert_eq!(engine.loads().waiting, 1);
    // Both prompts are computed, then 40 decode steps of one.
    let mut reports = Vec::new();
    let mut step_ends = Vec::new();
    while let Some(due) = engine.next_deadline().filter(|_| !engine.is_idle()) {
        engine.advance(due, &mut events);
        if reports.last() != Some(&engine.reported_loads(due)) {
            reports.push(engine.reported_loads(due));
        }
    }
    for event in &events {
        if let Event::Step { at_ns, .. } = event {
            step_ends.push(*at_ns);
        }
    }
    let taken: Vec<u64> = reports.iter().map(|report| report.at_ns).collect();
    let prefills = [first_ns(&events, 0), first_ns(&events, 1)];
    assert_eq!(step_ends.len(), 40);
    assert!(taken.starts_with(&prefills), "{taken:?} {prefills:?}");
    assert_eq!(reports[0].loads.running, 0, "before the result has changed anything");
    assert_eq!((reports[1].loads.running, reports[1].loads.waiting), (1, 0));
    assert_eq!(taken[2..], [step_ends[14], step_ends[29], step_ends[39]], "every 15th, and when it is idle");
    assert_eq!(engine.reported_loads(LATER_NS).at_ns, LATER_NS, "idle, it reports all the time");
}
