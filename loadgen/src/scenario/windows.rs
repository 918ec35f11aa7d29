//! Arrivals as ServeGen records them: a file of windows, each with the rate of one client in it and the distribution of the
//! gaps between its requests.

use std::path::{Path, PathBuf};

use super::input;

/// What a line looks like.
pub(super) const FORM: &str = "every line is: start in seconds, requests per second, variation, Gamma or Weibull or nothing, shape, scale";

/// Most windows of a file.
const MOST_WINDOWS: usize = 1 << 20;

/// The windows of one client.
#[derive(Debug, Clone, PartialEq)]
pub struct Windows {
    /// Where they were read from.
    pub path: PathBuf,
    /// The windows, in order, the first from 0.
    pub windows: Vec<Window>,
}

/// A span of time with one distribution of gaps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// How long it lasts, in nanoseconds.
    pub length_ns: u64,
    /// Mean requests per second in it; 0 is a pause.
    pub rate: f64,
    /// How the gaps are distributed.
    pub gaps: Gaps,
}

/// A distribution of gaps; its mean is given by the rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Gaps {
    /// Exponential.
    Poisson,
    /// Gamma with this shape.
    Gamma(f64),
    /// Weibull with this shape.
    Weibull(f64),
}

impl Windows {
    /// Mean requests per second over all windows.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let (requests, seconds) = self.windows.iter().fold((0.0, 0.0), |(requests, seconds), window| {
            let length = window.length_ns as f64 / 1e9;
            (requests + window.rate * length, seconds + length)
        });
        requests / seconds
    }
}

/// Reads the windows of the file at `path` from `skip_ns` on.
///
/// # Errors
/// What is wrong, with the line.
pub(crate) fn read(path: &Path, skip_ns: u64) -> Result<Windows, String> {
    let text = input::text(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let mut starts: Vec<(u64, f64, Gaps)> = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: &str| format!("{}:{}: {why}", path.display(), at + 1);
        let (start_ns, rate, gaps) = window(line).map_err(|why| wrong(&why))?;
        if starts.last().is_some_and(|(before, ..)| start_ns <= *before) {
            return Err(wrong("begins no later than the window before it"));
        }
        if starts.len() == MOST_WINDOWS {
            return Err(wrong("there are too many windows"));
        }
        starts.push((start_ns, rate, gaps));
    }
    let (Some(first), Some(last)) = (starts.first(), starts.last()) else {
        return Err(format!("{} has no windows", path.display()));
    };
    // The end of the last window is not written; it is as long as the first.
    let first_ns = starts.get(1).map_or(600_000_000_000, |second| second.0 - first.0);
    let end_ns = last.0 + first_ns;
    let ends = starts.iter().skip(1).map(|start| start.0).chain([end_ns]);
    let skipped_ns = first.0.saturating_add(skip_ns);
    let windows: Vec<Window> = starts
        .iter()
        .zip(ends)
        .filter(|(_, end_ns)| *end_ns > skipped_ns)
        .map(|((start_ns, rate, gaps), end_ns)| Window {
            length_ns: end_ns - (*start_ns).max(skipped_ns),
            rate: *rate,
            gaps: *gaps,
        })
        .collect();
    match windows.iter().any(|window| window.rate > 0.0) {
        true => Ok(Windows { path: path.to_owned(), windows }),
        false => Err(format!("{} has no window with requests after what is skipped", path.display())),
    }
}

fn window(line: &str) -> Result<(u64, f64, Gaps), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [start, rate, variation, family, shape, scale] = fields[..] else {
        return Err(format!("has {} fields instead of 6", fields.len()));
    };
    let number = |name: &str, text: &str, most: f64| match text.parse::<f64>() {
        Ok(number) if (0.0..=most).contains(&number) => Ok(number),
        _ => Err(format!("the {name} \"{text}\" is no number from 0 to {most}")),
    };
    let start_ns = (number("start", start, 1e9)? * 1e9) as u64;
    let rate = number("rate", rate, 1e6)?;
    number("variation", variation, 1e9)?;
    let shape_of = |text: &str| match number("shape", text, 1e6)? {
        shape if shape >= 0.05 => Ok(shape),
        _ => Err(format!("the shape \"{text}\" is below 0.05")),
    };
    let gaps = match family {
        "" => Gaps::Poisson,
        "Gamma" => Gaps::Gamma(shape_of(shape)?),
        "Weibull" => Gaps::Weibull(shape_of(shape)?),
        other => return Err(format!("\"{other}\" is not a known distribution")),
    };
    number("scale", scale, 1e12)?;
    Ok((start_ns, rate, gaps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, skip_ns: u64) -> Result<Windows, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("w.csv");
        std::fs::write(&path, text).unwrap();
        read(&path, skip_ns)
    }

    #[test]
    fn windows_follow_one_another_and_the_first_ones_can_be_skipped() {
        let text = "0,1.5,2.0,Gamma,0.25,2.6\n600,0,0,,0,0\r\n1200,2,1.1,Weibull,0.9,0.5";
        let second = 1_000_000_000;
        let all = of(text, 0).unwrap();
        let window = |seconds, rate, gaps| Window { length_ns: seconds * second, rate, gaps };
        let expected = [
            window(600, 1.5, Gaps::Gamma(0.25)),
            window(600, 0.0, Gaps::Poisson),
            window(600, 2.0, Gaps::Weibull(0.9)),
        ];
        assert_eq!(all.windows, expected);
        assert!((all.rate() - 3.5 / 3.0).abs() < 1e-12);
        let late = of(text, 700 * second).unwrap();
        assert_eq!(late.windows, [window(500, 0.0, Gaps::Poisson), expected[2]]);
    }

    #[test]
    fn what_does_not_fit_names_its_line() {
        for (text, says) in [
            ("", "has no windows"),
            ("0,1,1,Gamma,1", "w.csv:1: has 5 fields instead of 6"),
            ("0,1,1,Gamma,1,1\n600,-1,1,Gamma,1,1", "w.csv:2: the rate \"-1\" is no number"),
            ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1", "w.csv:2: begins no later"),
            ("0,1,1,Pareto,1,1", "\"Pareto\" is not a known distribution"),
            ("0,1,1,Weibull,0,1", "the shape \"0\" is below 0.05"),
            ("0,0,0,,0,0", "no window with requests"),
        ] {
            let error = of(text, 0).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_last_window_is_as_long_as_the_first_and_time_counts_from_there() {
        let text = "1200,1,1,,0,0\n1500,2,1,,0,0\n1700,3,1,,0,0";
        let lengths = |skip_s: u64| -> Vec<u64> {
            let windows = of(text, skip_s * 1_000_000_000).unwrap().windows;
            windows.iter().map(|window| window.length_ns / 1_000_000_000).collect()
        };
        assert_eq!(lengths(0), [300, 200, 300]);
        assert_eq!(lengths(100), [200, 200, 300]);
        assert_eq!(lengths(400), [100, 300]);
    }

    #[test]
    fn a_scenario_says_how_fast_and_from_where() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("w.csv");
        std::fs::write(&path, "0,1,1,,0,0\n600,2,1,,0,0").unwrap();
        let scenario = crate::scenario::testing::load_text(
            &format!(
                "schema = 1\nname = \"k\"\n[workload]\nkind = \"independent\"\nrequests = 3\nprompt_tokens = 5\n\
                 output_tokens = 1\n[arrival]\nkind = \"servegen\"\npath = {:?}\nskip = \"600s\"\nspeedup = 4\n\
                 [fleet]\nworkers = 1\n[router]\npolicies = [\"random\"]",
                path.display().to_string()
            ),
            &[],
        );
        let crate::scenario::Arrival::Servegen { windows, speedup } = scenario.unwrap().arrival else {
            panic!("of another kind")
        };
        assert_eq!((speedup, windows.windows.len(), windows.windows[0].rate), (4.0, 1, 2.0));
    }
}
