//! The workers that are known from the start, and how workers come and go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgAction, Args};
use router_core::{Role, WarmUp};

use super::file_workers::FileWorker;
use super::readers::{MAX_SECONDS, NS_PER_SECOND, number, seconds, whole, words};
use super::stop::Stop;
use crate::config::{BootstrapPort, RankField, StaticWorker};
use crate::fleet::{Identity, MAX_WORKERS, Terms};
use crate::upstream::Address;

/// What is said where there are none.
pub(super) const NO_WORKERS: &str =
    "no workers: every request is answered with 503 until there are some; see --worker-urls";

#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub(super) struct WorkerArgs {
    /// Base URLs of the workers, separated by blanks; a repeated flag adds [default: none]
    #[arg(long, value_name = "URL", num_args = 0.., action = ArgAction::Append)]
    worker_urls: Vec<String>,
    /// Seconds that a worker may take until its first good probe; then it has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = whole(1..=MAX_SECONDS))]
    worker_startup_timeout_secs: u64,
    /// Seconds for which the running requests of a worker that is taken out are waited for; then it is gone, and they go on
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = whole(0..=MAX_SECONDS))]
    worker_drain_timeout_secs: u64,
    /// Seconds for which a new or recovered worker is warmed up; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = WarmUp::default().duration_ns / NS_PER_SECOND, value_parser = whole(0..=MAX_SECONDS))]
    worker_warmup_secs: u64,
    /// While it is warmed up, a worker is led to this times the prompt tokens that the others get on average
    #[arg(long, value_name = "X", default_value_t = WarmUp::default().share, value_parser = number(0.0..=f64::INFINITY))]
    worker_warmup_share: f64,
    /// Seconds between two load polls of a worker, under policies that use them
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds(0.01..=3600.0))]
    load_poll_interval_secs: Duration,
    /// Seconds between two questions to a worker for what it is: model, sizes, whether it was started anew
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds(0.01..=3600.0))]
    worker_info_interval_secs: Duration,
    /// Take each data-parallel rank of an engine for a worker of its own, and name it in the requests for it
    #[arg(long)]
    dp_aware: bool,
    /// The member of a request by which an engine is told its rank; SGLang has changed the name
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    dp_rank_field: RankField,
}

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) workers: Vec<StaticWorker>,
    pub(super) startup_timeout: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) warm_up: Option<WarmUp>,
    pub(super) load_poll_interval: Duration,
    pub(super) info_interval: Duration,
    pub(super) dp_aware: bool,
    pub(super) dp_rank_field: RankField,
}

impl WorkerArgs {
    /// # Errors
    /// What is no URL of a worker, or one that is there already.
    pub(super) fn resolve(
        self,
        pairs: Vec<StaticWorker>,
        file: Vec<FileWorker>,
        warnings: &mut Vec<String>,
    ) -> Result<Workers, Stop> {
        let workers = workers(self.given()?, pairs, file)?;
        if workers.is_empty() {
            warnings.push(NO_WORKERS.to_owned());
        }
        let duration_ns = self.worker_warmup_secs * NS_PER_SECOND;
        Ok(Workers {
            workers,
            startup_timeout: Duration::from_secs(self.worker_startup_timeout_secs),
            drain_timeout: Duration::from_secs(self.worker_drain_timeout_secs),
            warm_up: (duration_ns > 0).then_some(WarmUp { duration_ns, share: self.worker_warmup_share }),
            load_poll_interval: self.load_poll_interval_secs,
            info_interval: self.worker_info_interval_secs,
            dp_aware: self.dp_aware,
            dp_rank_field: self.dp_rank_field,
        })
    }

    /// Those of the flag.
    fn given(&self) -> Result<Vec<StaticWorker>, Stop> {
        words(&self.worker_urls).map(|url| address(url, None).map(plain)).collect()
    }
}

/// Where a worker is that was given to the flag of its role.
pub(super) fn address(url: &str, role: Option<Role>) -> Result<Address, Stop> {
    Address::parse(url).map_err(|error| match url.contains(',') {
        true => Stop::wrong(flag_of(role), "there is a comma; write blanks between URLs"),
        false => Stop::wrong(flag_of(role), error),
    })
}

/// The flag that takes workers of a role, and its id.
pub(super) fn flag_of(role: Option<Role>) -> &'static str {
    match role {
        None | Some(Role::Regular) => "--worker-urls",
        Some(Role::Prefill) => "--prefill",
        Some(Role::Decode) => "--decode",
    }
}

/// The same as the flag's id.
pub(super) fn id_of(role: Option<Role>) -> &'static str {
    match role {
        None | Some(Role::Regular) => "worker_urls",
        Some(Role::Prefill) => "prefill",
        Some(Role::Decode) => "decode",
    }
}

/// Those of the flags and those of the file's tables, in this order.
fn workers(
    given: Vec<StaticWorker>,
    pairs: Vec<StaticWorker>,
    file: Vec<FileWorker>,
) -> Result<Vec<StaticWorker>, Stop> {
    let (mut workers, mut known) = (Vec::new(), HashMap::new());
    for worker in given.into_iter().chain(pairs) {
        let (url, flag) = (&worker.address.url, flag_of(worker.role));
        if let Some(former) = known.insert(Identity::of(&worker.address), flag) {
            let problem = match former == flag {
                true => format!("`{url}` is given twice"),
                false => format!("`{url}` is given to {former} too; a worker has one role"),
            };
            return Err(Stop::wrong(flag, problem));
        }
        if known.len() > MAX_WORKERS {
            return Err(Stop::wrong(flag, format!("`{url}` is one too many: {}", most())));
        }
        workers.push(worker);
    }
    for FileWorker { worker, place } in file {
        let url = &worker.address.url;
        if let Some(former) = known.insert(Identity::of(&worker.address), flag_of(worker.role)) {
            return Err(Stop::wrong(former, format!("`{url}` is given here and at {place}")));
        }
        if known.len() > MAX_WORKERS {
            return Err(Stop::Wrong(format!("{place}: `{url}` is one too many: {}", most())));
        }
        workers.push(worker);
    }
    Ok(workers)
}

/// Whether no worker is the router itself, as far as its URL tells: what it gives itself, it would give itself again. The
/// likeliest slip, as engines listen on the same port by default.
///
/// # Errors
/// One is where one of these listeners is, each under the flag of its port.
pub(super) fn are_others(
    workers: &[StaticWorker],
    listeners: &[(&'static str, SocketAddr)],
) -> Result<(), Stop> {
    for (flag, address) in listeners.iter().filter(|(_, address)| address.port() != 0) {
        let is_local = address.ip().is_unspecified() || address.ip().is_loopback();
        let names = ["127.0.0.1", "[::1]", "localhost"].into_iter().filter(|_| is_local);
        let own: HashSet<String> =
            names.map(|name| format!("{name}:{}", address.port())).chain([address.to_string()]).collect();
        let dialled = |worker: &&StaticWorker| {
            worker.address.dialled().split_once("://").is_some_and(|(_, at)| own.contains(at))
        };
        if let Some(worker) = workers.iter().find(dialled) {
            let remedy = format!("give the engine's port, or another {flag}");
            return Err(Stop::wrong(
                flag_of(worker.role),
                format!("`{}` is where the router itself listens; {remedy}", worker.address.url),
            ));
        }
    }
    Ok(())
}

fn most() -> String {
    format!("a router has {MAX_WORKERS} workers at most")
}

/// A worker of which nothing is known but where it is.
pub(super) fn plain(address: Address) -> StaticWorker {
    StaticWorker {
        address,
        api_key: None,
        model: None,
        priority: Terms::PRIORITY,
        cost: Terms::COST,
        labels: BTreeMap::new(),
        health_check: true,
        role: None,
        bootstrap_port: BootstrapPort::Asked,
    }
}
