//! Admission: which requests may begin, which wait their turn, and which are sent away.
//!
//! The rules are `router_core::Admission`'s. Here are the two ends of a wait: the request that waits for a word, and
//! whoever gives it, which is the request that ends or the clock. A permit is a guard that rides with the answer's
//! body: however a request ends, it is given back once.
//!
//! A body that comes slowly does not keep others out: its request lays by the permit until the body is there. As many
//! requests may do so as may be under way, so that what has come of their bodies takes no more memory than theirs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use router_core::{Admission, AdmissionConfig, Arrival, Ticket};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::clock::{Clock, whole_seconds};
use crate::error::Refusal;
use crate::metrics::QueueRow;

/// Admission with both ends of a wait; shared by all requests.
#[derive(Debug)]
pub(crate) struct Gate {
    clock: Clock,
    state: Mutex<State>,
    /// Somebody began to wait, so there may be a nearer deadline.
    news: Notify,
    /// For bodies that come slowly; nothing where it does not matter how long a permit is kept.
    places: Option<Arc<Semaphore>>,
}

#[derive(Debug)]
struct State {
    machine: Admission,
    waiting: BTreeMap<Ticket, Waiter>,
}

type Waiter = oneshot::Sender<Option<Permit>>;

/// The right to be under way.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Gate>);

/// What a request has in the place of the permit while its body comes.
#[derive(Debug)]
pub(crate) struct Place(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

/// A request in the queue, which leaves it when this is dropped.
struct Waiting<'a> {
    gate: &'a Arc<Gate>,
    ticket: Ticket,
}

impl Gate {
    /// A gate with these limits; none if there are no limits.
    pub(crate) fn new(clock: Clock, config: &AdmissionConfig) -> Option<Arc<Self>> {
        let machine = Admission::new(config.clone());
        if machine.is_unlimited() {
            return None;
        }
        let state = Mutex::new(State { machine, waiting: BTreeMap::new() });
        let places = config.max_concurrent.map(|most| Arc::new(Semaphore::new(most.get() as usize)));
        Some(Arc::new(Self { clock, state, news: Notify::new(), places }))
    }

    /// Waits for a permit. Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`Refusal::QueueFull`] or [`Refusal::QueueTimeout`].
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Permit, Refusal> {
        self.wait_for(Admission::arrive).await
    }

    /// Waits for a permit in place of one that was laid by. Dropping the future gives up.
    ///
    /// # Errors
    /// [`Refusal::QueueTimeout`].
    pub(crate) async fn resume(self: &Arc<Self>, _place: &Place) -> Result<Permit, Refusal> {
        self.wait_for(Admission::resume).await
    }

    async fn wait_for(
        self: &Arc<Self>,
        ask: impl FnOnce(&mut Admission, u64) -> Arrival,
    ) -> Result<Permit, Refusal> {
        let (ticket, word) = {
            let now_ns = self.clock.now_ns();
            let mut state = self.state.lock();
            match ask(&mut state.machine, now_ns) {
                Arrival::Admitted => return Ok(Permit(Arc::clone(self))),
                Arrival::Full { retry_after_ns } => {
                    return Err(Refusal::QueueFull { retry_after_secs: whole_seconds(retry_after_ns) });
                }
                Arrival::Queued(ticket) => {
                    let (give, word) = oneshot::channel();
                    state.waiting.insert(ticket, give);
                    (ticket, word)
                }
            }
        };
        self.news.notify_one();
        let _waiting = Waiting { gate: self, ticket };
        match word.await {
            Ok(Some(permit)) => Ok(permit),
            Ok(None) | Err(_) => Err(self.overdue()),
        }
    }

    /// What a request is told that has waited for too long.
    pub(crate) fn overdue(&self) -> Refusal {
        let retry_after_ns = self.state.lock().machine.retry_after_ns(self.clock.now_ns());
        Refusal::QueueTimeout { retry_after_secs: whole_seconds(retry_after_ns) }
    }

    /// What a request is told that may not even wait.
    fn full(&self) -> Refusal {
        let retry_after_ns = self.state.lock().machine.retry_after_ns(self.clock.now_ns());
        Refusal::QueueFull { retry_after_secs: whole_seconds(retry_after_ns) }
    }

    /// Tells waiting requests what has been decided about them, for ever.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            let next_ns = self.state.lock().machine.next_deadline();
            match next_ns {
                None => self.news.notified().await,
                Some(next_ns) => tokio::select! {
                    () = self.news.notified() => {}
                    () = tokio::time::sleep_until(self.clock.instant(next_ns)) => {}
                },
            }
            self.change(|_, _| {});
        }
    }

    /// How full it is.
    pub(crate) fn occupancy(&self) -> QueueRow {
        let state = self.state.lock();
        QueueRow { waiting: state.machine.waiting() as u64, in_use: u64::from(state.machine.in_use()) }
    }

    /// Changes the state and passes on what follows. Words are given outside the lock: one whose receiver has gone
    /// comes back as a permit, and returns here.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State, u64)) {
        let now_ns = self.clock.now_ns();
        let (mut admitted, mut expired) = (Vec::new(), Vec::new());
        let words: Vec<(Waiter, bool)> = {
            let mut state = self.state.lock();
            change(&mut state, now_ns);
            state.machine.settle(now_ns, &mut admitted, &mut expired);
            let all = admitted.iter().map(|ticket| (ticket, true));
            let all = all.chain(expired.iter().map(|ticket| (ticket, false)));
            all.filter_map(|(ticket, may)| Some((state.waiting.remove(ticket)?, may))).collect()
        };
        for (waiter, may) in words {
            // One that comes back is dropped, and so released.
            let _ = waiter.send(may.then(|| Permit(Arc::clone(self))));
        }
    }
}

impl Permit {
    /// Whether there are so many of them and no more.
    pub(crate) fn is_scarce(&self) -> bool {
        self.0.places.is_some()
    }

    /// Gives it back because the body comes slowly.
    ///
    /// # Errors
    /// [`Refusal::QueueFull`]: too many bodies come slowly.
    pub(crate) fn lay_by(self) -> Result<Place, Refusal> {
        let gate = Arc::clone(&self.0);
        drop(self);
        let place = gate.places.as_ref().and_then(|places| Arc::clone(places).try_acquire_owned().ok());
        place.map(Place).ok_or_else(|| gate.full())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.change(|state, now_ns| state.machine.release(now_ns));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let ticket = self.ticket;
        self.gate.change(|state, now_ns| {
            // Absent once it has been told; then the word itself holds the permit.
            if state.waiting.remove(&ticket).is_some() {
                state.machine.abandon(now_ns, ticket);
            }
        });
    }
}
