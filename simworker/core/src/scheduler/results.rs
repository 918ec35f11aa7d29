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
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    /// Of the prefill batch, in its order; none of a decode step.
    prefilled: Option<Vec<Fate>>,
    /// Whether the running batch has made a step.
    stepped: bool,
    /// The requests that it was the last one for, as was known before.
    ended: Vec<Admitted>,
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
    fn fates(&self) -> &[Fate] {
        self.prefilled.as_deref().unwrap_or_default()
    }

    /// Requests that have joined the running batch with a token that is not known.
    pub(crate) fn joined(&self) -> usize {
        self.fates().iter().filter(|fate| matches!(fate, Fate::Joined)).count()
    }

    /// Whether they are those of a prefill step.
    pub(crate) fn is_prefill(&self) -> bool {
        self.prefilled.is_some()
    }

    /// Whether the newest token of all that run is not known.
    pub(crate) fn stepped(&self) -> bool {
        self.stepped
    }

    /// Requests whose end is not known, though nothing more will be computed for them.
    pub(crate) fn leaving(&self) -> usize {
        self.fates().len() - self.joined() + self.ended.len()
    }

    /// Those of them that have had tokens in the running batch.
    pub(crate) fn leaving_told(&self) -> usize {
        self.ended.len()
    }

    /// The requests whose end is not known, and how many tokens of each are.
    pub(crate) fn leaving_outputs(&self) -> impl Iterator<Item = (RequestId, u32)> {
        let of_prefill = self.fates().iter().filter_map(|fate| match fate {
            Fate::Joined => None,
            Fate::Ended(Admitted { request, .. }) => Some((request.id, request.produced.saturating_sub(1))),
            Fate::Cut(Admitted { request, .. }) => Some((request.id, request.produced)),
        });
        of_prefill.chain(self.ended.iter().map(|ended| (ended.request.id, ended.request.produced - 1)))
    }

    pub(crate) fn leaving_mut(&mut self) -> impl Iterator<Item = &mut Admitted> {
        let of_prefill = self.prefilled.iter_mut().flatten().filter_map(|fate| match fate {
            Fate::Joined => None,
            Fate::Ended(admitted) | Fate::Cut(admitted) => Some(admitted),
        });
        of_prefill.chain(&mut self.ended)
    }
}

// === impl Scheduler: what has been computed ===

impl Scheduler {
    /// The prefill step in progress, which took `span`, has ended, and with it one of the running batch if it took part.
    pub(crate) fn prefill_done(&mut self, at_ns: u64, span: Ticks, events: &mut Vec<Event>) {
        if !self.config.overlap {
            self.take_snapshot(at_ns);
        }
        let Some(batch) = self.prefill.take() else { return };
        self.meters.prefill(batch.work().new_tokens(), batch.cached(), span);
        let stepped = self.running.is_in_step();
        if stepped {
            self.meters.totals.generated_tokens += self.running.len() as u64;
        }
        let ended = self.land_running();
        let prefilled = Some(self.land_prefill(batch));
        self.send_chunk(at_ns);
        self.hidden = Some(Hidden { prefilled, stepped, ended });
        self.reveal_unless_overlapped(at_ns, events);
    }

    /// The step of the running batch has ended. Gives back those that it was the last one for, as far as SGLang knows
    /// that before it has seen their last tokens.
    fn land_running(&mut self) -> Vec<Admitted> {
        self.running.land();
        self.running.take_ended(&mut self.cache, self.config.overlap)
    }

    fn land_prefill(&mut self, batch: PrefillBatch) -> Vec<Fate> {
        let (whole, chunk) = batch.into_parts();
        let mut fates = Vec::with_capacity(whole.len());
        let mut joining = Vec::with_capacity(whole.len());
        for mut admitted in whole {
            let request = &mut admitted.request;
            if request.max_new > 0 {
                request.produced += 1;
                self.meters.totals.generated_tokens += 1;
            }
            let has_ended = request.stop.is_some() || request.produced >= request.length;
            if has_ended && (!self.config.overlap || request.must_end(request.produced)) {
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
        fates
    }

    /// The decode step in progress, which took `span`, has ended.
    pub(crate) fn decode_done(&mut self, at_ns: u64, span: Ticks, events: &mut Vec<Event>) {
        if !self.config.overlap {
            self.snapshot_after_decode(at_ns);
        }
        self.meters.decode(self.running.in_step(), self.running.len() as u64, at_ns, span);
        let ended = self.land_running();
        self.hidden = Some(Hidden { prefilled: None, stepped: true, ended });
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
        let reports = self.reports(self.hidden.as_ref());
        match &self.hidden {
            Some(Hidden { prefilled: Some(_), .. }) if self.config.overlap => self.take_snapshot(at_ns),
            Some(_) if self.config.overlap => self.snapshot_after_decode(at_ns),
            _ => {}
        }
        if let Some(Hidden { prefilled, stepped, ended }) = self.hidden.take() {
            if stepped {
                self.reveal_step(ended, at_ns, events);
            }
            if let Some(fates) = prefilled {
                self.reveal_prefill(fates, at_ns, events);
            }
            // The last tokens of these are seen only now.
            for admitted in self.running.take_surprises(&mut self.cache) {
                self.finish(admitted, at_ns, events);
            }
        }
        self.tell_joined(at_ns, events);
        if reports {
            self.flush_kv_events(at_ns, events);
        }
    }

    fn reveal_step(&mut self, ended: Vec<Admitted>, at_ns: u64, events: &mut Vec<Event>) {
        self.running.tell_step(at_ns, events);
        for admitted in ended {
            self.running.tell_left();
            self.finish(admitted, at_ns, events);
        }
    }

    fn reveal_prefill(&mut self, fates: Vec<Fate>, at_ns: u64, events: &mut Vec<Event>) {
        let joined = fates.iter().filter(|fate| matches!(fate, Fate::Joined)).count();
        let mut newest = self.running.newest(joined);
        for fate in fates {
            match fate {
                Fate::Joined => {
                    let Some(admitted) = newest.next() else { continue };
                    admitted.checkpoint(&mut self.cache);
                    tell_token(admitted, at_ns, events);
                }
                Fate::Ended(mut admitted) => {
                    if admitted.request.produced > 0 {
                        tell_token(&mut admitted, at_ns, events);
                    }
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
        1 => Event::FirstToken {
            id: request.id,
            at_ns,
            cached_tokens: request.cached_tokens(),
            host_tokens: request.host_tokens(),
            queue_ns: request.first_run.map_or(0, |run| run.queue_ns),
        },
        _ => Event::Step { at_ns, gap_ns: at_ns - request.token_ns, tokens: 1 },
    });
    request.token_ns = at_ns;
}

/// What comes after a prefill that gave the only token, or was cut short: the end, or the way to the decode side.
pub(super) fn leave(
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
