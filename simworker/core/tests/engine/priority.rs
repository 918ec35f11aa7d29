//! Who is more important, and who is here for too long.

use simworker_core::{
    Engine, EngineConfig, Event, FinishReason, PriorityConfig, QueueConfig, Refusal, Schedule, Submit,
};

use crate::support::{a100, end, first_ns, request, run, submit};

/// One runs at a time.
fn config(priority: PriorityConfig) -> EngineConfig {
    let queue = QueueConfig { priority: Some(priority), ..QueueConfig::default() };
    EngineConfig { max_running: 1, queue, ..a100() }
}

fn ranked(id: u64, priority: Option<i64>, max_new: u32) -> Submit {
    Submit { priority, ..request(id, &[(id, 100)], max_new) }
}

fn timeouts(waiting_timeout_ns: Option<u64>, running_timeout_ns: Option<u64>) -> EngineConfig {
    let queue = QueueConfig { waiting_timeout_ns, running_timeout_ns, ..QueueConfig::default() };
    EngineConfig { max_running: 1, queue, ..a100() }
}

#[test]
fn the_most_important_goes_first_and_one_without_priority_last() {
    let script = [(0, Some(0)), (1, None), (2, Some(-3)), (3, Some(7)), (4, Some(7))];
    let script = script.map(|(id, priority)| submit(id, ranked(id, priority, 5))).to_vec();
    let order = |low_values_first| {
        let events = run(config(PriorityConfig { low_values_first, ..PriorityConfig::default() }), &script);
        let mut ids = vec![1, 2, 3, 4];
        ids.sort_by_key(|id| first_ns(&events, *id));
        ids
    };
    assert_eq!(order(false), [3, 4, 2, 1]);
    assert_eq!(order(true), [2, 3, 4, 1]);
}

#[test]
fn only_a_difference_above_the_threshold_preempts() {
    let world = |priority, newcomer, overlap| {
        let config = EngineConfig { overlap, ..config(priority) };
        let script =
            vec![submit(0, ranked(0, Some(0), 100)), submit(300_000_000, ranked(1, Some(newcomer), 10))];
        let events = run(config, &script);
        assert_eq!([0, 1].map(|id| end(&events, id).outputs), [100, 10]);
        let retractions = end(&events, 0).retractions;
        assert_eq!(retractions == 1, end(&events, 1).at_ns < end(&events, 0).at_ns);
        retractions
    };
    for overlap in [false, true] {
        let default = PriorityConfig::default();
        assert_eq!(world(default, 10, overlap), 0);
        assert_eq!(world(default, 11, overlap), 1);
        assert_eq!(world(PriorityConfig { preempts_above: None, ..default }, 1000, overlap), 0);
        let low = PriorityConfig { low_values_first: true, ..default };
        assert_eq!((world(low, 11, overlap), world(low, -11, overlap)), (0, 1));
    }
}

#[test]
fn the_least_important_and_latest_gives_way() {
    let config = EngineConfig { max_running: 3, ..config(PriorityConfig::default()) };
    let script = vec![
        submit(0, ranked(0, Some(5), 100)),
        submit(0, ranked(1, Some(1), 100)),
        submit(0, ranked(2, Some(1), 100)),
        submit(300_000_000, ranked(3, Some(20), 10)),
    ];
    let events = run(config, &script);
    assert_eq!([0, 1, 2, 3].map(|id| end(&events, id).retractions), [0, 0, 1, 0]);
}

#[test]
fn lack_of_kv_preempts_nobody() {
    let config = EngineConfig { max_running: 8, kv_tokens: 400, ..config(PriorityConfig::default()) };
    let script = vec![submit(0, ranked(0, Some(0), 150)), submit(300_000_000, ranked(1, Some(1000), 150))];
    let events = run(config, &script);
    assert_eq!(end(&events, 0).retractions, 0);
    assert!(first_ns(&events, 1) > end(&events, 0).at_ns);
}

#[test]
fn a_full_queue_lets_the_least_important_go() {
    let config = EngineConfig { max_queued: Some(2), ..config(PriorityConfig::default()) };
    let mut engine = Engine::new(config).unwrap();
    let mut events = Vec::new();
    engine.submit(0, ranked(0, Some(0), 100), &mut events).unwrap();
    engine.advance(0, &mut events);
    for (id, priority) in [(1, Some(3)), (2, Some(3))] {
        engine.submit(1, ranked(id, priority, 5), &mut events).unwrap();
    }
    let refused = |engine: &mut Engine, events: &mut Vec<Event>, id, priority| {
        engine.submit(2, ranked(id, priority, 5), events).unwrap_err()
    };
    assert_eq!(refused(&mut engine, &mut events, 3, None), Refusal::QueueFull);
    assert_eq!(refused(&mut engine, &mut events, 3, Some(3)), Refusal::QueueFull, "equals do not displace");
    assert!(events.is_empty(), "who is refused leaves no trace");
    engine.submit(2, ranked(3, Some(4), 5), &mut events).unwrap();
    let gone = end(&events, 2);
    let message = "The request is aborted by a higher priority request.";
    assert_eq!((gone.at_ns, gone.reason), (2, FinishReason::Error { status: 503, message }));
    assert_eq!(engine.loads().waiting, 2);
    engine.check().unwrap();
}

#[test]
fn who_gives_way_finds_no_room_in_a_full_queue() {
    let config = EngineConfig { max_queued: Some(1), ..config(PriorityConfig::default()) };
    let mut engine = Engine::new(config).unwrap();
    let mut events = Vec::new();
    // 1 takes the place of 0, which waits; then 2 comes and takes its place in the queue.
    for (at_ns, id, priority) in [(0, 0, 0), (300_000_000, 1, 50), (400_000_000, 2, 49)] {
        engine.submit(at_ns, ranked(id, Some(priority), 100), &mut events).unwrap();
    }
    while let Some(due) = engine.next_deadline() {
        engine.advance(due, &mut events);
    }
    let gone = end(&events, 0);
    let message = "The request is aborted by a higher priority request.";
    assert_eq!(gone.reason, FinishReason::Error { status: 503, message }, "by the last one");
    assert_eq!((end(&events, 1).outputs, end(&events, 2).outputs), (100, 100));
    assert!(gone.outputs > 1 && gone.retractions == 1);
}

#[test]
fn where_priorities_count_for_nothing_they_may_be_refused() {
    let queue = QueueConfig { refuses_priorities: true, ..QueueConfig::default() };
    let mut engine = Engine::new(EngineConfig { queue, ..a100() }).unwrap();
    let mut events = Vec::new();
    let refusal = engine.submit(0, ranked(0, Some(0), 5), &mut events).unwrap_err();
    assert_eq!((refusal.status(), refusal.is_scheduler_abort()), (503, true));
    engine.submit(0, ranked(1, None, 5), &mut events).unwrap();
}

#[test]
fn who_waits_too_long_is_told_so_at_the_next_pass() {
    let events = run(
        timeouts(Some(50_000_000), None),
        &vec![submit(0, ranked(0, None, 100)), submit(1, ranked(1, None, 5))],
    );
    let gone = end(&events, 1);
    let message = "Request waiting timeout reached.";
    assert_eq!((gone.reason, gone.outputs), (FinishReason::Error { status: 503, message }, 0));
    assert!((50_000_000..65_000_000).contains(&gone.at_ns), "{}", gone.at_ns);
    assert_eq!(end(&events, 0).outputs, 100);
}

#[test]
fn who_runs_too_long_ends_with_its_next_token() {
    let events = run(timeouts(None, Some(200_000_000)), &vec![submit(0, ranked(0, None, 1000))]);
    let gone = end(&events, 0);
    let message = "Request running timeout reached.";
    assert_eq!(gone.reason, FinishReason::Error { status: 503, message });
    assert!((200_000_000..225_000_000).contains(&gone.at_ns), "{}", gone.at_ns);
    assert!(gone.outputs > 10);
    // So does a prompt that takes too long.
    let events = run(timeouts(None, Some(200_000_000)), &vec![submit(0, request(0, &[(1, 60_000)], 5))]);
    assert_eq!((end(&events, 0).reason, end(&events, 0).outputs), (gone.reason, 0));
}

#[test]
fn whatever_the_order_of_the_queue_the_latest_of_the_least_important_gives_way() {
    let mut tried = Vec::new();
    for (schedule, overlap) in
        Schedule::ALL.into_iter().flat_map(|schedule| [(schedule, false), (schedule, true)])
    {
        let config = EngineConfig {
            max_queued: Some(5),
            schedule,
            overlap,
            ..config(PriorityConfig { preempts_above: Some(1_000), ..PriorityConfig::default() })
        };
        let Ok(mut engine) = Engine::new(config) else { continue };
        tried.push(schedule.label());
        let mut events = Vec::new();
        engine.submit(0, ranked(0, Some(0), 500), &mut events).unwrap();
        engine.advance(0, &mut events);
        // The longest reply is in the middle and the shortest comes first, so that no order is that of arrival.
        for (id, priority, max_new) in [(1, 3, 5), (2, 3, 90), (3, 3, 30), (4, 7, 60), (5, 3, 50)] {
            engine.submit(1, ranked(id, Some(priority), max_new), &mut events).unwrap();
        }
        // Passes that put the queue in order.
        while engine.loads().running == 0 || engine.totals().generated_tokens < 5 {
            let due = engine.next_deadline().unwrap();
            engine.advance(due, &mut events);
        }
        let now_ns = events.iter().map(Event::at_ns).max().unwrap();
        let mut gone = Vec::new();
        for id in 10..14 {
            let mut news = Vec::new();
            engine.submit(now_ns + 1, ranked(id, Some(9), 5), &mut news).unwrap();
            gone.extend(news.iter().filter_map(|event| match event {
                Event::Finish { id, reason: FinishReason::Error { status: 503, .. }, .. } => Some(id.0),
                _ => None,
            }));
        }
        assert_eq!(gone, [5, 3, 2, 1], "{schedule:?}, overlap {overlap}");
    }
    assert_eq!(tried, ["fcfs", "fcfs", "lof", "lof"], "the orders that priorities go with");
}
