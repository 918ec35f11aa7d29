//! Reading `[[target]]`, and whether each target can know all workers.

use std::sync::Arc;

use http::uri::Uri;
use router_core::POLICIES;

use super::super::document::Node;
use super::super::error::ScenarioError;
use super::super::section::{Field, Section};
use super::super::{Fleet, resolve};
use super::{Command, Source, Target};

/// The keys of `[[target]]`.
pub(in super::super) const KEYS: &[&str] =
    &["name", "command", "url", "worker_port", "ready", "ready_timeout", "settle", "env", "policy_name"];

const READY_TIMEOUT_NS: u64 = 60_000_000_000;
const SETTLE_NS: u64 = 1_000_000_000;

/// Reads all `[[target]]`.
pub(in super::super) fn read_all(field: &Field<'_>) -> Result<Vec<Arc<Target>>, ScenarioError> {
    let mut targets: Vec<Arc<Target>> = Vec::new();
    for item in field.list()? {
        let target = read(item.node)?;
        if targets.iter().any(|known| known.name == target.name) {
            let problem = format!("\"{}\" stands here twice", target.name);
            return Err(item.error(problem, "give every target a name of its own"));
        }
        targets.push(Arc::new(target));
    }
    Ok(targets)
}

fn read(node: &Node) -> Result<Target, ScenarioError> {
    let section = Section::open(node, "target", KEYS)?;
    let name_field = section.need("name")?;
    let name = resolve::name(&name_field)?;
    if POLICIES.iter().any(|row| row.name == name) {
        let problem = format!("\"{name}\" is a policy of our own router");
        return Err(name_field.error(problem, "give the target another name"));
    }
    let source = match (section.get("command"), section.get("url")) {
        (Some(command), None) => Source::Command(Command::read(&section, &command)?),
        (None, Some(url)) => running(&section, &url)?,
        (Some(_), Some(_)) => {
            return Err(section.error("url", "stands beside command", "keep one of them"));
        }
        (None, None) => {
            let remedy = "add how it is started, command = [\"program\", \"--port\", \"{port}\", …], or \
                          the url of one that runs";
            return Err(section.error("command", "is missing", remedy));
        }
    };
    let ready = section.get("ready").map_or(Ok("/health"), |field| field.text())?.to_owned();
    if !ready.starts_with('/') || ready.contains(char::is_whitespace) {
        return Err(section.error("ready", format!("\"{ready}\" is no path"), "begin it with /"));
    }
    let span = |key, default_ns| section.get(key).map_or(Ok(default_ns), |f| f.short_duration_ns());
    Ok(Target {
        name,
        policy_name: section.get("policy_name").map_or(Ok(""), |field| field.text())?.to_owned(),
        source,
        ready,
        ready_timeout_ns: span("ready_timeout", READY_TIMEOUT_NS)?,
        settle_ns: span("settle", SETTLE_NS)?,
    })
}

fn running(section: &Section<'_>, url: &Field<'_>) -> Result<Source, ScenarioError> {
    let text = url.text()?.trim_end_matches('/');
    let plain = text.parse::<Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some() && matches!(uri.path(), "" | "/")
    });
    if !plain {
        let problem = format!("\"{text}\" is no address of a router");
        return Err(url.error(problem, "write http://HOST:PORT"));
    }
    if section.get("env").is_some() {
        return Err(section.error("env", "is for a command", "remove it"));
    }
    let Some(port) = section.get("worker_port") else {
        let remedy = "the router must know our workers: name the port on which the first one is to listen; the \
                      next ones follow";
        return Err(section.error("worker_port", "is missing", remedy));
    };
    Ok(Source::Running { url: text.to_owned(), worker_port: port.whole(1..=u16::MAX)? })
}

/// Refuses targets that could not know all workers of `fleet`.
pub(in super::super) fn check(
    targets: &[Arc<Target>],
    fleet: &Fleet,
    field: &Field<'_>,
) -> Result<(), ScenarioError> {
    let split = fleet.roles.prefill > 0;
    let regular = fleet.workers > fleet.roles.prefill + fleet.roles.decode;
    for target in targets {
        let missing = match &target.source {
            Source::Command(command) => {
                let wanted: [(bool, &[&str]); 3] =
                    [(regular, &["workers", "worker_urls"]), (split, &["prefill"]), (split, &["decode"])];
                wanted
                    .iter()
                    .find(|(there, names)| *there && !command.names(names))
                    .map(|(_, names)| names[0])
            }
            Source::Running { .. } if split => {
                let problem =
                    format!("target \"{}\" runs already, and the fleet has prefill workers", target.name);
                let remedy =
                    "start it by a command: the ports of bootstrap servers are not known before a run";
                return Err(field.error(problem, remedy));
            }
            Source::Running { worker_port, .. } => {
                if u32::from(*worker_port) + fleet.workers > u32::from(u16::MAX) {
                    let problem = format!("target \"{}\" has no ports for all workers", target.name);
                    return Err(field.error(problem, "name a lower worker_port"));
                }
                None
            }
        };
        if let Some(missing) = missing {
            let problem = format!("target \"{}\" is not told of some workers of the fleet", target.name);
            return Err(field.error(problem, format!("name them in its command, by {{{missing}}}")));
        }
    }
    Ok(())
}
