//! What a new file has to say again of earlier ones, so that it can be understood without them: who is there, which of them are
//! healthy, and the load that each told last; policies; how many legs were booked.
//!
//! Nothing is kept of workers that are gone. Their ids are not given again, and whoever reads that a worker is added knows that
//! those below its id are taken.

use std::collections::BTreeMap;

use super::line::{Header, Line};

/// See the module's description. It is told every line.
#[derive(Debug)]
pub(super) struct Facts {
    header: Header,
    /// By their ids, which ascend as workers are added.
    fleet: BTreeMap<u32, Member>,
}

/// A worker that is there.
#[derive(Debug)]
struct Member {
    url: Box<str>,
    added: Line,
    /// The last of each that was found out.
    model: Option<Line>,
    role: Option<Line>,
    drain: Option<Line>,
    /// Present while it is healthy.
    health: Option<Line>,
    /// What it told last of its load.
    load: Option<Line>,
}

impl Member {
    fn new(url: &str, added: &Line) -> Self {
        let (url, added) = (url.into(), added.clone());
        Self { url, added, model: None, role: None, drain: None, health: None, load: None }
    }

    fn learn(&mut self, line: &Line) {
        let line = Some(line.clone());
        match &line {
            Some(Line::Model { .. }) => self.model = line,
            Some(Line::Role { .. }) => self.role = line,
            Some(Line::Drain { .. }) => self.drain = line,
            Some(Line::Load { .. }) => self.load = line,
            Some(Line::Health { healthy, .. }) => {
                // What it told before does not count any more.
                self.load = None;
                self.health = if *healthy { line } else { None };
            }
            _ => {}
        }
    }

    fn known(&self) -> impl Iterator<Item = &Line> {
        let later = [&self.model, &self.role, &self.drain];
        std::iter::once(&self.added).chain(later.into_iter().flatten())
    }
}

impl Facts {
    pub(super) fn new(header: Header) -> Self {
        Self { header, fleet: BTreeMap::new() }
    }

    pub(super) fn learn(&mut self, line: &Line) {
        match line {
            Line::Add { worker, url, .. } => _ = self.fleet.insert(*worker, Member::new(url, line)),
            Line::Remove { worker, .. } => _ = self.fleet.remove(worker),
            Line::Drain { worker, .. }
            | Line::Model { worker, .. }
            | Line::Role { worker, .. }
            | Line::Health { worker, .. }
            | Line::Load { worker, .. } => {
                if let Some(member) = self.fleet.get_mut(worker) {
                    member.learn(line);
                }
            }
            Line::Policies { policies, .. } => self.header.policies = (**policies).clone(),
            Line::Pairing { pairing } => self.header.pairing = *pairing,
            Line::Plan(plan) => self.header.bookings += plan.legs.len() as u64,
            _ => {}
        }
    }

    /// What a file begins with that goes on from the last one.
    pub(super) fn restate(&mut self) -> (Header, Vec<Line>) {
        self.header.part += 1;
        let members = || self.fleet.values();
        let lines = members().flat_map(Member::known);
        let lines = lines.chain(members().filter_map(|member| member.health.as_ref()));
        let lines = lines.chain(members().filter_map(|member| member.load.as_ref()));
        let lines: Vec<Line> = lines.cloned().collect();
        (Header { restated: lines.len() as u64, ..self.header.clone() }, lines)
    }

    /// What a client asked for as its worker, if it is one: anything else may be a secret.
    pub(super) fn target(&self, asked: &str) -> Option<Box<str>> {
        let asked = asked.trim();
        let is_url = || {
            let url = asked.trim_end_matches('/');
            self.fleet.values().any(|member| *member.url == *url)
        };
        // A blank one is none, and is to stay so.
        let is_known = asked.is_empty() || asked.parse::<u32>().is_ok() || is_url();
        is_known.then(|| asked.into())
    }
}
