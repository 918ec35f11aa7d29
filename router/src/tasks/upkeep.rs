//! The core's deadlines, and the index's memory.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::nanoseconds;
use crate::shared::Shared;

/// How often the core is asked for its next deadline at the latest: a booking may have brought it forward.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// Nodes that one turn of the sweep may visit while it holds the index's lock: well under a millisecond.
const SWEEP_NODES: usize = 512;

/// How often the background's idle connections are looked through.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// Ticks the core and sweeps the index, for ever.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut pruned = tokio::time::Instant::now();
    loop {
        let now_ns = shared.clock.now_ns();
        let next_ns = {
            let router = &mut shared.books.lock().router;
            if router.next_deadline().is_some_and(|deadline| deadline <= now_ns) {
                router.tick(now_ns);
            }
            router.next_deadline().unwrap_or(u64::MAX)
        };
        sweep(&shared).await;
        if pruned.elapsed() >= PRUNE_INTERVAL {
            shared.background.pool.prune(&shared.roster());
            pruned = tokio::time::Instant::now();
        }
        let wake_ns = next_ns.min(now_ns.saturating_add(nanoseconds(LONGEST_SLEEP)));
        tokio::time::sleep_until(shared.clock.instant(wake_ns)).await;
    }
}

/// Gives back the memory of forgotten workers, in turns between which requests run.
async fn sweep(shared: &Shared) {
    let end = tokio::time::Instant::now() + LONGEST_SLEEP;
    while shared.belief.sweep(SWEEP_NODES) && tokio::time::Instant::now() < end {
        tokio::task::yield_now().await;
    }
}
