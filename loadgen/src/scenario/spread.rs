//! Amounts that differ from request to request: one number, or how it is distributed.

use std::fmt;
use std::sync::Arc;

use super::error::ScenarioError;
use super::input;
use super::resolve::Resolver;
use super::section::{Field, Section};

/// Most values that a Zipf distribution has; each is kept in memory.
const MOST_RANKS: u64 = 1 << 20;
/// Most values of an empirical distribution.
const MOST_VALUES: usize = 1 << 20;

/// A number of tokens or of turns, or a span of time in nanoseconds, and how it is distributed.
#[derive(Debug, Clone, PartialEq)]
pub enum Spread {
    /// Always this one.
    Fixed(u64),
    /// Evenly among the whole numbers from the first to the last, both included.
    Uniform {
        /// The first.
        low: u64,
        /// The last.
        high: u64,
    },
    /// The logarithm is normally distributed. What is drawn outside of the bounds counts as the bound.
    Lognormal {
        /// Half of all values are below it.
        median: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Lower bound.
        low: u64,
        /// Upper bound.
        high: u64,
    },
    /// As the gaps of a Poisson process. What is drawn outside of the bounds counts as the bound.
    Exponential {
        /// The mean.
        mean: f64,
        /// Lower bound.
        low: u64,
        /// Upper bound.
        high: u64,
    },
    /// The k-th whole number from `low`, counted from 1, in proportion to k^-exponent.
    Zipf {
        /// The exponent.
        exponent: f64,
        /// The most frequent value.
        low: u64,
        /// The rarest value.
        high: u64,
    },
    /// Values in proportion to their weights.
    Empirical(Arc<[(u64, f64)]>),
}

impl From<u32> for Spread {
    fn from(amount: u32) -> Self {
        Self::Fixed(amount.into())
    }
}

impl Spread {
    /// The least and the largest value that it can give.
    #[must_use]
    pub fn bounds(&self) -> (u64, u64) {
        match self {
            Self::Fixed(amount) => (*amount, *amount),
            Self::Uniform { low, high }
            | Self::Lognormal { low, high, .. }
            | Self::Exponential { low, high, .. }
            | Self::Zipf { low, high, .. } => (*low, *high),
            Self::Empirical(values) => {
                let values = || values.iter().map(|(value, _)| *value);
                (values().min().unwrap_or(0), values().max().unwrap_or(0))
            }
        }
    }

    /// The mean; of bounded distributions that of the unbounded one, within the bounds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let (least, most) = self.bounds();
        match self {
            Self::Fixed(amount) => *amount as f64,
            Self::Uniform { low, high } => (*low + *high) as f64 / 2.0,
            Self::Lognormal { median, sigma, .. } => {
                (median * (sigma * sigma / 2.0).exp()).clamp(least as f64, most as f64)
            }
            Self::Exponential { mean, .. } => mean.clamp(least as f64, most as f64),
            Self::Zipf { exponent, low, high } => {
                let ranked = (1..=high - low + 1).map(|k| (low + k - 1, (k as f64).powf(-exponent)));
                weighted_mean(ranked)
            }
            Self::Empirical(values) => weighted_mean(values.iter().copied()),
        }
    }

    /// In words, with every amount written by `amount`.
    fn told(&self, amount: impl Fn(f64) -> String) -> String {
        match self {
            Self::Fixed(fixed) => amount(*fixed as f64),
            Self::Uniform { low, high } => format!("{}–{}", amount(*low as f64), amount(*high as f64)),
            Self::Lognormal { median, sigma, .. } => format!("{} (lognormal, σ {sigma})", amount(*median)),
            Self::Exponential { mean, .. } => format!("{} (exponential)", amount(*mean)),
            Self::Zipf { exponent, low, high } => {
                format!("{}–{} (Zipf {exponent})", amount(*low as f64), amount(*high as f64))
            }
            Self::Empirical(_) => format!("{} (empirical mean)", amount(self.mean().round())),
        }
    }

    /// A span of time in words.
    #[must_use]
    pub fn time(&self) -> String {
        self.told(|ns| format!("{} s", (ns / 1e6).round() / 1e3))
    }
}

/// An amount of tokens or turns in words.
impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.told(|amount| amount.to_string()))
    }
}

fn weighted_mean(values: impl Iterator<Item = (u64, f64)>) -> f64 {
    let (sum, weights) =
        values.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + value as f64 * weight, all + weight));
    sum / weights
}

/// What an amount counts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unit {
    /// Whole numbers from the first to the last.
    Count(u32, u32),
    /// Spans of time, at most an hour, in nanoseconds.
    Time,
}

const FORMS: &[&str] = &["uniform", "lognormal", "exponential", "zipf", "empirical"];

impl Unit {
    fn bounds(self) -> (u64, u64) {
        match self {
            Self::Count(low, high) => (low.into(), high.into()),
            Self::Time => (0, super::horizon::HOUR_NS),
        }
    }

    /// One amount.
    fn one(self, field: &Field<'_>) -> Result<u64, ScenarioError> {
        match self {
            Self::Count(low, high) => field.whole(low..=high).map(u64::from),
            Self::Time => field.short_duration_ns(),
        }
    }

    /// An amount between two others, such as a mean: need not be whole.
    fn between(self, field: &Field<'_>) -> Result<f64, ScenarioError> {
        match self {
            Self::Count(low, high) => field.number(f64::from(low).max(1e-3)..=f64::from(high)),
            Self::Time => field.short_duration_ns().map(|ns| (ns as f64).max(1.0)),
        }
    }

    fn example(self) -> &'static str {
        match self {
            Self::Count(..) => "{ uniform = [100, 300] }",
            Self::Time => "{ uniform = [\"1s\", \"3s\"] }",
        }
    }
}

/// Reads an amount: a number, or a table with one distribution.
pub(super) fn read(field: &Field<'_>, unit: Unit, resolver: &Resolver<'_>) -> Result<Spread, ScenarioError> {
    if !field.is_table() {
        return unit.one(field).map(Spread::Fixed);
    }
    let table = Section::open(field.node, field.path(), FORMS)?;
    let mut given = table.fields();
    let (Some((form, value)), None) = (given.next(), given.next()) else {
        let remedy = format!("name one distribution, for example {}", unit.example());
        return Err(field.error("is not one distribution", remedy));
    };
    match form {
        "uniform" => uniform(&value, unit),
        "lognormal" => lognormal(&value, unit),
        "exponential" => exponential(&value, unit),
        "zipf" => zipf(&value, unit),
        _ => empirical(&value, unit, resolver),
    }
}

fn uniform(field: &Field<'_>, unit: Unit) -> Result<Spread, ScenarioError> {
    let [low, high] = &field.list()?[..] else {
        return Err(field.error("does not have two bounds", "write [low, high]"));
    };
    let (low, high) = (unit.one(low)?, unit.one(high)?);
    if low > high {
        return Err(field.error("begins above its end", "write the lower bound first"));
    }
    Ok(Spread::Uniform { low, high })
}

/// The bounds `min` and `max` of a table; by default the widest that the key allows.
fn bounds(table: &Section<'_>, unit: Unit) -> Result<(u64, u64), ScenarioError> {
    let (least, most) = unit.bounds();
    let low = table.get("min").map_or(Ok(least), |field| unit.one(&field))?;
    let high = table.get("max").map_or(Ok(most), |field| unit.one(&field))?;
    if low > high {
        return Err(table.error("max", "is below min", "write the larger bound as max"));
    }
    Ok((low, high))
}

fn lognormal(field: &Field<'_>, unit: Unit) -> Result<Spread, ScenarioError> {
    let table = Section::open(field.node, field.path(), &["median", "mean", "sigma", "min", "max"])?;
    let sigma = table.need("sigma")?.number(0.0..=5.0)?;
    let (low, high) = bounds(&table, unit)?;
    let median = match (table.get("median"), table.get("mean")) {
        (Some(median), None) => unit.between(&median)?,
        // The mean of a lognormal distribution is its median times e^(σ²/2).
        (None, Some(mean)) => unit.between(&mean)? / (sigma * sigma / 2.0).exp(),
        (None, None) => return Err(table.error("median", "is missing", "give the median or the mean")),
        (Some(_), Some(mean)) => {
            return Err(mean.error("says the same as median in another way", "give one of the two"));
        }
    };
    Ok(Spread::Lognormal { median, sigma, low, high })
}

fn exponential(field: &Field<'_>, unit: Unit) -> Result<Spread, ScenarioError> {
    if !field.is_table() {
        let (low, high) = unit.bounds();
        return Ok(Spread::Exponential { mean: unit.between(field)?, low, high });
    }
    let table = Section::open(field.node, field.path(), &["mean", "min", "max"])?;
    let (low, high) = bounds(&table, unit)?;
    Ok(Spread::Exponential { mean: unit.between(&table.need("mean")?)?, low, high })
}

fn zipf(field: &Field<'_>, unit: Unit) -> Result<Spread, ScenarioError> {
    if matches!(unit, Unit::Time) {
        return Err(
            field.error("is for numbers, not for spans of time", "use uniform, lognormal or exponential")
        );
    }
    let table = Section::open(field.node, field.path(), &["exponent", "min", "max"])?;
    let exponent = table.need("exponent")?.number(0.0..=10.0)?;
    let high = unit.one(&table.need("max")?)?;
    let least = unit.bounds().0.max(1);
    let low = table.get("min").map_or(Ok(least), |field| unit.one(&field))?;
    if low > high || high - low >= MOST_RANKS {
        let problem = format!("from {low} to {high} there are no values, or too many");
        let remedy = format!("use at most {MOST_RANKS} values, the larger bound as max");
        return Err(table.error("max", problem, remedy));
    }
    Ok(Spread::Zipf { exponent, low, high })
}

fn empirical(field: &Field<'_>, unit: Unit, resolver: &Resolver<'_>) -> Result<Spread, ScenarioError> {
    let values = match field.text() {
        Ok(path) => {
            let path = resolver.beside_scenario(path);
            let text = input::text(&path).map_err(|error| {
                let problem = format!("{} cannot be read: {error}", path.display());
                field.error(problem, "the path is relative to the scenario file")
            })?;
            of_file(field, unit, &path.display().to_string(), &text)?
        }
        Err(_) => field.list()?.iter().map(|item| pair(item, unit)).collect::<Result<Vec<_>, _>>()?,
    };
    if values.is_empty() || values.len() > MOST_VALUES || values.iter().all(|(_, weight)| *weight == 0.0) {
        let remedy = format!("give 1 to {MOST_VALUES} pairs [value, weight], one weight above 0");
        return Err(field.error("has no values that could be drawn, or too many", remedy));
    }
    Ok(Spread::Empirical(values.into()))
}

fn pair(item: &Field<'_>, unit: Unit) -> Result<(u64, f64), ScenarioError> {
    match &item.list()?[..] {
        [value, weight] => Ok((unit.one(value)?, weight.number(0.0..=1e12)?)),
        _ => Err(item.error("is not a pair", "write [value, weight]")),
    }
}

/// The lines of a file: `value,weight`, or only `value`; times in seconds.
fn of_file(field: &Field<'_>, unit: Unit, name: &str, text: &str) -> Result<Vec<(u64, f64)>, ScenarioError> {
    let (least, most) = unit.bounds();
    let scale = if matches!(unit, Unit::Time) { 1e9 } else { 1.0 };
    let mut values = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (value, weight) = line.split_once(',').unwrap_or((line, "1"));
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let value = number(value).map(|value| (value * scale).round());
        let value = value.filter(|value| (least as f64..=most as f64).contains(value));
        match (value, number(weight).filter(|weight| (0.0..=1e12).contains(weight))) {
            (Some(value), Some(weight)) => values.push((value as u64, weight)),
            _ => {
                let remedy = format!(
                    "write value,weight with a value from {} to {}",
                    least as f64 / scale,
                    most as f64 / scale
                );
                return Err(
                    field.error(format!("{name}:{}: \"{}\" does not fit", at + 1, line.trim()), remedy)
                );
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::mistakes::GOOD;
    use super::super::testing::load_text;
    use super::super::{Spread, Workload};

    fn question(value: &str) -> Spread {
        let scenario =
            load_text(GOOD, &[("workload.match_ratio", "full"), ("workload.question_tokens", value)]);
        let Workload::SharedPrefix(workload) = scenario.unwrap().workload else { panic!("of another kind") };
        workload.question_tokens
    }

    #[test]
    fn a_lognormal_mean_is_no_median() {
        let spread = question("{ lognormal = { mean = 200, sigma = 0.8 } }");
        assert!((spread.mean() - 200.0).abs() < 1e-9, "{spread:?}");
        let Spread::Lognormal { median, .. } = spread else { panic!("{spread:?}") };
        assert!((median - 200.0 * (-0.32_f64).exp()).abs() < 1e-9, "{median}");
    }

    #[test]
    fn ranks_count_from_one_unless_told_otherwise() {
        assert_eq!(question("{ zipf = { exponent = 1.0, max = 9 } }").bounds(), (1, 9));
        assert_eq!(question("{ zipf = { exponent = 1.0, min = 0, max = 9 } }").bounds(), (0, 9));
    }

    #[test]
    fn times_of_a_file_are_seconds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thinks.csv");
        std::fs::write(&path, "0.5,3\n2\n").unwrap();
        let chat = format!(
            "kind = \"chat\"\nsessions = 4\nturns = 3\nquestion_tokens = 10\noutput_tokens = 5\n\
             think = {{ empirical = {:?} }}",
            path.display().to_string()
        );
        let text = format!(
            "schema = 1\nname = \"k\"\n[workload]\n{chat}\n[arrival]\nkind = \"poisson\"\nrate = 1.0\n\
             [fleet]\nworkers = 1\n[router]\npolicies = [\"random\"]"
        );
        let Workload::Chat(chat) = load_text(&text, &[]).unwrap().workload else { panic!("of another kind") };
        assert_eq!(chat.think, Spread::Empirical([(500_000_000, 3.0), (2_000_000_000, 1.0)].into()));
    }
}
