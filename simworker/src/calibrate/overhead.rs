//! What a client waits beyond the steps of the engine.

use super::fit::{STANDARD_ERRORS, is_time};
use super::robust::{median, slope};
use super::samples::Samples;

/// Of a request, by the engine's clock, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Overhead {
    pub(super) ns: f64,
    /// Half of an interval that has the truth in 95 of 100 cases.
    pub(super) half_width_ns: f64,
}

/// What may wake up for a request on either side, beyond the way there and back, by the client's clock.
const WAKING_NS: f64 = 300e3;
/// Standard deviation over median distance from the median, of normal errors.
const DEVIATION_PER_DISTANCE: f64 = 1.4826;
/// Standard error of a median over that of a mean: √(π/2). The quartile that is taken here is a little worse, which the time for
/// waking up covers.
const MEDIAN_ERROR: f64 = 1.2533;

/// What a client waits beyond the engine's steps and the way to the worker and back. Nothing if the client's times do not
/// grow with the engine's.
pub(super) fn of(samples: &Samples) -> Option<(Overhead, Vec<String>)> {
    let points: Vec<(f64, f64)> = samples.overhead.iter().flatten().copied().collect();
    // A mock at another speed has another clock than its clients.
    let pace = slope(&points)?;
    let mut waits: Vec<f64> = points.iter().map(|(x, y)| y - pace * x).collect();
    // Whatever disturbs a client makes it wait longer: the quarter that waits least is the truest.
    let middle = median(&mut waits)?;
    let waited = waits[waits.len() / 4];
    let ns = (waited - samples.round_trip_ns) / pace;
    if !is_time(pace) || !ns.is_finite() {
        return None;
    }
    let mut distances: Vec<f64> = waits.iter().map(|wait| (wait - middle).abs()).collect();
    let deviation = DEVIATION_PER_DISTANCE * median(&mut distances)?;
    let half_width = STANDARD_ERRORS * MEDIAN_ERROR * deviation / (points.len() as f64).sqrt();
    let overhead = Overhead {
        ns: ns.max(0.0),
        half_width_ns: (half_width + WAKING_NS + 2.0 * samples.round_trip_more_ns) / pace,
    };
    let is_same = (pace - 1.0).abs() < 0.05;
    let note = format!(
        "The engine's clock runs {:.2} times as fast as the client's, and what disturbs the client counts as many times: \
         measure the overhead of a request at the client's pace.",
        1.0 / pace
    );
    Some((overhead, if is_same { Vec::new() } else { vec![note] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that wait 3 ms beyond their steps at this pace, and what waking up adds to that.
    fn samples(pace: f64, waking_ns: f64) -> Samples {
        let mut samples = Samples::default();
        samples.round_trip_ns = 100e3;
        for at in 0..10 {
            let busy = 10e6 + 5e6 * at as f64;
            samples.add_overhead(at, busy, (busy + 3e6) * pace + 100e3 + waking_ns);
        }
        samples
    }

    #[test]
    fn the_interval_grows_with_the_speed_of_the_engine() {
        for (pace, notes) in [(1.0, 0), (0.05, 1)] {
            let (overhead, remarks) = of(&samples(pace, 200e3)).unwrap();
            assert!((overhead.ns - 3e6).abs() <= overhead.half_width_ns, "{pace}: {overhead:?}");
            assert_eq!(remarks.len(), notes, "{remarks:?}");
            assert_eq!(overhead.half_width_ns > overhead.ns / 2.0, pace < 1.0, "{pace}: {overhead:?}");
        }
    }
}
