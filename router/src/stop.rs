//! When the router stops: signals, and the end of standard input.

use std::io::Read as _;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Shutdown;

/// How far stopping has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Not at all.
    Run,
    /// It has been announced: `/readiness` tells it, and everything is still served, so that whoever balances load over
    /// routers can take this one out before it refuses anybody.
    Leave,
    /// Nothing new; what runs may finish.
    Drain,
    /// At once.
    Now,
}

/// Waits until stopping has come as far as `stage`.
pub(crate) async fn reached(stop: &mut watch::Receiver<Stop>, stage: Stop) {
    // The channel closes only when the process ends.
    let _ = stop.wait_for(|now| *now >= stage).await;
}

/// Waits until stopping has come further than `stage`; how far.
pub(crate) async fn further(stop: &mut watch::Receiver<Stop>, stage: Stop) -> Stop {
    match stop.wait_for(|now| *now > stage).await {
        Ok(now) => *now,
        Err(_) => Stop::Now,
    }
}

/// The first SIGTERM or SIGINT begins the end, the second is the end. Needs a runtime around it.
pub(crate) fn with_signals(mut signals: Signals, stop: watch::Sender<Stop>, plan: Shutdown) {
    tokio::spawn(async move {
        signals.next().await;
        let told = Instant::now();
        tracing::info!(
            pause = ?plan.pause.min(plan.grace),
            grace = ?plan.grace,
            "signal received: no longer ready; new requests are served for the pause, running ones may finish within the \
             grace period; a second signal ends at once"
        );
        advance(&stop, Stop::Leave);
        tokio::select! {
            () = signals.next() => tracing::info!("a second signal: ending at once"),
            () = wind_down(&stop, told, plan) => tracing::warn!("the grace period is over; connections are cut"),
        }
        advance(&stop, Stop::Now);
    });
}

/// Blocks until SIGTERM or SIGINT comes. Not for a thread that has a runtime around it.
///
/// # Errors
/// The operating system refuses a signal handler.
pub(crate) fn wait_for_signal() -> std::io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        Signals::new()?.next().await;
        Ok(())
    })
}

/// SIGTERM and SIGINT, which do nothing by themselves any more.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Needs a runtime around it.
    ///
    /// # Errors
    /// The operating system refuses signal handlers.
    pub(crate) fn new() -> std::io::Result<Self> {
        // Nobody heeds it yet, but it must not end us.
        drop(signal(SignalKind::hangup())?);
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Takes both steps in their time.
async fn wind_down(stop: &watch::Sender<Stop>, told: Instant, plan: Shutdown) {
    sleep(plan.pause.min(plan.grace)).await;
    advance(stop, Stop::Drain);
    sleep_until(told + plan.grace).await;
}

/// Stopping never goes back.
fn advance(stop: &watch::Sender<Stop>, stage: Stop) {
    stop.send_if_modified(|now| {
        let further = stage > *now;
        *now = stage.max(*now);
        further
    });
}

/// Ends at once when standard input does: whoever started us has gone.
///
/// # Errors
/// The operating system refuses a thread.
pub(crate) fn with_stdin(stop: watch::Sender<Stop>) -> std::io::Result<()> {
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut buffer = [0; 256];
        let mut stdin = std::io::stdin().lock();
        while matches!(stdin.read(&mut buffer), Ok(read) if read > 0) {}
        advance(&stop, Stop::Now);
    })?;
    Ok(())
}
