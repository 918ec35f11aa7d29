//! Rooms that the decode side was faster to ask for than their requests were to come.

use super::Timed;

/// Most rooms that are remembered; the oldest go first.
const MOST_ROOMS: usize = 1 << 16;

/// Rooms that were asked for, each for as long as somebody may be waiting for it.
#[derive(Debug)]
pub(crate) struct Wanted {
    rooms: Timed<u64, ()>,
    patience_ns: u64,
}

impl Wanted {
    /// None yet; each is remembered for so long.
    pub(crate) fn new(patience_ns: u64) -> Self {
        Self { rooms: Timed::new(), patience_ns }
    }

    /// A room was asked for.
    pub(crate) fn remember(&mut self, now_ns: u64, room: u64) {
        self.expire(now_ns);
        if self.rooms.contains(room) {
            return;
        }
        if self.rooms.len() >= MOST_ROOMS {
            self.rooms.take_first();
        }
        self.rooms.insert(room, now_ns.saturating_add(self.patience_ns), ());
    }

    /// Whether a room was asked for not too long ago. That is forgotten with this.
    pub(crate) fn take(&mut self, now_ns: u64, room: u64) -> bool {
        self.expire(now_ns);
        self.rooms.take(room).is_some()
    }

    /// Nobody will ask for that room any more, or has in vain.
    pub(crate) fn forget(&mut self, room: u64) {
        self.rooms.take(room);
    }

    /// How many rooms are remembered.
    pub(crate) fn count(&mut self, now_ns: u64) -> usize {
        self.expire(now_ns);
        self.rooms.len()
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.rooms.check()
    }

    fn expire(&mut self, now_ns: u64) {
        while self.rooms.take_expired(now_ns).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_remembered_for_a_while_and_the_oldest_go_first() {
        let mut wanted = Wanted::new(100);
        wanted.remember(0, 1);
        wanted.remember(50, 1);
        wanted.remember(50, 2);
        assert!(!wanted.take(100, 1), "since it was asked for first");
        assert!(wanted.take(149, 2) && !wanted.take(149, 2), "once");
        wanted.remember(150, 3);
        wanted.forget(3);
        assert!(!wanted.take(150, 3));
        (0..=MOST_ROOMS as u64).for_each(|room| wanted.remember(200 + room.min(1), room));
        assert!(!wanted.take(201, 0) && wanted.take(201, 1) && wanted.take(201, MOST_ROOMS as u64));
        wanted.check().unwrap();
    }
}
