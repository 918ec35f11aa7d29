//! Transfers of KV that share one link.
//!
//! A transfer sends what it has been given so far and then waits for more, as the KV of a long prompt is computed in
//! parts. Those that have something to send share the bandwidth equally. How far all of them have come is one number:
//! what a transfer that had always been sending would have got through ([`Transfers::served`], written as the time
//! that it takes alone). A part ends when that number reaches a mark that is known when the part begins, whoever else
//! comes and goes; so each change costs the logarithm of the number of transfers, and integers make all of it exact.

use std::collections::{BTreeSet, HashMap};

use super::HandoffConfig;
use crate::request::RequestId;
use crate::time::Ticks;

#[derive(Debug)]
pub(crate) struct Transfers {
    setup: Ticks,
    /// What a token takes alone on the link.
    token: Ticks,
    page: u64,
    /// The moment that `served` is of.
    clock: Ticks,
    served: Ticks,
    all: HashMap<RequestId, Transfer>,
    /// Those that are being set up, by the end of it.
    setting_up: BTreeSet<(Ticks, RequestId)>,
    /// Those that send, by the mark at which they have sent what they were given.
    sending: BTreeSet<(Ticks, RequestId)>,
}

#[derive(Debug)]
struct Transfer {
    began: Ticks,
    /// Given to it so far, in whole pages.
    tokens: u64,
    /// Nothing more comes.
    complete: bool,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    SettingUp {
        until: Ticks,
        /// What it has been given, as time alone on the link.
        backlog: Ticks,
    },
    Sending {
        mark: Ticks,
    },
    /// It has sent all that it was given.
    Waiting,
}

/// A transfer of which every byte has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) id: RequestId,
    /// From its first send on.
    pub(crate) span: Ticks,
    pub(crate) tokens: u64,
}

// === impl Transfers ===

impl Transfers {
    pub(crate) fn new(handoff: &HandoffConfig, page_size: u32) -> Self {
        Self {
            setup: Ticks::from_ns(handoff.link.setup_ns),
            token: Ticks::from_seconds(handoff.kv_bytes_per_token / handoff.link.bytes_per_second),
            page: u64::from(page_size),
            clock: Ticks::ZERO,
            served: Ticks::ZERO,
            all: HashMap::new(),
            setting_up: BTreeSet::new(),
            sending: BTreeSet::new(),
        }
    }

    /// Sends the first `tokens` of a request, as far as they have not been given to its transfer yet; the first call
    /// begins it, `complete` says that nothing more comes.
    pub(crate) fn send(&mut self, now_ns: u64, id: RequestId, tokens: u64, complete: bool) {
        self.settle(Ticks::from_ns(now_ns));
        let (now, setup, served) = (self.clock, self.setup, self.served);
        let transfer = self.all.entry(id).or_insert_with(|| {
            let until = now + setup;
            self.setting_up.insert((until, id));
            let state = State::SettingUp { until, backlog: Ticks::ZERO };
            Transfer { began: now, tokens: 0, complete: false, state }
        });
        let given = tokens.next_multiple_of(self.page).max(transfer.tokens);
        let work = self.token * (given - transfer.tokens);
        transfer.tokens = given;
        transfer.complete |= complete;
        match &mut transfer.state {
            State::SettingUp { backlog, .. } => *backlog += work,
            State::Sending { mark } => {
                self.sending.remove(&(*mark, id));
                *mark += work;
                self.sending.insert((*mark, id));
            }
            State::Waiting => {
                let mark = served + work;
                transfer.state = State::Sending { mark };
                self.sending.insert((mark, id));
            }
        }
    }

    /// Ends a transfer, if there is one, wherever it is.
    pub(crate) fn cancel(&mut self, now_ns: u64, id: RequestId) {
        self.settle(Ticks::from_ns(now_ns));
        let Some(transfer) = self.all.remove(&id) else { return };
        match transfer.state {
            State::SettingUp { until, .. } => self.setting_up.remove(&(until, id)),
            State::Sending { mark } => self.sending.remove(&(mark, id)),
            State::Waiting => false,
        };
    }

    /// When something happens next.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.next().map(Ticks::ns)
    }

    /// The next transfer that has arrived at or before `now_ns`.
    pub(crate) fn arrive(&mut self, now_ns: u64) -> Option<Arrival> {
        while let Some(at) = self.next().filter(|at| at.ns() <= now_ns) {
            self.settle(at);
            self.begin_sending();
            if let Some(arrival) = self.end_sending() {
                return Some(arrival);
            }
        }
        None
    }

    fn next(&self) -> Option<Ticks> {
        let set_up = self.setting_up.first().map(|(until, _)| *until);
        let sharing = self.sending.len() as u64;
        let sent = self.sending.first().map(|(mark, _)| self.clock + mark.since(self.served) * sharing);
        set_up.into_iter().chain(sent).min()
    }

    /// Brings `served` up to `now`. Nothing may happen in between.
    fn settle(&mut self, now: Ticks) {
        let span = now.since(self.clock);
        if !self.sending.is_empty() {
            self.served += span / self.sending.len() as u64;
        }
        self.clock = self.clock.max(now);
    }

    fn begin_sending(&mut self) {
        while let Some((until, id)) =
            self.setting_up.first().copied().filter(|(until, _)| *until <= self.clock)
        {
            self.setting_up.remove(&(until, id));
            let Some(transfer) = self.all.get_mut(&id) else { continue };
            let State::SettingUp { backlog, .. } = transfer.state else { continue };
            let mark = self.served + backlog;
            transfer.state = State::Sending { mark };
            self.sending.insert((mark, id));
        }
    }

    /// Lets those wait that have sent what they had, up to the first that is complete.
    fn end_sending(&mut self) -> Option<Arrival> {
        while let Some((mark, id)) = self.sending.first().copied().filter(|(mark, _)| *mark <= self.served) {
            self.sending.remove(&(mark, id));
            let transfer = self.all.get_mut(&id)?;
            transfer.state = State::Waiting;
            if transfer.complete {
                let Transfer { began, tokens, .. } = self.all.remove(&id)?;
                return Some(Arrival { id, span: self.clock.since(began), tokens });
            }
        }
        None
    }
}

// === impl Transfers: what can be seen ===

impl Transfers {
    /// Transfers that have begun and not ended.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Proves that each transfer is where its state says.
    pub(crate) fn check(&self) -> Result<(), String> {
        let known = |id: &RequestId, wanted: fn(&State, Ticks) -> bool, at: Ticks| {
            self.all.get(id).is_some_and(|transfer| wanted(&transfer.state, at))
        };
        let set_up = |state: &State, at| matches!(state, State::SettingUp { until, .. } if *until == at);
        let sending = |state: &State, at| matches!(state, State::Sending { mark } if *mark == at);
        let right = self.setting_up.iter().all(|(at, id)| known(id, set_up, *at))
            && self.sending.iter().all(|(at, id)| known(id, sending, *at));
        if right && self.setting_up.len() + self.sending.len() <= self.all.len() {
            return Ok(());
        }
        Err("a transfer is not where its state says".into())
    }
}

#[cfg(test)]
mod tests;
