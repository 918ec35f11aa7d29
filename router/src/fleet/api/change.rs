//! What operators say of a worker, and what is wrong with it.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use http::StatusCode;
use router_core::Role;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Problem;
use crate::access_log::excerpt;
use crate::api_key::ApiKey;
use crate::config::BootstrapPort;
use crate::fleet::Terms;
use crate::shared::Shared;
use crate::upstream::Address;

/// What the gateway knows of a worker and this router has no use for.
const UNUSED: [&str; 11] = [
    "chat_template",
    "dp_aware",
    "health_check_interval_secs",
    "health_check_timeout_secs",
    "health_failure_threshold",
    "health_success_threshold",
    "max_connection_attempts",
    "reasoning_parser",
    "runtime",
    "tokenizer_path",
    "tool_parser",
];

/// What a worker is from its registration on.
const FIXED: [&str; 3] = ["url", "worker_type", "bootstrap_port"];

/// How many names a message gives.
const NAMED: usize = 5;

type Rest = BTreeMap<String, IgnoredAny>;

/// The body of `POST /workers`. What the gateway knows and this router has no use for is read over.
#[derive(Deserialize)]
#[serde(expecting = "an object with the url of a worker")]
pub(super) struct Addition {
    url: String,
    #[serde(default)]
    worker_type: Option<String>,
    #[serde(default)]
    bootstrap_port: Option<NonZeroU16>,
    #[serde(default)]
    runtime: Option<String>,
    #[serde(flatten)]
    update: Update,
    #[serde(flatten)]
    rest: Rest,
}

/// The body of `PUT /workers/{id}`; what is not said stays.
#[derive(Deserialize)]
#[serde(expecting = "an object with what is to be changed")]
pub(super) struct Change {
    #[serde(flatten)]
    update: Update,
    #[serde(flatten)]
    rest: Rest,
}

/// What can be said at any time.
#[derive(Deserialize)]
struct Update {
    #[serde(default)]
    api_key: Option<String>,
    /// An empty one: the worker is asked.
    #[serde(default)]
    model_id: Option<String>,
    #[serde(default)]
    priority: Option<u32>,
    #[serde(default)]
    cost: Option<f64>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    disable_health_check: Option<bool>,
}

/// A worker that is to be registered.
pub(super) struct Newcomer {
    pub(super) address: Address,
    pub(super) terms: Terms,
    /// What was said of it that nobody knows, for people; empty if there is nothing.
    pub(super) remark: String,
}

impl Addition {
    /// Where the worker is, and on which terms it serves.
    pub(super) fn resolve(self, shared: &Shared) -> Result<Newcomer, Problem> {
        let address =
            Address::parse_lenient(&self.url).map_err(|problem| Problem::bad(problem.to_string()))?;
        let role = self.worker_type.as_deref().map(role).transpose()?;
        if let (Some(Role::Decode), Some(port)) = (role, self.bootstrap_port) {
            let message = format!("bootstrap_port {port}: is of prefill workers only; leave it out");
            return Err(Problem::bad(message));
        }
        if let Some(other) = self.runtime.as_deref().filter(|runtime| *runtime != "sglang") {
            let message = format!("runtime `{other}`: this router knows workers of the runtime sglang only");
            return Err(Problem::bad(message));
        }
        let mut terms = Terms {
            authorization: shared.settings.added_worker_key.as_ref().map(ApiKey::credential),
            role,
            bootstrap_port: match self.bootstrap_port {
                // As in the gateway it does not count for regular workers.
                Some(port) if role != Some(Role::Regular) => BootstrapPort::Given(port.get()),
                _ => BootstrapPort::Asked,
            },
            ..Terms::default()
        };
        self.update.resolve()?(&mut terms);
        if terms.authorization.is_none() && shared.settings.api_key.is_some() {
            tracing::warn!(
                worker = %address.url,
                "registered without api_key, while the router has a key: the worker gets the clients' Authorization"
            );
        }
        let unknown = names(self.rest.keys().filter(|name| !UNUSED.contains(&name.as_str())));
        let remark =
            unknown.map_or_else(String::new, |names| format!("no field of a worker, and read over: {names}"));
        if !remark.is_empty() {
            tracing::warn!(worker = %address.url, "{remark}");
        }
        Ok(Newcomer { address, terms, remark })
    }
}

/// The role of that name.
fn role(name: &str) -> Result<Role, Problem> {
    Role::ALL.into_iter().find(|role| role.label() == name).ok_or_else(|| {
        let name = excerpt(name).escape_debug().to_string();
        Problem::bad(format!("worker_type `{name}`: must be regular, prefill or decode, or left out"))
    })
}

impl Change {
    /// The changes.
    pub(super) fn resolve(self) -> Result<impl FnOnce(&mut Terms), Problem> {
        let is_fixed = |name: &&String| FIXED.contains(&name.as_str()) || UNUSED.contains(&name.as_str());
        if let Some(names) = names(self.rest.keys().filter(is_fixed)) {
            let remedy = "DELETE the worker and register it anew, or leave this out";
            return Err(wrong(format!("cannot be changed: {names}; {remedy}")));
        }
        if let Some(names) = names(self.rest.keys()) {
            let known = "api_key, model_id, priority, cost, labels and disable_health_check";
            return Err(wrong(format!(
                "no field of a worker: {names}; those that can be changed are {known}"
            )));
        }
        self.update.resolve()
    }
}

impl Update {
    fn resolve(self) -> Result<impl FnOnce(&mut Terms), Problem> {
        let key = self.api_key.map(|text| {
            let problem = "api_key: one or more visible ASCII characters, without blanks";
            ApiKey::new(&text).ok_or_else(|| wrong(problem.to_owned()))
        });
        let key = key.transpose()?;
        if self.cost.is_some_and(|cost| !cost.is_finite() || cost < 0.0) {
            return Err(wrong("cost: not a number of 0 or more".to_owned()));
        }
        Ok(move |terms: &mut Terms| {
            if let Some(key) = key {
                terms.authorization = Some(key.credential());
            }
            if let Some(model) = self.model_id {
                terms.model = Some(model).filter(|model| !model.is_empty());
            }
            terms.priority = self.priority.unwrap_or(terms.priority);
            terms.cost = self.cost.unwrap_or(terms.cost);
            if let Some(labels) = self.labels {
                terms.labels = labels;
            }
            if let Some(is_off) = self.disable_health_check {
                terms.health_check = !is_off;
            }
        })
    }
}

fn wrong(message: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "BAD_REQUEST", message)
}

/// The first few names, for a message; nothing if there are none.
fn names<'a>(all: impl Iterator<Item = &'a String>) -> Option<String> {
    let names: Vec<_> = all.take(NAMED).map(|name| format!("`{}`", excerpt(name).escape_debug())).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
