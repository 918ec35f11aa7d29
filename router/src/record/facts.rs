//! What a new file has to say again of earlier ones, so that it can be understood without them: the workers, from the first on,
//! as ids are given in order; which of them are healthy; policies; how many legs were booked.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Header, Line};

/// See the module's description. It is told every line.
#[derive(Debug)]
pub(super) struct Facts {
    header: Header,
    /// In their order.
    fleet: Vec<Line>,
    /// Since when.
    healthy: BTreeMap<u32, u64>,
    urls: BTreeSet<Box<str>>,
}

impl Facts {
    pub(super) fn new(header: Header) -> Self {
        Self { header, fleet: Vec::new(), healthy: BTreeMap::new(), urls: BTreeSet::new() }
    }

    pub(super) fn learn(&mut self, line: &Line) {
        match line {
            Line::Add { url, .. } => {
                self.urls.insert(url.clone());
                self.fleet.push(line.clone());
            }
            Line::Remove { worker, .. } => {
                self.healthy.remove(worker);
                self.fleet.push(line.clone());
            }
            Line::Drain { .. } | Line::Model { .. } | Line::Role { .. } => self.fleet.push(line.clone()),
            Line::Health { t, worker, healthy: true } => _ = self.healthy.insert(*worker, *t),
            Line::Health { worker, healthy: false, .. } => _ = self.healthy.remove(worker),
            Line::Policies { policies, .. } => self.header.policies = (**policies).clone(),
            Line::Pairing { pairing } => self.header.pairing = *pairing,
            Line::Plan(plan) => self.header.bookings += plan.legs.len() as u64,
            _ => {}
        }
    }

    /// What a file begins with that goes on from the last one.
    pub(super) fn restate(&mut self) -> (Header, Vec<Line>) {
        self.header.part += 1;
        let health =
            self.healthy.iter().map(|(worker, t)| Line::Health { t: *t, worker: *worker, healthy: true });
        let lines: Vec<Line> = self.fleet.iter().cloned().chain(health).collect();
        (Header { restated: lines.len() as u64, ..self.header.clone() }, lines)
    }

    /// What a client asked for as its worker, if it is one: anything else may be a secret.
    pub(super) fn target(&self, asked: &str) -> Option<Box<str>> {
        let asked = asked.trim();
        // A blank one is none, and is to stay so.
        let is_known = asked.is_empty()
            || asked.parse::<u32>().is_ok()
            || self.urls.contains(asked.trim_end_matches('/'));
        is_known.then(|| asked.into())
    }
}
