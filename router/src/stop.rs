//! When the router stops: signals, and the end of standard input.

use std::io::Read as _;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How far stopping has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// Not at all.
    Run,
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

/// The first SIGTERM or SIGINT drains, the second ends. Needs a runtime around it.
///
/// # Errors
/// The operating system refuses signal handlers.
pub(crate) fn with_signals(stop: watch::Sender<Stop>) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for next in [Stop::Drain, Stop::Now] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            match next {
                Stop::Now => tracing::info!("a second signal: ending at once"),
                _ => tracing::info!(
                    "signal received: what is under way may finish; a second signal ends at once"
                ),
            }
            stop.send_replace(next);
        }
        // Keeps the channel open: a closed one would look like a change to those who wait.
        std::future::pending::<()>().await;
    });
    Ok(())
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
        stop.send_replace(Stop::Now);
    })?;
    Ok(())
}
