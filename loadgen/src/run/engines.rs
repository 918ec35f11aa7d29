//! What the workers held over time. Only virtual runs can look inside their engines.
//!
//! A [`Recorder`] looks without touching: it reads an engine as its last event has left it, so a run is the same whether it
//! is looked at or not. How long a run takes is not known before its end, so there are samples up to a limit, and then every
//! second one goes and the distance between them doubles.

/// Samples of a timeline at most, and how many figures of workers it has in all, about.
const MOST_SAMPLES: usize = 240;
const MOST_FIGURES: usize = 120_000;
/// Samples at least, however many workers there are.
const FEWEST_SAMPLES: usize = 60;
/// The first distance between samples, at least.
const SHORTEST_NS: u64 = 1_000_000;

/// What a worker held at one moment, over all its ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EngineSample {
    /// Requests that it has taken and not ended.
    pub in_flight: u32,
    /// Prompt tokens that wait to be computed, as the engine estimates them.
    pub queued_tokens: u64,
    /// Share of its KV that holds something, needed or only cached.
    pub fill: f64,
    /// Tokens evicted from its cache since the start.
    pub evicted_tokens: u64,
}

/// The workers of a fleet at evenly spaced moments; without samples where nobody could look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineTimeline {
    /// Distance between samples, in nanoseconds.
    pub interval_ns: u64,
    /// `samples[i][w]`: worker `w` at `i * interval_ns`.
    pub samples: Vec<Box<[EngineSample]>>,
    /// The workers at the end of the run.
    pub last: Box<[EngineSample]>,
}

/// Makes a timeline of a run as it goes on.
#[derive(Debug)]
pub(crate) struct Recorder {
    timeline: EngineTimeline,
    most: usize,
    due_ns: u64,
    /// Of every worker: what it had evicted when it was last looked at, and what its predecessors had.
    evicted: Vec<(u64, u64)>,
}

impl Recorder {
    /// For a run of `workers` workers whose requests are sent until `until_ns`, as far as that is known.
    pub(crate) fn new(workers: u32, until_ns: u64) -> Self {
        let most = (MOST_FIGURES / workers.max(1) as usize).clamp(FEWEST_SAMPLES, MOST_SAMPLES);
        let interval_ns = (until_ns / most as u64).max(SHORTEST_NS);
        Self {
            timeline: EngineTimeline { interval_ns, ..EngineTimeline::default() },
            most,
            due_ns: 0,
            evicted: vec![(0, 0); workers as usize],
        }
    }

    /// Whether a moment has come or passed at which there is to be a sample.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    /// Adds the samples of all moments up to `now_ns`: nothing has happened since the first of them.
    pub(crate) fn take(&mut self, now_ns: u64, look: impl Fn(usize) -> EngineSample) {
        let row = self.look(look);
        while self.is_due(now_ns) {
            if self.timeline.samples.len() == self.most {
                let mut place = 0;
                self.timeline.samples.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.timeline.interval_ns *= 2;
            } else {
                self.timeline.samples.push(row.clone());
            }
            self.due_ns = self.timeline.interval_ns * self.timeline.samples.len() as u64;
        }
    }

    /// The timeline, with a last look at all workers.
    pub(crate) fn finish(mut self, look: impl Fn(usize) -> EngineSample) -> EngineTimeline {
        self.timeline.last = self.look(look);
        self.timeline
    }

    /// All workers. One that came back with a new engine goes on counting where the former had stopped.
    fn look(&mut self, look: impl Fn(usize) -> EngineSample) -> Box<[EngineSample]> {
        let of_worker = |(worker, (seen, before)): (usize, &mut (u64, u64))| {
            let sample = look(worker);
            if sample.evicted_tokens < *seen {
                *before += *seen;
            }
            *seen = sample.evicted_tokens;
            EngineSample { evicted_tokens: *before + *seen, ..sample }
        };
        self.evicted.iter_mut().enumerate().map(of_worker).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evicted(tokens: u64) -> EngineSample {
        EngineSample { evicted_tokens: tokens, ..EngineSample::default() }
    }

    #[test]
    fn a_long_run_has_fewer_samples_further_apart() {
        let mut recorder = Recorder::new(2, 0);
        for ms in 0..100_000 {
            if recorder.is_due(ms * 1_000_000) {
                recorder.take(ms * 1_000_000, |worker| evicted(ms * (worker as u64 + 1)));
            }
        }
        let timeline = recorder.finish(|_| evicted(1_000_000));
        let interval_ms = timeline.interval_ns / 1_000_000;
        assert!((MOST_SAMPLES / 2..=MOST_SAMPLES).contains(&timeline.samples.len()), "{interval_ms}");
        for (row, place) in timeline.samples.iter().zip(0..) {
            assert_eq!(row[1].evicted_tokens, 2 * place * interval_ms, "sample {place}");
        }
        assert!(timeline.samples.len() as u64 * interval_ms >= 100_000 - interval_ms);
        assert_eq!(timeline.last[0].evicted_tokens, 1_000_000);
    }

    #[test]
    fn a_gap_is_filled_and_a_new_engine_goes_on_counting() {
        let mut recorder = Recorder::new(1, 240_000_000_000);
        recorder.take(0, |_| evicted(5));
        recorder.take(3_000_000_000, |_| evicted(7));
        recorder.take(4_000_000_000, |_| evicted(2));
        let timeline = recorder.finish(|_| evicted(2));
        let seen: Vec<u64> = timeline.samples.iter().map(|row| row[0].evicted_tokens).collect();
        assert_eq!(seen, [5, 7, 7, 7, 9]);
    }

    #[test]
    fn many_workers_have_fewer_samples() {
        let mut recorder = Recorder::new(4096, 0);
        for second in 0..1000 {
            recorder.take(second * 1_000_000_000, |_| EngineSample::default());
        }
        assert!(recorder.timeline.samples.len() <= FEWEST_SAMPLES);
    }
}
