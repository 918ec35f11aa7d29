//! Bounds of numbers in a JSON schema.

use protocol::tokenizer::mix;
use serde_json::Value;

/// Numbers are so many steps from their bound at most.
const STEPS: u64 = 100;

/// An end of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
struct End {
    at: f64,
    /// The end itself is not in the range.
    is_open: bool,
}

/// Where a number has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    least: Option<End>,
    most: Option<End>,
}

impl Bounds {
    /// Reads them, in the form of today (two numbers) and in that of draft 4 (a number, and whether it is left out).
    pub(super) fn read(schema: &Value) -> Self {
        let end = |usual: &str, exclusive: &str, tighter: fn(f64, f64) -> bool| {
            let number = |key: &str| schema.get(key).and_then(Value::as_f64);
            let is_open = schema.get(exclusive).and_then(Value::as_bool).unwrap_or(false);
            let closed = number(usual).map(|at| End { at, is_open });
            let open = number(exclusive).map(|at| End { at, is_open: true });
            match (closed, open) {
                (Some(closed), Some(open)) if tighter(closed.at, open.at) => Some(closed),
                (closed, open) => open.or(closed),
            }
        };
        Self {
            least: end("minimum", "exclusiveMinimum", |closed, open| closed > open),
            most: end("maximum", "exclusiveMaximum", |closed, open| closed < open),
        }
    }

    /// A whole number within them, if there is one.
    pub(super) fn integer(self, seed: u64) -> i64 {
        let least = self.least.map(|End { at, is_open }| if is_open { at.floor() + 1.0 } else { at.ceil() });
        let most = self.most.map(|End { at, is_open }| if is_open { at.ceil() - 1.0 } else { at.floor() });
        let (least, most) = (least.map(|at| at as i64), most.map(|at| at as i64));
        let steps = match (least, most) {
            (Some(least), Some(most)) => {
                most.saturating_sub(least).clamp(0, STEPS as i64 - 1).cast_unsigned() + 1
            }
            _ => STEPS,
        };
        let draw = (mix(seed) % steps) as i64;
        match (least, most) {
            (Some(least), _) => least.saturating_add(draw),
            (None, Some(most)) => most.saturating_sub(draw),
            (None, None) => draw,
        }
    }

    /// A number within them, if there is one.
    pub(super) fn number(self, seed: u64) -> f64 {
        // Never 0 and never 1, so that no end is met.
        let share = (mix(seed) % STEPS + 1) as f64 / (STEPS + 1) as f64;
        let drawn = match (self.least, self.most) {
            (Some(least), Some(most)) => least.at * (1.0 - share) + most.at * share,
            (Some(least), None) => least.at + share * STEPS as f64,
            (None, Some(most)) => most.at - share * STEPS as f64,
            (None, None) => (share * STEPS as f64).round(),
        };
        // Where the ends are next to each other, or so large that steps are lost.
        let drawn = self
            .least
            .map_or(drawn, |End { at, is_open }| drawn.max(if is_open { at.next_up() } else { at }));
        self.most.map_or(drawn, |End { at, is_open }| drawn.min(if is_open { at.next_down() } else { at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_within_their_bounds() {
        let cases = [
            json!({"minimum": 0.2, "maximum": 0.8}),
            json!({"exclusiveMinimum": 0, "exclusiveMaximum": 1}),
            json!({"exclusiveMinimum": 0, "minimum": 0.5, "maximum": 0.5}),
            json!({"minimum": 3, "exclusiveMinimum": true, "maximum": 3.001}),
            json!({"exclusiveMinimum": 1.0, "maximum": 1.0_f64.next_up()}),
            json!({"exclusiveMinimum": 1e300}),
            json!({"exclusiveMaximum": -1e300}),
            json!({"exclusiveMaximum": 0}),
            json!({"minimum": -1e308, "maximum": 1e308}),
            json!({}),
        ];
        for schema in cases {
            let of = |key: &str| schema.get(key).and_then(Value::as_f64);
            let is_open = schema["exclusiveMinimum"] == true;
            let drawn: Vec<f64> = (0..200).map(|seed| Bounds::read(&schema).number(seed)).collect();
            for number in &drawn {
                assert!(number.is_finite(), "{schema}: {number}");
                assert!(
                    of("minimum").is_none_or(|at| *number > at || (*number == at && !is_open)),
                    "{schema}: {number}"
                );
                assert!(of("maximum").is_none_or(|at| *number <= at), "{schema}: {number}");
                assert!(of("exclusiveMinimum").is_none_or(|at| *number > at), "{schema}: {number}");
                assert!(of("exclusiveMaximum").is_none_or(|at| *number < at), "{schema}: {number}");
            }
        }
    }

    #[test]
    fn whole_numbers_are_within_their_bounds() {
        let cases = [
            (json!({"minimum": 0.2, "maximum": 1.8}), 1, 1),
            (json!({"exclusiveMinimum": 3, "exclusiveMaximum": 6}), 4, 5),
            (json!({"exclusiveMinimum": 3.5, "maximum": 5}), 4, 5),
            (json!({"minimum": 3, "exclusiveMinimum": true}), 4, i64::MAX),
            (json!({"minimum": 9e18}), 9_000_000_000_000_000_000, i64::MAX),
            (json!({"maximum": -7}), i64::MIN, -7),
        ];
        for (schema, least, most) in cases {
            for seed in 0..200 {
                let number = Bounds::read(&schema).integer(seed);
                assert!((least..=most).contains(&number), "{schema}: {number}");
            }
        }
    }
}
