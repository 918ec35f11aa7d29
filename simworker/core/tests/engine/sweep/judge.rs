//! What must hold.

use std::collections::{BTreeMap, BTreeSet};

use simworker_core::{DpConfig, EngineConfig, EngineTotals, Event, FinishReason, Schedule, Submit};

use super::Seen;
use super::draw::{Act, Script};
use super::drive::Played;
use crate::support::tokens;

/// The accepted requests, with the times of their arrival.
fn accepted<'a>(script: &'a Script, played: &Played) -> BTreeMap<u64, (u64, &'a Submit)> {
    let submits = script.iter().filter_map(|(at_ns, act)| match act {
        Act::Submit(submit) => Some((submit.id.0, (*at_ns, submit))),
        _ => None,
    });
    submits.filter(|(id, _)| !played.refused.contains(id)).collect()
}

/// Every accepted request ends once, with as many tokens as its reason says; time does not go back.
pub(super) fn ends(script: &Script, played: &Played) {
    let submits = accepted(script, played);
    let mut ended = BTreeSet::new();
    let mut now_ns = 0;
    for event in &played.events {
        assert!(event.at_ns() >= now_ns, "time goes back at {event:?}");
        now_ns = event.at_ns();
        let Event::Finish { id, reason, prompt_tokens, cached_tokens, output_tokens, .. } = event else {
            continue;
        };
        let (arrived_ns, submit) = submits[&id.0];
        assert!(now_ns >= arrived_ns, "{event:?}");
        let prompt = submit.prompt.len() as u32;
        assert_eq!(*prompt_tokens, prompt);
        assert!(*cached_tokens < prompt, "at least one token is computed: {event:?}");
        assert!(submit.match_limit.is_none_or(|limit| *cached_tokens <= limit), "{event:?}");
        assert_eq!(expected(submit, played, *reason, *output_tokens), *output_tokens, "{event:?}");
        assert!(ended.insert(id.0), "{event:?} is its second end");
    }
    assert_eq!(ended.len(), submits.len(), "every request ends");
}

/// How long the reply must be.
fn expected(submit: &Submit, played: &Played, reason: FinishReason, outputs: u32) -> u32 {
    if submit.is_prefill_only {
        return 0;
    }
    let most = played.limits.max_output(submit.prompt.len() as u64) as u32;
    let length = submit.max_new_tokens.min(most);
    let stop = submit.ends_after.map(|after| after.max(1)).filter(|after| *after < length);
    match reason {
        FinishReason::Length => {
            assert_eq!(stop, None);
            length
        }
        FinishReason::Stop => stop.expect("it ends by itself"),
        FinishReason::Abort { .. } | FinishReason::Error { .. } => outputs.min(stop.unwrap_or(length)),
    }
}

/// What events tell and what is counted is the same.
pub(super) fn books(played: &Played) {
    let sum = |of: fn(&EngineTotals) -> u64| played.totals.iter().map(of).sum::<u64>();
    let (mut ended, mut outputs) = (0, 0);
    for event in &played.events {
        if let Event::Finish { output_tokens, .. } = event {
            ended += 1;
            outputs += u64::from(*output_tokens);
        }
    }
    assert_eq!(tokens(&played.events), outputs);
    assert_eq!(sum(|totals| totals.generated_tokens), outputs);
    assert_eq!(sum(|totals| totals.finished_requests), ended);
}

/// First come, first served, where nothing is more important and nobody comes back.
pub(super) fn order_of_arrival(config: &EngineConfig, dp: DpConfig, script: &Script, played: &Played) {
    if config.schedule != Schedule::Fcfs || config.queue.priority.is_some() || dp.size > 1 {
        return;
    }
    let submits = accepted(script, played);
    let mut began = Vec::new();
    for event in &played.events {
        if let Event::Finish { id, queue_ns, output_tokens: 1.., .. } = event {
            let (arrived_ns, _) = submits[&id.0];
            began.push((arrived_ns, id.0, arrived_ns + queue_ns));
        }
    }
    began.sort_unstable();
    for pair in began.windows(2) {
        assert!(pair[0].2 <= pair[1].2, "{} was scheduled before {}", pair[1].1, pair[0].1);
    }
}

pub(super) fn count(config: &EngineConfig, script: &Script, played: &Played, seen: &mut Seen) {
    for totals in &played.totals {
        seen.totals.retractions += totals.retractions;
        seen.totals.evicted_tokens += totals.evicted_tokens;
        seen.totals.cached_tokens += totals.cached_tokens;
        seen.totals.aborted_requests += totals.aborted_requests;
        if config.kv_events.is_some() {
            let host = &mut seen.totals.host;
            host.loaded_back += totals.host.loaded_back;
            host.evicted += totals.host.evicted;
            host.dropped += totals.host.dropped;
        }
    }
    let slows = script.iter().any(|(_, act)| matches!(act, Act::Slow(factor) if *factor > 1.0));
    seen.slowed += u64::from(slows);
    let preempts = config.queue.priority.is_some_and(|priority| priority.preempts_above.is_some());
    for event in &played.events {
        let Event::Finish { reason, retractions, .. } = event else { continue };
        seen.preempted += u64::from(preempts && config.max_running < 10 && *retractions > 0);
        match reason {
            FinishReason::Stop => seen.stopped += 1,
            FinishReason::Error { message, .. } if message.contains("timeout") => seen.timed_out += 1,
            FinishReason::Error { message, .. } if message.contains("priority") => seen.displaced += 1,
            _ => {}
        }
    }
    seen.flushed += played.flushed;
    seen.refused += played.refused.len() as u64;
}

pub(super) fn is_hard_enough(seen: &Seen) {
    let totals = seen.totals;
    assert!(totals.retractions > 50 && totals.evicted_tokens > 100_000, "{seen:?}");
    assert!(totals.aborted_requests > 100 && totals.cached_tokens > 10_000, "{seen:?}");
    assert!(seen.stopped > 500 && seen.displaced > 10 && seen.timed_out > 50, "{seen:?}");
    let host = totals.host;
    assert!(host.loaded_back > 10_000 && host.evicted > 10_000 && host.dropped > 1_000, "{seen:?}");
    assert!(seen.slowed > 50, "{seen:?}");
    assert!(seen.preempted > 20 && seen.flushed > 50 && seen.refused > 50, "{seen:?}");
}
