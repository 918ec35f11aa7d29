//! Listeners, threads, and the end of both.
//!
//! Each thread runs its own single-threaded runtime with its own upstream connections and accepts from the shared
//! listener: a request never changes threads, and nothing is stolen, woken or locked across them but the core.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::{ClientIo, Ending, Turn, left};
use crate::config::Config;
use crate::reload;
use crate::service;
use crate::shared::Shared;
use crate::stop::{self, Stop};
use crate::tasks;
use crate::tls::{BadFile, ClientTls};
use crate::upstream::Pool;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// How often idle upstream connections are looked through.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

/// How long the first probes of the workers are waited for at the start.
const FIRST_PROBES: Duration = Duration::from_secs(1);

/// Pause after a failed accept, which usually means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a client may take to send a request's head once it has begun, and an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a request whose head has begun may take to come in full, once the router stops.
const LAST_HEAD: Duration = Duration::from_secs(1);

/// Why the router does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// An address is taken or not ours.
    #[error("cannot listen on {address}: {source}; {}", remedy(.source, *.surface))]
    Listen { surface: Surface, address: SocketAddr, source: std::io::Error },
    /// The policy refuses.
    #[error("{0}")]
    Policy(#[from] router_core::PolicyError),
    /// A file of certificates or keys is of no use.
    #[error("{0}")]
    File(#[from] BadFile),
    /// The operating system refuses threads or timers.
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
}

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Clients and operators.
    Traffic,
    /// Operators, where they have a listener of their own.
    Admin,
    /// Prometheus.
    Metrics,
}

/// What the operator can do about an address that cannot be listened on.
fn remedy(error: &std::io::Error, surface: Surface) -> String {
    let (host, port) = match surface {
        Surface::Traffic => ("--host", "--port"),
        Surface::Admin => ("--admin-host", "--admin-port"),
        Surface::Metrics => ("--prometheus-host", "--prometheus-port"),
    };
    match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => format!("give {host} an address of this machine"),
        _ => format!("give another {port}, or 0 to take a free one"),
    }
}

/// What one thread answers requests with.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pool: Arc<Pool>,
    /// Whether operators have a listener of their own.
    pub(crate) admin_apart: bool,
}

impl Context {
    fn new(shared: &Arc<Shared>, thread: usize, config: &Config, tls: &ClientTls) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            pool: Arc::new(Pool::new(thread, config.settings.timeouts.connect, tls.clone())),
            admin_apart: config.admin_listen.is_some(),
        })
    }
}

/// Runs until a signal ends it.
///
/// # Errors
/// [`ServeError`] when it cannot begin.
pub(crate) fn run(config: &Config) -> Result<(), ServeError> {
    let runtime = runtime()?;
    let _guard = runtime.enter();
    let tls = ClientTls::new(&config.upstream_tls)?;
    let shared = Shared::new(config, tls.clone())?;
    let traffic = listen(Surface::Traffic, config.listen)?;
    let metrics = listen(Surface::Metrics, config.metrics_listen)?;
    let (stop_sender, stop) = watch::channel(Stop::Run);
    // Before anybody is told that we are here, and may tell us to go.
    stop::with_signals(stop_sender.clone())?;
    // The first requests, which wait meanwhile, are to find the whole fleet and not the first that answers.
    runtime.block_on(shared.newcomers.all_known(FIRST_PROBES));
    announce(&traffic, &metrics)?;
    let threads: Vec<_> = (1..config.threads)
        .map(|number| {
            let context = Context::new(&shared, number, config, &tls);
            spawn(number, traffic.try_clone()?, context, stop.clone(), config)
        })
        .collect::<Result<_, std::io::Error>>()?;
    let context = Context::new(&shared, 0, config, &tls);
    if config.exit_with_stdin {
        stop::with_stdin(stop_sender)?;
    }
    runtime.block_on(async {
        tasks::start(&shared);
        reload::start(&shared, config.clone())?;
        let metrics = serve(metrics, Arc::clone(&context), Surface::Metrics, stop.clone(), Duration::ZERO);
        let metrics = tokio::spawn(metrics);
        serve(traffic, context, Surface::Traffic, stop, config.shutdown.grace).await?;
        metrics.abort();
        // The signals stay watched meanwhile, so that a second one still ends the wait. A thread that panicked has
        // said so itself.
        let _ =
            tokio::task::spawn_blocking(|| threads.into_iter().for_each(|thread| drop(thread.join()))).await;
        Ok(())
    })
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Listens; port 0 means any free one. Needs a runtime around it.
fn listen(surface: Surface, address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    bind().map_err(|source| ServeError::Listen { surface, address, source })
}

/// Tells whoever started us where we listen: one line of JSON on standard output.
fn announce(traffic: &TcpListener, metrics: &TcpListener) -> std::io::Result<()> {
    use std::io::Write as _;
    let url = |listener: &TcpListener| listener.local_addr().map(|at| format!("http://{}", reachable(at)));
    let line = serde_json::json!({"listening": url(traffic)?, "metrics": url(metrics)?});
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// The address under which a local process reaches a listener on all interfaces.
fn reachable(mut at: SocketAddr) -> SocketAddr {
    if at.ip().is_unspecified() {
        at.set_ip(match at {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    at
}

fn spawn(
    number: usize,
    listener: TcpListener,
    context: Arc<Context>,
    stop: watch::Receiver<Stop>,
    config: &Config,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = runtime()?;
    let grace = config.shutdown.grace;
    std::thread::Builder::new().name(format!("router-{number}")).spawn(move || {
        let served = runtime.block_on(serve(listener, context, Surface::Traffic, stop, grace));
        if let Err(error) = served {
            tracing::error!("a thread cannot accept connections: {error}");
        }
    })
}

/// Accepts until told to stop, then lets the connections finish for as long as `grace`.
async fn serve(
    listener: TcpListener,
    context: Arc<Context>,
    surface: Surface,
    mut stop: watch::Receiver<Stop>,
    grace: Duration,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    let mut prune = tokio::time::interval(PRUNE_INTERVAL);
    let mut stopping = stop.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&context), surface, stop.clone()));
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = prune.tick() => context.pool.prune(&context.shared.members()),
            () = stop::reached(&mut stopping, Stop::Drain) => break,
        }
    }
    drop(listener);
    let finish = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        () = finish => {}
        () = tokio::time::sleep(grace) => tracing::warn!("the grace period is over; connections are cut"),
        () = stop::reached(&mut stop, Stop::Now) => {}
    }
    Ok(())
}

/// Serves one client until it leaves, or until it has its answer once the router stops.
async fn connection(
    stream: TcpStream,
    context: Arc<Context>,
    surface: Surface,
    mut stop: watch::Receiver<Stop>,
) {
    // A socket that refuses options is about to fail anyway.
    let _ = stream.set_nodelay(true);
    let turn = Turn::new(context.shared.settings.timeouts.request);
    let (context, turn) = (&context, &turn);
    let answer = service_fn(|request| async move {
        Ok::<_, Infallible>(service::respond(context, turn, surface, request).await.0)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    let io = TokioIo::new(ClientIo::new(&stream, turn));
    let mut serving = pin!(builder.serve_connection(io, answer));
    let mut over = pin!(turn.over(left(&stream)));
    let mut draining = false;
    loop {
        tokio::select! {
            biased;
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!("a client's connection ended early: {error}");
                    break_off(&stream, turn);
                }
                break;
            }
            // Dropping what is served lets go of the worker.
            ending = over.as_mut() => {
                log_cut(ending);
                break_off(&stream, turn);
                break;
            }
            () = stop::reached(&mut stop, Stop::Drain), if !draining => {
                draining = true;
                serving.as_mut().graceful_shutdown();
            }
            // A request that has not come by now will not be waited for.
            () = tokio::time::sleep(LAST_HEAD), if draining && !turn.is_busy() => break,
        }
    }
}

/// Makes the end of a connection an error for a client that would take it for the end of its answer.
fn break_off(stream: &TcpStream, turn: &Turn) {
    if turn.ends_by_close() {
        // A reset instead of an orderly end; a socket that refuses the option is gone already.
        let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
    }
}

fn log_cut(ending: Ending) {
    match ending {
        Ending::ClientLeft => tracing::debug!("a client left before the end of its answer"),
        Ending::Expired => tracing::debug!("the request's time limit ended a connection"),
    }
}
