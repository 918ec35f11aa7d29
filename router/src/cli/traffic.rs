//! Who is served where, and by which workers.

use std::net::{SocketAddr, ToSocketAddrs};

use clap::{ArgAction, Args};

use super::endpoints;
use super::stop::Stop;
use super::values::{whole, words};
use crate::api_key::ApiKey;
use crate::upstream::Address;

// The keys are typed as text: a derived `Debug` would show them.
#[derive(Args)]
pub(super) struct TrafficArgs {
    /// Base URLs of the workers, separated by blanks; a repeated flag adds [default: none]
    #[arg(long, value_name = "URL", num_args = 0.., action = ArgAction::Append)]
    worker_urls: Vec<String>,
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 30000, value_parser = whole(0..=u16::MAX))]
    port: u16,
    /// Key that requests to a model must carry as `Authorization: Bearer KEY` [default: none is needed]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Key that is sent to the workers in place of the client's Authorization [default: that of --api-key; without one
    /// the client's goes on]
    #[arg(long, value_name = "KEY")]
    worker_api_key: Option<String>,
    /// Further paths whose POST requests are passed to a worker [default: none]
    #[arg(long, value_name = "PATH", num_args = 0.., action = ArgAction::Append)]
    extra_endpoints: Vec<String>,
}

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) listen: SocketAddr,
    pub(super) workers: Vec<Address>,
    pub(super) api_key: Option<ApiKey>,
    pub(super) worker_key: Option<ApiKey>,
    pub(super) added_worker_key: Option<ApiKey>,
    pub(super) extra_endpoints: Vec<String>,
}

impl TrafficArgs {
    /// # Errors
    /// What is no address, no key or no path.
    pub(super) fn resolve(self, warnings: &mut Vec<String>) -> Result<Traffic, Stop> {
        let workers = workers(&self.worker_urls)?;
        if workers.is_empty() {
            warnings.push("no --worker-urls: every request will be answered with 503".to_owned());
        }
        let api_key = self.api_key.map(|text| key("--api-key", &text)).transpose()?;
        let worker_key = self.worker_api_key.map(|text| key("--worker-api-key", &text)).transpose()?;
        Ok(Traffic {
            listen: address("--host", &self.host, self.port)?,
            workers,
            added_worker_key: worker_key.clone(),
            worker_key: worker_key.or_else(|| api_key.clone()),
            api_key,
            extra_endpoints: endpoints::resolve(&self.extra_endpoints)?,
        })
    }
}

/// A key that cannot be sent is refused without being repeated.
fn key(flag: &str, text: &str) -> Result<ApiKey, Stop> {
    let refusal = || Stop::wrong(flag, "takes one or more visible ASCII characters, without blanks");
    ApiKey::new(text).ok_or_else(refusal)
}

fn workers(given: &[String]) -> Result<Vec<Address>, Stop> {
    let flag = "--worker-urls";
    let mut workers: Vec<Address> = Vec::new();
    for url in words(given) {
        let address = Address::parse(url).map_err(|error| Stop::wrong(flag, error))?;
        if workers.iter().any(|known| known.is_same_worker(&address)) {
            return Err(Stop::wrong(flag, format!("`{url}` is given twice")));
        }
        workers.push(address);
    }
    Ok(workers)
}

/// The first address that a host has here.
pub(super) fn address(flag: &str, host: &str, port: u16) -> Result<SocketAddr, Stop> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = (bare, port).to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| {
        let remedy = "give an IP address such as 127.0.0.1, or a name that this machine knows";
        Stop::wrong(flag, format!("`{host}` cannot be resolved; {remedy}"))
    })
}
