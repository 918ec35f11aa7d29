//! What a configuration that was read again changes: done, and told.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use router_core::{Policies, Role};

use crate::cli::Source;
use crate::config::{Config, StaticWorker};
use crate::fleet::{
    Identity, MAX_WORKERS, Registered, Terms, drain_all, register, register_changed, set_terms,
};
use crate::shared::Shared;

/// How many workers a line names; thousands of them would be no line.
const NAMED: usize = 10;

/// What was changed, by the URLs of the workers.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// As `policy from → to`, with the role before it where it is not the first.
    policies: Vec<String>,
    /// As `--flag from → to`.
    options: Vec<String>,
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
    /// Those for which there was no room.
    left_out: Vec<String>,
}

/// Takes over what can be; what waits for the next start is told, against what the process was `started` with.
pub(super) fn apply(shared: &Arc<Shared>, before: &Config, now: &Config, started: &Source) {
    let mut changes = Changes::default();
    changes.workers(shared, before, now);
    if before.policies != now.policies {
        shared.set_policies(now.policies.clone());
        changes.policies = policies(&before.policies, &now.policies);
        changes.options = before.source.policy_changes(&now.source);
    }
    let pairing = |config: &Config| (config.decode_dispatch_limit, config.pair);
    if pairing(before) != pairing(now) {
        shared.set_pairing(now.decode_dispatch_limit, now.pair);
        changes.options.extend(before.source.pairing_changes(&now.source));
    }
    if !changes.left_out.is_empty() {
        let names = some(&changes.left_out);
        let remedy = "SIGHUP adds them once others have gone";
        tracing::error!("there is no room for more than {MAX_WORKERS} workers; left out: {names}; {remedy}");
    }
    if shared.members().iter().all(|member| member.stage().is_leaving()) {
        tracing::warn!("no workers: every request is answered with 503 until there are some");
    }
    let later = started.changes(&now.source);
    if !later.is_empty() {
        tracing::warn!("takes effect at the next start: {}", later.join(", "));
    }
    tracing::info!(
        policy = now.policies.get(Role::Regular).name(),
        workers = now.workers.len(),
        "configuration read again: {changes}"
    );
}

impl Changes {
    /// All that are listed are there afterwards, also those that have failed or were sent away by a call. Terms are those
    /// of the list where it has changed: what calls have changed since stays otherwise.
    fn workers(&mut self, shared: &Arc<Shared>, before: &Config, now: &Config) {
        let identity = |worker: &StaticWorker| Identity::of(&worker.address);
        let mut former: HashMap<_, _> =
            before.workers.iter().map(|worker| (identity(worker), worker)).collect();
        for worker in &now.workers {
            let url = worker.address.url.clone();
            let former = former.remove(&identity(worker));
            let is_same = former == Some(worker);
            let terms = Terms::of(worker, shared.settings.worker_key.as_ref());
            let register = if is_same { register } else { register_changed };
            match register(shared, &worker.address, terms.clone()) {
                Registered::New(_) if former.is_some() && !is_same => self.changed.push(url),
                Registered::New(_) => self.added.push(url),
                Registered::Known(_) if is_same => {}
                Registered::Known(member) => {
                    set_terms(shared, &member, |former| *former = terms);
                    self.changed.push(url);
                }
                Registered::Full => self.left_out.push(url),
            }
        }
        // After those that come: the last one waits for its successor.
        let gone = before.workers.iter().map(identity).filter(|identity| former.contains_key(identity));
        let gone = gone.filter_map(|identity| shared.books.lock().find(identity)).collect();
        let told = drain_all(shared, gone, shared.settings.drain_timeout);
        self.removed.extend(told.iter().map(|member| member.address.url.clone()));
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)];
        let workers = workers.iter().filter(|(_, urls)| !urls.is_empty());
        let workers = workers.map(|(what, urls)| format!("{} {what}: {}", count(urls.len()), some(urls)));
        let parts: Vec<_> = self.policies.iter().chain(&self.options).cloned().chain(workers).collect();
        f.write_str(if parts.is_empty() { "nothing has changed" } else { "" })?;
        f.write_str(&parts.join("; "))
    }
}

/// What is another policy now: where all roles have the same, that is said once.
fn policies(before: &Policies, now: &Policies) -> Vec<String> {
    let of = |role| (before.get(role).name(), now.get(role).name());
    let (from, to) = of(Role::Regular);
    let first = (from != to).then(|| format!("policy {from} → {to}"));
    let others = [Role::Prefill, Role::Decode].into_iter().filter_map(|role| {
        let (own_from, own_to) = of(role);
        let is_news = own_from != own_to && (own_from, own_to) != (from, to);
        is_news.then(|| format!("{} policy {own_from} → {own_to}", role.label()))
    });
    first.into_iter().chain(others).collect()
}

fn count(workers: usize) -> String {
    format!("{workers} {}", if workers == 1 { "worker" } else { "workers" })
}

/// The first few.
fn some(urls: &[String]) -> String {
    let named = urls.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match urls.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_has_changed_and_not_all_of_thousands() {
        assert_eq!(Changes::default().to_string(), "nothing has changed");
        let urls = |count: usize| (0..count).map(|number| format!("http://w:{number}")).collect::<Vec<_>>();
        let changes = Changes {
            policies: vec!["policy random → cache_aware".to_owned()],
            options: vec!["--cache-threshold 0.3 → 0.5".to_owned()],
            added: urls(12),
            removed: urls(1),
            ..Changes::default()
        };
        let line = changes.to_string();
        assert!(line.starts_with("policy random → cache_aware; --cache-threshold 0.3 → 0.5; "), "{line}");
        assert!(line.contains("12 workers added: http://w:0, "), "{line}");
        assert!(line.ends_with("http://w:9 and 2 more; 1 worker removed: http://w:0"), "{line}");
    }
}
