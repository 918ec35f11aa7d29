//! How long a connection may be without a request.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::Ending;
use crate::alarm::Alarm;
use crate::config::ConnectionLimits;
use crate::error::Refusal;

/// How long a connection that has no request under way is kept, once the router stops.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(1);

/// What there is of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing, and there was none before it.
    New,
    /// Nothing, after another one.
    Idle,
    /// A part of its head.
    Head,
    /// It is under way.
    Request,
}

/// The time between the requests of a connection.
#[derive(Debug)]
pub(super) struct Wait {
    phase: Phase,
    since: Instant,
    /// Until when a request must have come, once the router stops.
    last_call: Option<Instant>,
    alarm: Alarm,
    /// For the head, from its first byte on, or from the beginning of the connection.
    head_limit: Duration,
    idle_limit: Duration,
}

impl Wait {
    pub(super) fn new(limits: &ConnectionLimits) -> Self {
        Self {
            phase: Phase::New,
            since: Instant::now(),
            last_call: None,
            alarm: Alarm::default(),
            head_limit: limits.header_timeout,
            idle_limit: limits.idle_timeout,
        }
    }

    /// A request is under way from now on, until [`Wait::poll`] is told that it is not.
    pub(super) fn begin(&mut self) {
        self.phase = Phase::Request;
    }

    /// The router stops, so a request is not waited for much longer. Whether somebody may be about to send one: a client
    /// that has just connected, or that has begun.
    pub(super) fn last_call(&mut self) -> bool {
        self.last_call.get_or_insert_with(|| Instant::now() + LAST_CALL);
        matches!(self.phase, Phase::New | Phase::Head)
    }

    /// Ready when no request has come for too long. `heard` tells whether
    /// bytes came since it was asked before.
    pub(super) fn poll(
        &mut self,
        under_way: bool,
        mut heard: impl FnMut() -> bool,
        cx: &mut Context<'_>,
    ) -> Poll<Ending> {
        if under_way {
            self.phase = Phase::Request;
            return Poll::Pending;
        }
        match self.phase {
            Phase::Request => {
                // What was heard was that request.
                heard();
                self.enter(Phase::Idle);
            }
            Phase::New | Phase::Idle if heard() => self.enter(Phase::Head),
            _ => {}
        }
        let limit = if self.phase == Phase::Idle { self.idle_limit } else { self.head_limit };
        let end = self.since + limit;
        let end = self.last_call.map_or(end, |last| last.min(end));
        ready!(self.alarm.poll_until(end, cx));
        Poll::Ready(match self.phase {
            _ if self.last_call.is_some() => Ending::Silent,
            Phase::Head => Ending::Refused(Refusal::HeadTimeout),
            Phase::Idle => Ending::Idle,
            Phase::New | Phase::Request => Ending::Silent,
        })
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
    }
}
