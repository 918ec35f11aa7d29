//! Which settings are tried: `--space cache_threshold=0.1..0.9,balance_abs_threshold=8..256,log,…`.

use rand::RngExt;
use rand_pcg::Pcg64;
use router_core::{OptionError, OptionKind, OptionSpec, OptionValue, PolicyConfig, SearchRange};

use super::super::SearchError;
use crate::scenario::Cell;

/// Digits of a number that is tried: nobody needs a threshold to the seventh.
const DIGITS: i32 = 3;

/// The settings that may change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Space {
    axes: Vec<Axis>,
}

/// One option of policies.
#[derive(Debug, Clone, PartialEq)]
struct Axis {
    /// As it was typed, for messages.
    typed: String,
    /// The policy, where one is named.
    policy: Option<String>,
    key: String,
    values: Values,
}

#[derive(Debug, Clone, PartialEq)]
enum Values {
    Between { low: f64, high: f64, log: bool },
    Among(Vec<String>),
}

impl Space {
    /// What is searched where no space is given: the options of these policies that say where a better value is looked for.
    #[must_use]
    pub fn of_policies(policies: &[String]) -> Self {
        let mut axes: Vec<Axis> = Vec::new();
        let rows = policies.iter().filter_map(|name| Some(PolicyConfig::new(name).ok()?.row()));
        for spec in rows.flat_map(|row| row.options) {
            if let Some(SearchRange { low, high, log }) = spec.search
                && axes.iter().all(|axis| axis.key != spec.key)
            {
                let typed = format!("{}={low}..{high}{}", spec.key, if log { ",log" } else { "" });
                let values = Values::Between { low, high, log };
                axes.push(Axis { typed, policy: None, key: spec.key.to_owned(), values });
            }
        }
        Self { axes }
    }

    /// Whether nothing may change but the policy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// Reads what is typed behind `--space`.
    ///
    /// # Errors
    /// What is wrong, and how it is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut axes: Vec<Axis> = Vec::new();
        for part in text.split(',').map(str::trim) {
            match (part, axes.last_mut()) {
                ("log", Some(Axis { values: Values::Between { low, log, .. }, typed, .. })) => {
                    if *low <= 0.0 {
                        return Err(format!(
                            "{typed},log: a logarithm begins above 0; use a higher lower end"
                        ));
                    }
                    *log = true;
                }
                _ => axes.push(axis(part)?),
            }
        }
        for (place, axis) in axes.iter().enumerate() {
            if axes[..place].iter().any(|other| (&other.policy, &other.key) == (&axis.policy, &axis.key)) {
                return Err(format!("{} stands there twice", axis.key));
            }
        }
        Ok(Self { axes })
    }

    /// The present setting and up to `budget` others: places of their cells among `bases`, and the policies. Every policy of
    /// `bases` is among them as it is. The draws depend on `seed` only.
    pub(super) fn settings(
        &self,
        bases: &[Cell],
        budget: usize,
        seed: u64,
    ) -> Result<Vec<(usize, PolicyConfig)>, SearchError> {
        let owned: Vec<Vec<&Axis>> = bases.iter().map(|base| self.of(base.policy.name())).collect();
        for axis in &self.axes {
            axis.check(bases).map_err(SearchError::Asked)?;
        }
        let searched = owned.iter().filter(|axes| !axes.is_empty()).count();
        let mut settings: Vec<(usize, PolicyConfig)> =
            bases.iter().enumerate().map(|(place, base)| (place, base.policy.clone())).collect();
        for (place, (base, axes)) in bases.iter().zip(&owned).enumerate().filter(|(_, of)| !of.1.is_empty()) {
            for points in points(axes, budget / searched, seed) {
                let mut policy = base.policy.clone();
                for (axis, at) in axes.iter().zip(points) {
                    axis.set(&mut policy, at).map_err(|wrong| SearchError::Asked(axis.blame(&wrong)))?;
                }
                let known = settings.iter().any(|(_, known)| same(known, &policy));
                if !known {
                    settings.push((place, policy));
                }
            }
        }
        if settings.len() == 1 {
            let asked = "there is nothing to choose from; name settings with --space";
            return Err(SearchError::Asked(asked.to_owned()));
        }
        Ok(settings)
    }

    /// The options of one policy.
    fn of(&self, policy: &str) -> Vec<&Axis> {
        let mine = |axis: &&Axis| axis.concerns(policy);
        self.axes.iter().filter(mine).collect()
    }
}

/// Whether two policies have the same values in all options, set or not.
pub(super) fn same(a: &PolicyConfig, b: &PolicyConfig) -> bool {
    a.name() == b.name() && a.options().zip(b.options()).all(|(a, b)| a.1 == b.1)
}

fn axis(part: &str) -> Result<Axis, String> {
    let usage = "write KEY=LOW..HIGH, KEY=LOW..HIGH,log or KEY=V1|V2, for example cache_threshold=0.1..0.9";
    let (path, values) = part.split_once('=').ok_or_else(|| format!("\"{part}\": {usage}"))?;
    let path = path.trim();
    let (policy, key) = match path.strip_prefix("router.options.").unwrap_or(path).split_once('.') {
        Some((policy, key)) => (Some(policy.to_owned()), key),
        None => (None, path),
    };
    let values = match values.split_once("..") {
        Some((low, high)) => {
            let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            match (number(low), number(high)) {
                (Some(low), Some(high)) if low < high => Values::Between { low, high, log: false },
                _ => return Err(format!("\"{part}\": both ends are numbers, the lower one first; {usage}")),
            }
        }
        None => Values::Among(values.split('|').map(|value| value.trim().to_owned()).collect()),
    };
    let empty = matches!(&values, Values::Among(words) if words.iter().any(String::is_empty));
    if key.is_empty() || empty {
        return Err(format!("\"{part}\": {usage}"));
    }
    Ok(Axis { typed: part.to_owned(), policy, key: key.to_owned(), values })
}

impl Axis {
    /// Whether it is an option of `policy`.
    fn concerns(&self, policy: &str) -> bool {
        match &self.policy {
            Some(of) => of == policy,
            None => PolicyConfig::new(policy).is_ok_and(|config| self.spec(&config).is_some()),
        }
    }

    fn spec(&self, policy: &PolicyConfig) -> Option<&'static OptionSpec> {
        policy.row().options.iter().find(|spec| spec.key == self.key)
    }

    /// Refuses an option that no policy of `bases` has, and ends and words that it does not take.
    fn check(&self, bases: &[Cell]) -> Result<(), String> {
        if self.key.contains('.')
            || ["workload", "arrival", "fleet", "faults", "slo"]
                .iter()
                .any(|table| self.policy.as_deref() == Some(table))
        {
            let remedy = "only options of policies are tuned; `loadgen sweep` tries everything else";
            return Err(format!("--space {}: {remedy}", self.typed));
        }
        let mut mine =
            bases.iter().map(|base| &base.policy).filter(|policy| self.concerns(policy.name())).peekable();
        if mine.peek().is_none() {
            let Some(first) = bases.first() else { return Ok(()) };
            return match &self.policy {
                Some(policy) => {
                    Err(format!("--space {}: \"{policy}\" is not tuned here; add it to --policy", self.typed))
                }
                None => match first.policy.clone().set_text(&self.key, "0") {
                    Err(wrong) => Err(self.blame(&wrong)),
                    Ok(()) => Ok(()),
                },
            };
        }
        for policy in mine {
            let ends = match &self.values {
                Values::Between { .. } => vec![0.0, 1.0],
                Values::Among(words) => (0..words.len()).map(|at| share(at, words.len())).collect(),
            };
            for at in ends {
                self.set(&mut policy.clone(), at).map_err(|wrong| self.blame(&wrong))?;
            }
        }
        Ok(())
    }

    fn blame(&self, wrong: &OptionError) -> String {
        format!("--space {}: {wrong}", self.typed)
    }

    /// Sets the option to the value at a place from 0 to 1.
    fn set(&self, policy: &mut PolicyConfig, at: f64) -> Result<(), OptionError> {
        match &self.values {
            Values::Among(words) => {
                let place = ((at * words.len() as f64) as usize).min(words.len() - 1);
                policy.set_text(&self.key, &words[place])
            }
            Values::Between { low, high, log } => {
                let number = if *log { low * (high / low).powf(at) } else { low + (high - low) * at };
                let whole =
                    self.spec(policy).is_some_and(|spec| matches!(spec.kind, OptionKind::Integer { .. }));
                let number = rounded(number).clamp(*low, *high);
                let value = if whole {
                    OptionValue::Integer(number.round() as i64)
                } else {
                    OptionValue::Float(number)
                };
                policy.set(&self.key, value)
            }
        }
    }
}

/// A number with few digits.
fn rounded(number: f64) -> f64 {
    if number == 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powi(DIGITS - 1 - number.abs().log10().floor() as i32);
    // Through text, so that 0.3 is 0.3 and not 0.30000000000000004.
    let text = format!("{}", (number * scale).round() / scale);
    text.parse().unwrap_or(number)
}

/// The middle of part `at` of `count` equal parts of 0 to 1.
fn share(at: usize, count: usize) -> f64 {
    (at as f64 + 0.5) / count as f64
}

/// Points of the space, each a place from 0 to 1 on every axis. Words alone are tried in all combinations if they are few enough;
/// otherwise a Latin hypercube (M. McKay and others, 1979): every axis is cut into as many parts as there are points, and each
/// part has one point. A single axis is an even grid from end to end.
fn points(axes: &[&Axis], count: usize, seed: u64) -> Vec<Vec<f64>> {
    let words = |axis: &&Axis| match &axis.values {
        Values::Among(words) => Some(words.len()),
        Values::Between { .. } => None,
    };
    let lengths: Option<Vec<usize>> = axes.iter().map(words).collect();
    if let Some(lengths) = lengths
        && lengths
            .iter()
            .try_fold(1_usize, |product, length| product.checked_mul(*length))
            .is_some_and(|all| all <= count)
    {
        return combinations(&lengths);
    }
    let mut draws = Pcg64::new(u128::from(seed), 0x7370_6163);
    let mut columns = axes.iter().enumerate().map(|(place, axis)| {
        let at = |part: usize| match axis.values {
            Values::Between { .. } if count > 1 => part as f64 / (count - 1) as f64,
            _ => share(part, count.max(1)),
        };
        let mut column: Vec<f64> = (0..count).map(at).collect();
        if place > 0 {
            shuffle(&mut column, &mut draws);
        }
        column
    });
    let mut points = vec![Vec::new(); count];
    for column in columns.by_ref() {
        points.iter_mut().zip(column).for_each(|(point, at)| point.push(at));
    }
    points
}

fn combinations(lengths: &[usize]) -> Vec<Vec<f64>> {
    lengths.iter().fold(vec![Vec::new()], |shorter, length| {
        let longer = |point: Vec<f64>| {
            (0..*length).map(move |at| point.iter().copied().chain([share(at, *length)]).collect())
        };
        shorter.into_iter().flat_map(longer).collect()
    })
}

/// Every order with the same chance (R. Fisher and F. Yates).
fn shuffle(values: &mut [f64], draws: &mut Pcg64) {
    for last in (1..values.len()).rev() {
        let draw = draws.random::<u64>();
        let other = ((u128::from(draw) * (last as u128 + 1)) >> 64) as usize;
        values.swap(last, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, count: usize) -> Vec<PolicyConfig> {
        let space = Space::parse(text).unwrap();
        let axes: Vec<&Axis> = space.axes.iter().collect();
        let set = |point: Vec<f64>| {
            let mut policy = PolicyConfig::new("cache_aware").unwrap();
            axes.iter().zip(point).for_each(|(axis, at)| axis.set(&mut policy, at).unwrap());
            policy
        };
        points(&axes, count, 1).into_iter().map(set).collect()
    }

    fn values(policies: &[PolicyConfig], key: &str) -> Vec<String> {
        let value = |policy: &PolicyConfig| {
            policy.options().find(|(spec, _)| spec.key == key).unwrap().1.as_argument()
        };
        policies.iter().map(value).collect()
    }

    #[test]
    fn the_policies_themselves_say_what_is_searched_by_default() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Space::of_policies(&names)
        };
        let thresholds =
            "cache_threshold=0.1..0.9,balance_abs_threshold=4..256,log,balance_rel_threshold=1.05..3,log";
        let keys = |space: &Space| space.axes.iter().map(|axis| axis.key.clone()).collect::<Vec<_>>();
        let read = Space::parse(thresholds).unwrap();
        let values = |space: &Space| space.axes.iter().map(|axis| axis.values.clone()).collect::<Vec<_>>();
        assert_eq!(
            (keys(&of(&["cache_aware"])), values(&of(&["cache_aware"]))),
            (keys(&read), values(&read))
        );
        assert_eq!(keys(&of(&["bucket", "cache_aware"])).len(), 3, "an option of both stands there once");
        assert!(of(&["round_robin"]).is_empty());
    }

    #[test]
    fn one_axis_is_an_even_grid_of_short_numbers() {
        let drawn = drawn("cache_threshold=0.1..0.9", 9);
        let expected = ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"];
        assert_eq!(values(&drawn, "cache_threshold"), expected);
    }

    #[test]
    fn several_axes_are_each_covered_evenly() {
        let text = "cache_threshold=0.1..0.9,balance_abs_threshold=1..256,log";
        let drawn = drawn(text, 9);
        let mut abs = values(&drawn, "balance_abs_threshold");
        assert!(!abs.is_sorted_by_key(|text| text.parse::<i64>().unwrap()), "shuffled: {abs:?}");
        abs.sort_by_key(|text| text.parse::<i64>().unwrap());
        assert_eq!(abs, ["1", "2", "4", "8", "16", "32", "64", "128", "256"]);
    }

    #[test]
    fn few_words_are_tried_in_all_combinations() {
        let drawn = drawn("cache_threshold=0.2|0.4,balance_abs_threshold=1|2|3", 6);
        assert_eq!(values(&drawn, "cache_threshold"), ["0.2", "0.2", "0.2", "0.4", "0.4", "0.4"]);
        assert_eq!(values(&drawn, "balance_abs_threshold"), ["1", "2", "3", "1", "2", "3"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for wrong in
            ["", "a", "a=", "=1", "a=2..1", "a=x..1", "a=1||2", "a=0..1,log", "a=1|2,log", "a=1..2,a=1|2"]
        {
            assert!(Space::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            Space::parse("router.options.cache_aware.x=1|2"),
            Space::parse("cache_aware.x=1|2").map(|mut s| {
                s.axes[0].typed = "router.options.cache_aware.x=1|2".to_owned();
                s
            })
        );
    }
}
