//! Where clients are served, and with what beside the built-in paths.

use std::net::{SocketAddr, ToSocketAddrs};

use clap::{ArgAction, Args};

use super::endpoints;
use super::readers::whole;
use super::stop::Stop;

#[derive(Debug, Args)]
#[command(next_help_heading = "Traffic")]
pub(super) struct TrafficArgs {
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 30000, value_parser = whole(0..=u16::MAX))]
    port: u16,
    /// Further paths whose POST requests are passed to a worker [default: none]
    #[arg(long, value_name = "PATH", num_args = 0.., action = ArgAction::Append)]
    extra_endpoints: Vec<String>,
}

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) listen: SocketAddr,
    pub(super) extra_endpoints: Vec<String>,
}

impl TrafficArgs {
    /// # Errors
    /// What is no address or no path.
    pub(super) fn resolve(self) -> Result<Traffic, Stop> {
        Ok(Traffic {
            listen: address("--host", &self.host, self.port)?,
            extra_endpoints: endpoints::resolve(&self.extra_endpoints)?,
        })
    }
}

/// Whether no two listeners, each under the flag of its port, want the same port of an address.
///
/// # Errors
/// Two of them do.
pub(super) fn differ(listeners: &[(&'static str, SocketAddr)]) -> Result<(), Stop> {
    for (at, (flag, address)) in listeners.iter().enumerate() {
        if let Some((other, _)) = listeners[..at].iter().find(|(_, known)| meet(*known, *address)) {
            let port = address.port();
            return Err(Stop::wrong(flag, format!("{port} is that of {other} too; give each its own")));
        }
    }
    Ok(())
}

/// All addresses of a machine are its own too, and those of IPv6 are on Linux also all of IPv4.
fn meet(one: SocketAddr, other: SocketAddr) -> bool {
    let covers =
        |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    let share = one.ip() == other.ip() || covers(one, other) || covers(other, one);
    one.port() != 0 && one.port() == other.port() && share
}

/// The first address that a host has here.
pub(super) fn address(flag: &'static str, host: &str, port: u16) -> Result<SocketAddr, Stop> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| {
        let remedy = "give an IP address such as 127.0.0.1, or a name that this machine knows";
        Stop::wrong(flag, format!("`{host}` cannot be resolved; {remedy}"))
    })
}
