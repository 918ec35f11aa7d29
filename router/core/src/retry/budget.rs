//! The budget of all requests' retries.

/// How long a request or a retry counts, in nanoseconds.
const WINDOW_NS: u64 = 10_000_000_000;

/// Parts of the window: what is counted in one of them is forgotten together.
const SLOTS: u64 = 20;

const SLOT_NS: u64 = WINDOW_NS / SLOTS;

/// Keeps the retries of the last ten seconds to a share of the requests of the same time, plus a floor that lets a small
/// service retry at all. It forgets in steps of half a second, so that its memory does not grow with traffic.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    share: f64,
    floor: u32,
    /// The slot of the latest call; slots are numbered from the beginning of time.
    slot: u64,
    /// What was counted in each of the last [`SLOTS`] slots; slot n is at n modulo their number.
    ring: [Counts; SLOTS as usize],
    /// The sum of the ring.
    window: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    requests: u64,
    retries: u64,
}

impl RetryBudget {
    /// At most `percent` retries per hundred requests, and `floor` more.
    #[must_use]
    pub fn new(percent: f64, floor: u32) -> Self {
        let ring = [Counts::default(); SLOTS as usize];
        Self { share: (percent / 100.0).max(0.0), floor, slot: 0, ring, window: Counts::default() }
    }

    /// A request came (not a retry).
    pub fn arrived(&mut self, now_ns: u64) {
        self.advance(now_ns);
        self.current().requests += 1;
        self.window.requests += 1;
    }

    /// Whether one more retry is allowed; if so it is counted.
    pub fn draw(&mut self, now_ns: u64) -> bool {
        self.advance(now_ns);
        let allowed = self.share * self.window.requests as f64 + f64::from(self.floor);
        let granted = (self.window.retries + 1) as f64 <= allowed;
        if granted {
            self.current().retries += 1;
            self.window.retries += 1;
        }
        granted
    }

    /// Forgets what is too old. Of clocks read on several threads one may be a little behind: that counts as now.
    fn advance(&mut self, now_ns: u64) {
        let slot = (now_ns / SLOT_NS).max(self.slot);
        let steps = (slot - self.slot).min(SLOTS);
        self.slot = slot;
        for step in 0..steps {
            let forgotten = std::mem::take(self.at(slot - step));
            self.window.requests -= forgotten.requests;
            self.window.retries -= forgotten.retries;
        }
    }

    fn current(&mut self) -> &mut Counts {
        self.at(self.slot)
    }

    fn at(&mut self, slot: u64) -> &mut Counts {
        &mut self.ring[(slot % SLOTS) as usize]
    }
}
