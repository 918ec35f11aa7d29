//! The scaled clock: engine time runs `speed` times as fast as real time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Maps real time to engine time. Copies share the origin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScaledClock {
    origin: Instant,
    /// Wall time of the origin. Read once, so that a moment has the same wall time whenever it is asked for.
    origin_unix_s: f64,
    speed: f64,
}

impl ScaledClock {
    /// A clock that starts now. `speed` is finite and above zero.
    pub(crate) fn start(speed: f64) -> Self {
        Self { origin: Instant::now(), origin_unix_s: unix_seconds(), speed }
    }

    /// Engine seconds per real second.
    pub(crate) fn speed(&self) -> f64 {
        self.speed
    }

    /// Engine time in nanoseconds. (A double counts nanoseconds exactly for 104 days.)
    pub(crate) fn now_ns(&self) -> u64 {
        (self.origin.elapsed().as_nanos() as f64 * self.speed) as u64
    }

    /// Real time since the start in nanoseconds.
    pub(crate) fn real_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Wall time of an engine time, seconds since the epoch.
    pub(crate) fn unix_s(&self, engine_ns: u64) -> f64 {
        self.origin_unix_s + engine_ns as f64 / 1e9 / self.speed
    }

    /// The moment at which engine time reaches `engine_ns`; `None` if that is years away.
    pub(crate) fn instant(&self, engine_ns: u64) -> Option<Instant> {
        let wall_ns = (engine_ns as f64 / self.speed).ceil();
        (wall_ns < 1e17).then(|| self.origin + Duration::from_nanos(wall_ns as u64))
    }
}

/// Wall time, seconds since the epoch.
pub(crate) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// `unix_seconds` as RFC 3339 in UTC with microseconds.
pub(crate) fn rfc3339(unix_seconds: f64) -> String {
    let micros = (unix_seconds * 1e6) as u64;
    let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
}

/// The date `days` after 1970-01-01, counted in 400-year cycles of 146,097 days that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (cycle, day_of_cycle) = (shifted / 146_097, shifted % 146_097);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (cycle * 400 + year_of_cycle + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0.0), "1970-01-01T00:00:00.000000+00:00");
        assert_eq!(rfc3339(951_782_400.25), "2000-02-29T00:00:00.250000+00:00");
        assert_eq!(rfc3339(1_767_225_599.0), "2025-12-31T23:59:59.000000+00:00");
    }

    #[test]
    fn an_instant_is_not_before_its_engine_time() {
        for speed in [0.3, 1.0, 50.0] {
            let clock = ScaledClock::start(speed);
            for engine_ns in [0, 1, 999, 123_456_789, 3_600_000_000_000] {
                let wall = clock.instant(engine_ns).unwrap().duration_since(clock.origin).as_nanos() as f64;
                assert!((wall * speed) as u64 >= engine_ns.saturating_sub(1));
            }
            assert_eq!(clock.instant(u64::MAX), None);
        }
    }
}
