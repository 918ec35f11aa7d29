//! The prefill leg beside an answer that has begun. Its answer is read whether the client reads or not, so that its lease
//! ends with it.
//!
//! That it is silent does no harm while decode's answer goes on. Once that is whole, prefill has nothing left to do: if it does not
//! say so within a moment, it has failed.

use std::sync::Arc;
use std::time::Duration;

use protocol::pd;
use router_core::Outcome;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::attempt::Failure;
use super::call::Prefilled;
use super::call_off::CallOff;
use super::prepare::BookedLeg;
use super::race::Running;
use super::rooms::Taken;
use crate::error::Half;

/// As long as the prefill leg may take after the end of decode's answer. Its engine says that it is done when the KV has gone, which was
/// before decode's first token, but at the latest after the step that is under way.
const GRACE: Duration = Duration::from_secs(5);

/// It. Dropping it ends the leg: the client has gone.
#[derive(Debug)]
pub(super) struct Beside {
    task: Option<JoinHandle<()>>,
    decode: Option<oneshot::Sender<Decode>>,
}

/// How decode's answer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decode {
    Whole,
    Failed,
}

/// The leg in its task.
struct Alone {
    leg: BookedLeg,
    call_off: CallOff,
    _rooms: Arc<Taken>,
}

impl Beside {
    /// From now on the leg runs by itself. What goes wrong with it is told here: nobody else asks.
    pub(super) fn begin(running: Running, leg: BookedLeg, rooms: Arc<Taken>, call_off: CallOff) -> Self {
        let (decode, ended) = oneshot::channel();
        let alone = Alone { leg, call_off, _rooms: rooms };
        Self { task: Some(tokio::spawn(alone.run(running, ended))), decode: Some(decode) }
    }

    /// The other leg's answer is whole: this one may go on for a moment.
    pub(super) fn release(self) {
        self.tell(Decode::Whole);
    }

    /// The other leg has failed.
    pub(super) fn cancel(self) {
        self.tell(Decode::Failed);
    }

    fn tell(mut self, how: Decode) {
        self.task = None;
        if let Some(decode) = self.decode.take() {
            // If the leg is over, nobody listens.
            let _ = decode.send(how);
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

impl Alone {
    async fn run(mut self, mut running: Running, decode: oneshot::Receiver<Decode>) {
        let ended = tokio::select! {
            biased;
            ended = &mut running => Some(ended),
            is_late = lateness(decode) => is_late.then_some(Err(Failure::Lingering { grace: GRACE })),
        };
        // Closes the connection, if it is not at its end.
        drop(running);
        match ended {
            Some(Ok(Prefilled::Done(_))) => self.leg.booking.complete(),
            Some(Ok(Prefilled::Refused(begun))) => {
                let failed = pd::Failed { status: begun.response.status().as_u16(), hand_off: None };
                self.leg.blame_beside(&self.call_off.id, &Failure::GivenUp { leg: Half::Prefill, failed });
            }
            Some(Err(failure)) if failure.is_of_request() => self.leg.booking.complete(),
            Some(Err(failure)) => {
                let Self { leg, call_off, .. } = self;
                let id = call_off.id.clone();
                if let Failure::Lingering { .. } = failure {
                    drop(call_off.begin());
                }
                leg.blame_beside(&id, &failure);
            }
            None => {
                drop(self.call_off.begin());
                self.leg.booking.fail(Outcome::Refused);
            }
        }
    }
}

/// Ends when the leg is to end, with whether it is too late then.
async fn lateness(decode: oneshot::Receiver<Decode>) -> bool {
    match decode.await {
        Ok(Decode::Whole) => {
            tokio::time::sleep(GRACE).await;
            true
        }
        Ok(Decode::Failed) => false,
        // The task is about to be aborted.
        Err(_) => std::future::pending().await,
    }
}
