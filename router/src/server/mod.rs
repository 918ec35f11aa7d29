//! Listeners, threads, and the end of both.
//!
//! Each thread runs its own single-threaded runtime with its own upstream connections and accepts from the shared
//! listener: a request never changes threads, and nothing is stolen, woken or locked across them but the core. The
//! listeners for operators and for Prometheus are the first thread's, and stay until the last client has gone.

mod accept;
mod connection;
mod event_loop;
mod listen;
mod seats;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::accept::Door;
use self::event_loop::EventLoop;
use self::listen::Listeners;
pub(crate) use self::listen::Surface;
use self::seats::Seats;
use crate::config::Config;
use crate::record::{Recording, Unwritable, header};
use crate::reload;
use crate::shared::Shared;
use crate::signals::Ending;
use crate::stop::{self, Stop};
use crate::tasks;
use crate::tls::{BadFile, ClientTls, Credentials};
use crate::upstream::Pool;

/// How long the first probes of the workers are waited for at the start.
const FIRST_PROBES: Duration = Duration::from_secs(1);

/// Connections at a time of operators, and as many of Prometheus.
const SIDE_CONNECTIONS: usize = 1024;

/// Why the router does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// An address is taken or not ours.
    #[error("cannot listen on {address}: {source}; {}", listen::remedy(.source, *.surface))]
    Listen { surface: Surface, address: SocketAddr, source: std::io::Error },
    /// The policy refuses.
    #[error("{0}")]
    Policy(#[from] router_core::PolicyError),
    /// A file of certificates or keys is of no use.
    #[error("{0}")]
    File(#[from] BadFile),
    /// Nothing can be recorded there.
    #[error("{0}")]
    Record(#[from] Unwritable),
    /// The operating system refuses threads or timers.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// What one thread answers requests with.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    /// Which thread that is, from 0.
    pub(crate) thread: usize,
    pub(crate) pool: Arc<Pool>,
    /// Whether operators have a listener of their own.
    pub(crate) admin_apart: bool,
}

impl Context {
    fn new(shared: &Arc<Shared>, thread: usize, config: &Config, tls: &ClientTls) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            thread,
            pool: Arc::new(Pool::new(
                thread,
                config.settings.timeouts.connect,
                tls.clone(),
                shared.mark.clone(),
            )),
            admin_apart: config.admin_listen.is_some(),
        })
    }
}

/// What a start may want for: files of certificates and keys that are of use, and its addresses. Clients that come wait.
pub(crate) struct Opened {
    runtime: EventLoop,
    upstream_tls: ClientTls,
    tls: Option<Arc<Credentials>>,
    listeners: Listeners,
    recording: Option<Recording>,
}

/// Takes what there may be no other of, before anything is begun.
///
/// # Errors
/// [`ServeError`]
pub(crate) fn open(config: &Config) -> Result<Opened, ServeError> {
    let runtime = EventLoop::new()?;
    let guard = runtime.enter();
    let upstream_tls = ClientTls::new(&config.upstream_tls)?;
    let tls = config.server_tls.as_ref().map(Credentials::load).transpose()?;
    let listeners = Listeners::open(config)?;
    let start = |recorder| Recording::start(recorder, header(config));
    let recording = config.recorder.as_ref().map(start).transpose()?;
    drop(guard);
    Ok(Opened { runtime, upstream_tls, tls, listeners, recording })
}

/// Runs until a signal ends it.
///
/// # Errors
/// [`ServeError`] when it cannot begin.
pub(crate) fn run(config: &Config, opened: Opened, ending: Ending) -> Result<(), ServeError> {
    // What is recorded is written to its end when everything else is over.
    let Opened { recording, runtime, upstream_tls, tls, listeners } = opened;
    let tape = recording.as_ref().map(|recording| Arc::clone(&recording.tape));
    let _guard = runtime.enter();
    let shared = Shared::new(config, upstream_tls.clone(), ending.stop.clone(), tape)?;
    if let Some(tls) = &tls {
        Arc::clone(tls).keep()?;
    }
    reload::start(&shared, config.clone(), ending.hangup);
    // The first requests, which wait meanwhile, are to find the whole fleet and not the first that answers.
    let mut stop = shared.stop.subscribe();
    runtime.block_on(async {
        tokio::select! {
            () = shared.newcomers.all_known(FIRST_PROBES) => {}
            () = stop::reached(&mut stop, Stop::Leave) => {}
        }
    });
    if shared.has_come_to(Stop::Leave) {
        return Ok(());
    }
    listeners.announce(tls.is_some())?;
    let seats = Seats::new(config.connections.max_connections, Some(Arc::clone(&shared.metrics)));
    let door = Door::new(Surface::Traffic, &config.connections, seats, tls.clone());
    let threads: Vec<_> = (1..config.threads)
        .map(|number| {
            let context = Context::new(&shared, number, config, &upstream_tls);
            spawn(number, listeners.traffic.try_clone()?, Arc::clone(&door), context)
        })
        .collect::<Result<_, std::io::Error>>()?;
    let context = Context::new(&shared, 0, config, &upstream_tls);
    if config.exit_with_stdin {
        stop::with_stdin(shared.stop.clone())?;
    }
    runtime.block_on(async {
        tasks::start(&shared);
        let Listeners { traffic, admin, metrics } = listeners;
        let (traffic_over, stop) = watch::channel(Stop::Run);
        let admin = admin.map(|listener| side(Surface::Admin, listener, tls, &context, config, &stop));
        let metrics = side(Surface::Metrics, metrics, None, &context, config, &stop);
        accept::serve(traffic, door, context, shared.stop.subscribe()).await?;
        // The signals stay watched meanwhile, so that a second one still ends the wait. A thread that panicked has
        // said so itself.
        let _ =
            tokio::task::spawn_blocking(|| threads.into_iter().for_each(|thread| drop(thread.join()))).await;
        shared.cut.tell();
        traffic_over.send_replace(Stop::Now);
        for listener in admin.into_iter().chain([metrics]) {
            // Whatever became of it, it is over.
            let _ = listener.await;
        }
        Ok(())
    })
}

/// Serves clients on a thread of its own.
fn spawn(
    number: usize,
    listener: TcpListener,
    door: Arc<Door>,
    context: Arc<Context>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = EventLoop::new()?;
    let stop = context.shared.stop.subscribe();
    std::thread::Builder::new().name(format!("router-{number}")).spawn(move || {
        let served = runtime.block_on(accept::serve(listener, door, context, stop));
        if let Err(error) = served {
            tracing::error!("a thread cannot accept connections: {error}");
        }
    })
}

/// Serves those who look after the router, on this thread.
fn side(
    surface: Surface,
    listener: TcpListener,
    tls: Option<Arc<Credentials>>,
    context: &Arc<Context>,
    config: &Config,
    stop: &watch::Receiver<Stop>,
) -> JoinHandle<()> {
    let door = Door::new(surface, &config.connections, Seats::new(SIDE_CONNECTIONS, None), tls);
    let served = accept::serve(listener, door, Arc::clone(context), stop.clone());
    tokio::spawn(async move {
        if let Err(error) = served.await {
            tracing::error!("the {surface:?} listener cannot accept connections: {error}");
        }
    })
}
