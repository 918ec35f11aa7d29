//! What is shown of the workers that there are.

use super::*;

/// The families that there are with prefill workers, or with a limit on their decode streams, only.
const OF_PAIRS: [&str; 2] = ["smg_router_decode_dispatch_waiting", "smg_worker_decode_streams"];

#[test]
fn decode_streams_are_shown_of_prefill_workers_and_those_who_wait_where_there_is_a_limit() {
    let counters = counters();
    let shown = |live| -> Vec<String> {
        let text = counters.metrics.render(live, Format::Plain);
        let of_pairs = |line: &&str| OF_PAIRS.iter().any(|name| line.starts_with(name));
        text.lines().filter(of_pairs).map(str::to_owned).collect()
    };
    assert!(shown(live(&counters.workers, 0..2)).is_empty());
    let mut pairs = live(&counters.workers, 0..2);
    pairs.workers[1].decode_streams = Some(4);
    pairs.workers[1].role = "prefill";
    assert_eq!(shown(pairs), [r#"smg_worker_decode_streams{worker="http://w1",worker_type="prefill"} 4"#]);
    let limited = Live { dispatch_waiting: Some(0), ..live(&counters.workers, 0..2) };
    assert_eq!(shown(limited), ["smg_router_decode_dispatch_waiting 0"]);
}

#[test]
fn a_worker_that_has_left_leaves_no_series() {
    let counters = counters();
    happen(&counters, None);
    assert!(counters.render(0..2).contains("http://w0"));
    let text = counters.render(1..2);
    assert!(!text.contains("http://w0") && text.contains("http://w1"));
}

#[test]
fn what_is_told_of_a_worker_is_told_with_its_role() {
    let counters = counters();
    let mut pairs = live(&counters.workers, 0..2);
    pairs.workers.iter_mut().zip(["prefill", "decode"]).for_each(|(worker, role)| {
        worker.role = role;
        worker.routing_keys = Some(1);
    });
    pairs.engines.iter_mut().zip(["prefill", "decode"]).for_each(|(engine, role)| engine.role = role);
    pairs.workers[0].decode_streams = Some(1);
    pairs.remembered_keys = Some(2);
    let text = counters.metrics.render(pairs, Format::Plain);
    let of = |worker: &str| {
        text.lines().filter(move |line| line.contains(&format!("worker=\"{worker}\""))).count()
    };
    assert!(of("http://w0") > 12, "{text}");
    for line in text.lines() {
        for (worker, role) in [("http://w0", "prefill"), ("http://w1", "decode")] {
            let (is_its, role) = (format!("worker=\"{worker}\""), format!("worker_type=\"{role}\""));
            assert!(!line.contains(&is_its) || line.contains(&role), "{line}");
        }
    }
}

#[test]
fn prompts_are_waited_for_at_workers_that_compute_them() {
    let counters = counters();
    let mut pairs = live(&counters.workers, 0..2);
    (pairs.workers[0].queued_prefill_tokens, pairs.workers[1].queued_prefill_tokens) = (Some(7), None);
    let text = counters.metrics.render(pairs, Format::Plain);
    let shown: Vec<&str> =
        text.lines().filter(|line| line.starts_with("smg_worker_queued_prefill_tokens")).collect();
    assert_eq!(shown, [r#"smg_worker_queued_prefill_tokens{worker="http://w0",worker_type="regular"} 7"#]);
}
