//! The requests that are being handled, by the time of their arrival, so that old ones show.

use parking_lot::Mutex;

/// The gateway's age limits in seconds.
const AGES: [u64; 11] = [30, 60, 180, 300, 600, 1200, 3600, 7200, 14_400, 28_800, 86_400];

/// A request's place: the thread that serves it, and where it stands in that one's table.
#[derive(Debug)]
pub(crate) struct Slot {
    thread: usize,
    at: usize,
}

/// A table for each thread, whose lock nobody else wants but those who look.
#[derive(Debug)]
pub(crate) struct InFlight(Box<[Apart<Mutex<Table>>]>);

/// Its size is the largest number of requests that the thread ever served at once.
#[derive(Debug, Default)]
struct Table {
    /// Arrival in nanoseconds; `None` where nobody is.
    arrivals: Vec<Option<u64>>,
    free: Vec<usize>,
}

/// What no other value shares its cache line with, nor the next one, which processors fetch as well.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// How many requests are older than one limit and not than the next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgeBand {
    pub(super) above_secs: u64,
    /// `None` without limit.
    pub(super) up_to_secs: Option<u64>,
    pub(super) requests: u64,
}

impl InFlight {
    /// Nobody yet, on this many threads.
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Apart::default()).collect())
    }

    /// A request arrived on this thread.
    pub(crate) fn enter(&self, thread: usize, now_ns: u64) -> Slot {
        let mut table = self.0[thread].0.lock();
        let at = if let Some(at) = table.free.pop() {
            table.arrivals[at] = Some(now_ns);
            at
        } else {
            table.arrivals.push(Some(now_ns));
            table.arrivals.len() - 1
        };
        Slot { thread, at }
    }

    /// It is over. A slot cannot be copied, so nobody leaves twice.
    pub(crate) fn leave(&self, slot: Slot) {
        let mut table = self.0[slot.thread].0.lock();
        table.arrivals[slot.at] = None;
        table.free.push(slot.at);
    }

    pub(super) fn len(&self) -> u64 {
        let tables = self.0.iter().map(|table| table.0.lock());
        tables.map(|table| (table.arrivals.len() - table.free.len()) as u64).sum()
    }

    /// The requests by age, not cumulated.
    pub(super) fn ages(&self, now_ns: u64) -> Vec<AgeBand> {
        let lower = [0].into_iter().chain(AGES);
        let upper = AGES.into_iter().map(Some).chain([None]);
        let mut bands: Vec<AgeBand> = lower
            .zip(upper)
            .map(|(above_secs, up_to_secs)| AgeBand { above_secs, up_to_secs, requests: 0 })
            .collect();
        for table in &self.0 {
            for arrived_ns in table.0.lock().arrivals.iter().flatten() {
                let age_ns = now_ns.saturating_sub(*arrived_ns);
                let band =
                    AGES.iter().position(|limit| age_ns <= limit * 1_000_000_000).unwrap_or(AGES.len());
                bands[band].requests += 1;
            }
        }
        bands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn each_request_is_in_one_band_until_it_leaves() {
        let table = InFlight::new(2);
        let slots = [(0, 0), (1, 70), (1, 100), (0, 100)];
        let slots = slots.map(|(thread, second)| table.enter(thread, second * SECOND));
        let shown = || -> Vec<(u64, u64)> {
            let bands = table.ages(100 * SECOND).into_iter().filter(|band| band.requests > 0);
            bands.map(|band| (band.above_secs, band.requests)).collect()
        };
        assert_eq!(shown(), [(0, 3), (60, 1)], "the limit belongs to the band below");
        let [oldest, ..] = slots;
        table.leave(oldest);
        assert_eq!((shown(), table.len()), (vec![(0, 3)], 3));
        table.enter(0, 99 * SECOND);
        assert_eq!(table.len(), 4);
        let last = table.ages(200_000 * SECOND).pop().expect("bands");
        assert_eq!(last, AgeBand { above_secs: 86_400, up_to_secs: None, requests: 4 });
    }
}
