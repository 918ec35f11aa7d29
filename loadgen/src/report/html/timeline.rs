//! A figure of every worker over time, as a small panel: a line per worker, or of many workers the band that they span.

use super::super::format::trimmed;
use super::template::escape;
use crate::scenario::Pool;

/// Most moments a line is drawn through, and most workers drawn as lines of their own.
const MAX_MOMENTS: usize = 120;
const MAX_LINES: usize = 16;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 160.0;

/// A figure of every worker at evenly spaced moments.
pub(super) struct Levels {
    pub(super) interval_ns: u64,
    /// `samples[i][w]`: of worker `w` at `i * interval_ns`.
    pub(super) samples: Vec<Vec<f64>>,
}

/// The axes of a panel: the highest level, and the last moment.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) top: f64,
    pub(super) end_ns: u64,
}

impl Levels {
    /// Those of the workers of one role.
    pub(super) fn of_pool(&self, pool: &Pool) -> Self {
        let places = pool.places.start as usize..pool.places.end as usize;
        let samples = self.samples.iter().map(|row| row.get(places.clone()).unwrap_or_default().to_vec());
        Self { interval_ns: self.interval_ns, samples: samples.collect() }
    }

    pub(super) fn peak(&self) -> Option<f64> {
        self.samples.iter().flatten().copied().reduce(f64::max)
    }

    pub(super) fn duration_ns(&self) -> u64 {
        self.interval_ns * self.samples.len().saturating_sub(1) as u64
    }

    /// The lowest and the highest peak of a worker.
    pub(super) fn peaks(&self) -> Option<(f64, f64)> {
        let workers = self.samples.first().map_or(0, Vec::len);
        let peak = |w: usize| self.samples.iter().filter_map(|row| row.get(w).copied()).reduce(f64::max);
        let peaks: Vec<f64> = (0..workers).filter_map(peak).collect();
        Some((peaks.iter().copied().reduce(f64::min)?, peaks.into_iter().reduce(f64::max)?))
    }

    /// Lines of single workers under a bold mean; with many workers the range that they span, under a bold median.
    pub(super) fn svg(&self, colour: usize, scale: Scale, title: &str, description: &str) -> String {
        let workers = self.samples.first().map_or(0, Vec::len);
        let (shapes, middle) = if workers <= MAX_LINES {
            let line = |worker: usize| {
                let points = self.along(scale, |row| row.get(worker).copied().unwrap_or(0.0));
                format!("<polyline class=\"thin s{colour}\" points=\"{}\"/>", points.join(" "))
            };
            let mean = self.along(scale, |row| row.iter().sum::<f64>() / row.len().max(1) as f64);
            ((0..workers).map(line).collect(), mean)
        } else {
            let mut around = self.along(scale, |row| row.iter().copied().fold(0.0, f64::max));
            let lower = self.along(scale, |row| row.iter().copied().reduce(f64::min).unwrap_or(0.0));
            around.extend(lower.into_iter().rev());
            let band = format!("<polygon class=\"band f{colour}\" points=\"{}\"/>", around.join(" "));
            (band, self.along(scale, |row| crate::statistics::median(row).unwrap_or(0.0)))
        };
        format!(
            "<svg class=\"load\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\">\
             <title>{}</title><desc>{}</desc>{shapes}<polyline class=\"mean\" points=\"{}\"/></svg>",
            escape(title),
            escape(description),
            middle.join(" ")
        )
    }

    /// The points of a line, each `x y`.
    fn along(&self, scale: Scale, level: impl Fn(&[f64]) -> f64) -> Vec<String> {
        let stride = self.samples.len().div_ceil(MAX_MOMENTS).max(1);
        let top = if scale.top > 0.0 { scale.top } else { 1.0 };
        let point = |(place, row): (usize, &Vec<f64>)| {
            let x = (place as u64 * self.interval_ns) as f64 / scale.end_ns.max(1) as f64 * WIDTH;
            format!("{} {}", trimmed(x, 1), trimmed(HEIGHT - level(row) / top * HEIGHT, 1))
        };
        self.samples.iter().enumerate().step_by(stride).map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(workers: usize) -> Levels {
        let row = |moment: usize| (0..workers).map(|w| (moment * w) as f64).collect();
        Levels { interval_ns: 10, samples: (0..3).map(row).collect() }
    }

    #[test]
    fn few_workers_are_lines_and_many_are_a_band() {
        let scale = Scale { top: 4.0, end_ns: 20 };
        let few = levels(3).svg(0, scale, "t", "d");
        assert!(few.contains("points=\"0 160 300 80 600 0\""), "worker 2: {few}");
        assert!(few.contains("class=\"mean\" points=\"0 160 300 120 600 80\""), "{few}");
        let many = levels(1001);
        assert_eq!((many.peaks(), many.duration_ns()), (Some((0.0, 2000.0)), 20));
        let many = many.svg(0, Scale { top: 2000.0, end_ns: 20 }, "t", "d");
        assert!(
            many.contains("class=\"band f0\" points=\"0 160 300 80 600 0 600 160 300 160 0 160\""),
            "{many}"
        );
        assert!(
            many.contains("class=\"mean\" points=\"0 160 300 120 600 80\""),
            "the median is that of worker 500"
        );
        assert_eq!(many.matches("<poly").count(), 2);
    }
}
