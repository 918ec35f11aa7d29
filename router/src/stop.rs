//! How far the end of the process has come, and the end of standard input as a reason for it.

use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

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

/// Requests that were cut off at the end.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    unanswered: AtomicU64,
    begun: AtomicU64,
}

impl Cut {
    /// One more, whether it was still without an answer; nothing if there was no request.
    pub(crate) fn note(&self, unanswered: Option<bool>) {
        match unanswered {
            Some(true) => self.unanswered.fetch_add(1, Ordering::Relaxed),
            Some(false) => self.begun.fetch_add(1, Ordering::Relaxed),
            None => 0,
        };
    }

    /// Tells the log how many there were.
    pub(crate) fn tell(&self) {
        let [unanswered, begun] = [&self.unanswered, &self.begun].map(|count| count.load(Ordering::Relaxed));
        if unanswered + begun > 0 {
            tracing::warn!(
                "{} requests were cut off: {unanswered} without an answer, which were told so with 503, and {begun} \
                 within their answers",
                unanswered + begun
            );
        }
    }
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

/// Stopping never goes back.
pub(crate) fn advance(stop: &watch::Sender<Stop>, stage: Stop) {
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
