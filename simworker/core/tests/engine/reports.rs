//! What an engine says about its time and its load.

use simworker_core::{Engine, EngineConfig, Pace, PriorityConfig, QueueCounts, Submit};

use crate::support::{a100, request};

#[test]
fn idle_time_never_falls_and_a_step_is_none_of_it() {
    let mut engine = Engine::new(EngineConfig { pace: Pace::Step, ..a100() }).unwrap();
    let mut events = Vec::new();
    engine.submit(1_000_000_000, request(0, &[(1, 8_000)], 20), &mut events).unwrap();
    let mut last_ns = 0;
    for now_ns in (1_000_000_000..3_000_000_000).step_by(777_777) {
        engine.advance(now_ns, &mut events);
        let idle_ns = engine.idle_ns(now_ns);
        assert!(idle_ns >= last_ns, "at {now_ns}: {idle_ns} after {last_ns}");
        assert!(engine.is_idle() || idle_ns == 1_000_000_000, "a step is in progress: {idle_ns}");
        last_ns = idle_ns;
    }
    let totals = engine.totals();
    let busy_ns = totals.prefill_busy_ns + totals.decode_busy_ns;
    let at_ns = 2_999_999_999;
    assert!((engine.idle_ns(at_ns) + busy_ns).abs_diff(at_ns) <= 2, "the two add up to the time there was");
}

#[test]
fn an_interval_of_throughput_is_as_long_as_it_is_said() {
    let reports = |decode_log_interval| {
        let config = EngineConfig { decode_log_interval, pace: Pace::Step, ..a100() };
        let mut engine = Engine::new(config).unwrap();
        let mut events = Vec::new();
        engine.submit(0, request(0, &[(1, 100)], 100), &mut events).unwrap();
        let mut steps = None;
        while let Some(due) = engine.next_deadline() {
            engine.advance(due, &mut events);
            if engine.loads().gen_throughput > 0.0 {
                steps.get_or_insert(engine.totals().decode_steps);
            }
        }
        steps
    };
    // The first step begins the first interval.
    assert_eq!([reports(5), reports(40), reports(1_000)], [Some(6), Some(41), None]);
    let none = EngineConfig { decode_log_interval: 0, ..a100() };
    assert!(Engine::new(none).unwrap_err().to_string().contains("decode_log_interval is 0"));
}

#[test]
fn routing_keys_are_counted_where_all_have_one() {
    let keyed = |id, routing_key| Submit { routing_key, ..request(id, &[(id, 50)], 200) };
    let mut engine = Engine::new(EngineConfig { pace: Pace::Step, ..a100() }).unwrap();
    let mut events = Vec::new();
    for (id, key) in [(0, 7), (1, 7), (2, 9)] {
        engine.submit(0, keyed(id, Some(key)), &mut events).unwrap();
    }
    engine.advance(500_000_000, &mut events);
    let told = |engine: &Engine, now_ns| engine.reported_loads(now_ns).loads.routing_keys;
    assert_eq!(told(&engine, 500_000_000), 2);
    engine.submit(500_000_000, keyed(3, None), &mut events).unwrap();
    engine.advance(900_000_000, &mut events);
    assert_eq!(told(&engine, 900_000_000), 2, "one has none: the former figure stays");
}

#[test]
fn priorities_are_counted_apart_where_they_count() {
    let of = |id, priority| Submit { priority, ..request(id, &[(id, 50)], 300) };
    let mut config = EngineConfig { pace: Pace::Step, max_running: 2, ..a100() };
    config.queue.priority = Some(PriorityConfig { preempts_above: None, ..PriorityConfig::default() });
    let mut engine = Engine::new(config).unwrap();
    let mut events = Vec::new();
    for (id, priority) in [(0, Some(5)), (1, Some(5)), (2, Some(-1)), (3, None)] {
        engine.submit(0, of(id, priority), &mut events).unwrap();
    }
    engine.advance(1_000_000_000, &mut events);
    let counts: Vec<_> = engine.reported_priorities().map(|(of, n)| (of, n.running, n.waiting)).collect();
    assert_eq!(counts, [(None, 0, 1), (Some(-1), 0, 1), (Some(5), 2, 0)]);
    while let Some(due) = engine.next_deadline() {
        engine.advance(due, &mut events);
    }
    assert!(engine.reported_priorities().all(|(_, counts)| counts == QueueCounts::default()));
    assert_eq!(engine.reported_priorities().count(), 3, "a priority that was seen stays");
}
