//! What a finished step brings: tokens, KV to share, ends.
//!
//! A result has two halves. What has been *computed* shapes the next step: a request whose prompt is complete
//! decodes, one that has all its tokens does not. What has become *known* is told to clients, shared in the cache
//! and makes room. Usually both come together; with the overlap schedule the next step is chosen in between, without
//! the second half, which is [`Hidden`] from it.

use super::Scheduler;
use super::admission::PrefillBatch;
use super::admitted::Admitted;
use super::meters::Meters;
use super::side::Side;
use crate::cache::KvCache;
use crate::request::{Event, RequestId};
use crate::time::Ticks;

/// The results of a step that nobody has been told of.
#[derive(Debug)]
pub(crate) enum Hidden {
    /// Of a prefill step, in the order of the batch.
    Prefill(Vec<Fate>),
    /// Of a decode step: the requests that it was the last one for.
    Decode(Vec<Admitted>),
}

/// What becomes of a request after a prefill step.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It got a token and has joined the running batch.
    Joined,
    /// It got its only token, or was aborted.
    Ended(Admitted),
    /// It was aborted with a part of its prompt computed, and got no token.
    Cut(Admitted),
}

impl Hidden {
    /// Requests that have joined the running batch with a token that is not known.
    pub(crate) fn joined(&self) -> usize {
        match self {
            Self::Prefill(fates) => fates.iter().filter(|fate| matches!(fate, Fate::Joined)).count(),
            Self::Decode(_) => 0,
        }
    }

    /// Requests whose end is not known.
    pub(crate) fn leaving(&self) -> usize {
        match self {
            Self::Prefill(fates) => fates.len() - self.joined(),
            Self::Decode(ended) => ended.len(),
        }
    }

    /// Those of them that have had tokens in the running batch.
    pub(crate) fn leaving_told(&self) -> usize {
        match self {
            Self::Prefill(_) => 0,
            Self::Decode(ended) => ended.len(),
        }
    }

    /// The requests whose end is not known, and how many tokens of each are.
    pub(crate) fn leaving_outputs(&self) -> impl Iterator<Item = (RequestId, u32)> {
        let (fates, ended) = match self {
            Self::Prefill(fates) => (fates.as_slice(), &[][..]),
            Self::Decode(ended) => (&[][..], ended.as_slice()),
        };
        let of_prefill = fates.iter().filter_map(|fate| match fate {
            Fate::Joined => None,
            Fate::Ended(Admitted { request, .. }) => Some((request.id, request.produced - 1)),
            Fate::Cut(Admitted { request, .. }) => Some((request.id, request.produced)),
        });
        of_prefill.chain(ended.iter().map(|ended| (ended.request.id, ended.request.produced - 1)))
    }

    pub(crate) fn leaving_mut(&mut self) -> impl Iterator<Item = &mut Admitted> {
        let (fates, ended) = match self {
            Self::Prefill(fates) => (fates.as_mut_slice(), &mut [][..]),
            Self::Decode(ended) => (&mut [][..], ended.as_mut_slice()),
        };
        let of_prefill = fates.iter_mut().filter_map(|fate| match fate {
            Fate::Joined => None,
            Fate::Ended(admitted) | Fate::Cut(admitted) => Some(admitted),
        });
        of_prefill.chain(ended)
    }
}

// === impl Scheduler: what has been computed ===

impl Scheduler {
    /// The prefill step in progress, which took `span`, has ended.
    pub(crate) fn prefill_done(&mut self, at_ns: u64, span: Ticks, events: &mut Vec<Event>) {
        let Some(batch) = self.prefill.take() else { return };
        self.meters.prefill(batch.work().new_tokens(), batch.cached(), span);
        let landed = self.land_prefill(batch);
        self.send_chunk(at_ns);
        self.hidden = Some(landed);
        self.reveal_unless_overlapped(at_ns, events);
    }

    fn land_prefill(&mut self, batch: PrefillBatch) -> Hidden {
        let (whole, chunk) = batch.into_parts();
        let mut fates = Vec::with_capacity(whole.len());
        let mut joining = Vec::with_capacity(whole.len());
        for mut admitted in whole {
            let request = &mut admitted.request;
            request.produced += 1;
            self.meters.totals.generated_tokens += 1;
            if request.stop.is_some() || request.produced >= request.max_new {
                fates.push(Fate::Ended(admitted));
            } else {
                fates.push(Fate::Joined);
                joining.push(admitted);
            }
        }
        self.running.join(joining, &mut self.cache);
        match chunk {
            Some(chunk) if chunk.request.stop.is_some() => fates.push(Fate::Cut(chunk)),
            rest => self.chunked = rest,
        }
        Hidden::Prefill(fates)
    }

    /// The decode step in progress, which took `span`, has ended.
    pub(crate) fn decode_done(&mut self, at_ns: u64, span: Ticks, events: &mut Vec<Event>) {
        self.meters.decode(self.running.len() as u64, at_ns, span);
        self.running.land();
        self.hidden = Some(Hidden::Decode(self.running.take_ended(&mut self.cache)));
        self.reveal_unless_overlapped(at_ns, events);
    }

    fn reveal_unless_overlapped(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        if !self.config.overlap {
            self.reveal(at_ns, events);
        }
    }
}

// === impl Scheduler: what becomes known ===

impl Scheduler {
    /// Tells of the results that are hidden.
    pub(super) fn reveal(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        match self.hidden.take() {
            None => {}
            Some(Hidden::Decode(ended)) => self.reveal_decode(ended, at_ns, events),
            Some(hidden) => self.reveal_prefill(hidden, at_ns, events),
        }
        self.tell_joined(at_ns, events);
    }

    fn reveal_decode(&mut self, ended: Vec<Admitted>, at_ns: u64, events: &mut Vec<Event>) {
        self.running.tell_step(at_ns, events);
        for admitted in ended {
            self.running.tell_left();
            self.finish(admitted, at_ns, events);
        }
    }

    fn reveal_prefill(&mut self, hidden: Hidden, at_ns: u64, events: &mut Vec<Event>) {
        let joined = hidden.joined();
        let Hidden::Prefill(fates) = hidden else { return };
        let mut newest = self.running.newest(joined);
        for fate in fates {
            match fate {
                Fate::Joined => {
                    let Some(admitted) = newest.next() else { continue };
                    admitted.checkpoint(&mut self.cache);
                    tell_token(admitted, at_ns, events);
                }
                Fate::Ended(mut admitted) => {
                    tell_token(&mut admitted, at_ns, events);
                    leave(admitted, &mut self.side, &mut self.cache, &mut self.meters, at_ns, events);
                    self.full = false;
                }
                Fate::Cut(admitted) => {
                    leave(admitted, &mut self.side, &mut self.cache, &mut self.meters, at_ns, events);
                    self.full = false;
                }
            }
        }
        drop(newest);
        self.running.tell_joined(at_ns, joined);
    }

    pub(super) fn finish(&mut self, admitted: Admitted, at_ns: u64, events: &mut Vec<Event>) {
        finish(admitted, &mut self.cache, &mut self.meters, at_ns, events);
        self.full = false;
    }
}

/// Tells of the token that a prefill gave: the first, or the next one of a request that had been retracted.
pub(super) fn tell_token(admitted: &mut Admitted, at_ns: u64, events: &mut Vec<Event>) {
    let request = &mut admitted.request;
    events.push(match request.produced {
        1 => Event::FirstToken { id: request.id, at_ns, cached_tokens: request.cached_tokens() },
        _ => Event::Step { at_ns, gap_ns: at_ns - request.token_ns, tokens: 1 },
    });
    request.token_ns = at_ns;
}

/// What comes after a prefill that gave the only token, or was cut short: the end, or the way to the decode side.
fn leave(
    mut admitted: Admitted,
    side: &mut Side,
    cache: &mut KvCache,
    meters: &mut Meters,
    at_ns: u64,
    events: &mut Vec<Event>,
) {
    if let Side::Prefill(sender) = side {
        if admitted.request.stop.is_none() {
            admitted.checkpoint(cache);
            return sender.send_rest(at_ns, admitted);
        }
        sender.cancel(at_ns, admitted.request.id);
    }
    finish(admitted, cache, meters, at_ns, events);
}

fn finish(admitted: Admitted, cache: &mut KvCache, meters: &mut Meters, at_ns: u64, events: &mut Vec<Event>) {
    let reason = admitted.request.reason();
    let finish = admitted.finish(cache, at_ns, reason);
    meters.ended(&finish);
    events.push(finish);
}
