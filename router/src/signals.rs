//! Signals, from the first moment of the process to its last, on a thread of their own: whatever holds up the others, the
//! process ends when it is told to.
//!
//! Before there is anything to wind down, SIGTERM or SIGINT is the end. Later the first one begins it, in the order of
//! [`Stop`], and the second is the end. SIGHUP kills nobody: it is kept until somebody asks for it.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::config::Shutdown;
use crate::limits::outlive_largest_file;
use crate::log;
use crate::stop::{self, Stop, advance};

/// How long the router may take for its end once that has come, in which it says good-bye to who is connected
/// (`client::farewell`). What hangs then, in a file system or wherever, is left.
const LAST_MOMENT: Duration = Duration::from_secs(3);

/// Signals are watched; the first one is the end.
#[derive(Debug)]
pub(crate) struct Signals(Ending);

/// Signals are watched, and there is a plan for the end. Dropped when that has come; then they are watched no longer.
#[derive(Debug)]
pub(crate) struct Ending {
    /// How far the end has come.
    pub(crate) stop: watch::Sender<Stop>,
    /// Each SIGHUP since the start.
    pub(crate) hangup: Signal,
    plan: watch::Sender<Option<Shutdown>>,
}

/// SIGTERM and SIGINT.
struct Told {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Watches from now on.
    ///
    /// # Errors
    /// The operating system refuses a handler or a thread.
    pub(crate) fn watch() -> std::io::Result<Self> {
        outlive_largest_file()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (told, hangup) = {
            let _guard = runtime.enter();
            (Told::new()?, signal(SignalKind::hangup())?)
        };
        let (stop, plan) = (watch::Sender::new(Stop::Run), watch::Sender::new(None));
        let (stages, planned) = (stop.clone(), plan.subscribe());
        let watching = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = over(planned.clone()) => {}
                    () = follow(told, &stages, &planned) => {}
                }
            });
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(watching)?;
        Ok(Self(Ending { stop, hangup, plan }))
    }

    /// From now on there is something to be wound down, and this is how.
    pub(crate) fn with_plan(self, plan: Shutdown) -> Ending {
        self.0.plan.send_replace(Some(plan));
        self.0
    }
}

/// Blocks until SIGTERM or SIGINT comes. Not for a thread that has a runtime around it.
///
/// # Errors
/// The operating system refuses a signal handler.
pub(crate) fn wait_for_one() -> std::io::Result<()> {
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        Told::new()?.next().await;
        Ok(())
    })
}

/// Waits until nobody has anything to wind down any more.
async fn over(mut plan: watch::Receiver<Option<Shutdown>>) {
    while plan.changed().await.is_ok() {}
}

/// Ends the process, by a signal or because it was told to end otherwise.
async fn follow(mut told: Told, stop: &watch::Sender<Stop>, plan: &watch::Receiver<Option<Shutdown>>) {
    let mut stages = stop.subscribe();
    tokio::select! {
        () = obey(&mut told, stop, plan) => {}
        () = stop::reached(&mut stages, Stop::Now) => {}
    }
    sleep(LAST_MOMENT).await;
    tracing::warn!("something hangs; it is not waited for");
    exit();
}

/// Waits for the signals, and takes the steps of the end in their time.
async fn obey(told: &mut Told, stop: &watch::Sender<Stop>, plan: &watch::Receiver<Option<Shutdown>>) {
    told.next().await;
    let first = Instant::now();
    let Some(plan) = plan.borrow().clone() else {
        tracing::info!("signal received before there was anything to serve: ending at once");
        exit();
    };
    tracing::info!(
        pause = ?plan.pause.min(plan.grace),
        grace = ?plan.grace,
        "signal received: no longer ready; new requests are served for the pause, running ones may finish within the \
         grace period; a second signal ends at once"
    );
    advance(stop, Stop::Leave);
    tokio::select! {
        () = told.next() => tracing::info!("a second signal: ending at once"),
        () = wind_down(stop, first, plan) => tracing::warn!("the grace period is over; connections are cut"),
    }
    advance(stop, Stop::Now);
}

/// Takes both steps in their time.
async fn wind_down(stop: &watch::Sender<Stop>, first: Instant, plan: Shutdown) {
    sleep(plan.pause.min(plan.grace)).await;
    advance(stop, Stop::Drain);
    sleep_until(first + plan.grace).await;
}

/// Told to end, it has ended: that is a success.
fn exit() -> ! {
    log::flush();
    std::process::exit(0)
}

impl Told {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
