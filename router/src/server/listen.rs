//! Where the router listens, and how it tells.

use std::net::{SocketAddr, TcpListener};

use tokio::net::TcpSocket;

use super::ServeError;
use crate::config::Config;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Clients; operators too, where they have no listener of their own.
    Traffic,
    /// Operators.
    Admin,
    /// Prometheus.
    Metrics,
}

/// The listeners of the process.
pub(super) struct Listeners {
    pub(super) traffic: TcpListener,
    pub(super) admin: Option<TcpListener>,
    pub(super) metrics: TcpListener,
}

impl Listeners {
    /// Listens. Needs a runtime around it.
    ///
    /// # Errors
    /// [`ServeError::Listen`] for the first address that cannot be had.
    pub(super) fn open(config: &Config) -> Result<Self, ServeError> {
        let admin = config.admin_listen.map(|address| listen(Surface::Admin, address));
        Ok(Self {
            traffic: listen(Surface::Traffic, config.listen)?,
            admin: admin.transpose()?,
            metrics: listen(Surface::Metrics, config.metrics_listen)?,
        })
    }

    /// Tells whoever started us where we listen: one line of JSON on standard output.
    pub(super) fn announce(&self, secure: bool) -> std::io::Result<()> {
        use std::io::Write as _;
        let scheme = if secure { "https" } else { "http" };
        let mut line = serde_json::json!({
            "listening": url(scheme, &self.traffic)?,
            "metrics": url("http", &self.metrics)?,
        });
        if let Some(admin) = &self.admin {
            line["admin"] = url(scheme, admin)?.into();
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    }
}

/// What the operator can do about an address that cannot be listened on.
pub(super) fn remedy(error: &std::io::Error, surface: Surface) -> String {
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

/// Listens; port 0 means any free one.
fn listen(surface: Surface, address: SocketAddr) -> Result<TcpListener, ServeError> {
    let bind = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    bind().map_err(|source| ServeError::Listen { surface, address, source })
}

/// The address as it was bound: who reads 0.0.0.0 knows that all interfaces are meant.
fn url(scheme: &str, listener: &TcpListener) -> std::io::Result<String> {
    Ok(format!("{scheme}://{}", listener.local_addr()?))
}
