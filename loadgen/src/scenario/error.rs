//! What a scenario says when it cannot be used: one message that names the place, the key and the way out.

use std::fmt;

/// One mistake in a scenario file, a flag or a trace.
///
/// Reads `FILE:LINE: key `a.b`: what is wrong; remedy`. A mistake in a flag names the flag instead of the file, a
/// mistake in a trace its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioError {
    place: String,
    key: Option<String>,
    problem: String,
    remedy: String,
}

impl ScenarioError {
    /// A mistake at `place` that no key is to blame for.
    pub(crate) fn at(place: impl ToString, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { place: place.to_string(), key: None, problem: problem.into(), remedy: remedy.into() }
    }

    /// The same mistake, blamed on `key`.
    pub(crate) fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(key) = &self.key {
            write!(f, "key `{key}`: ")?;
        }
        write!(f, "{}", self.problem)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}

/// The way out of a wrong word: the one that was probably meant, else all that are possible.
pub(crate) fn suggest<'a>(word: &str, possible: impl IntoIterator<Item = &'a str>) -> String {
    let possible: Vec<&str> = possible.into_iter().collect();
    let near = possible.iter().map(|p| (distance(word, p), *p)).min();
    match near {
        Some((steps, meant)) if steps <= 1 + word.chars().count() / 4 => format!("did you mean `{meant}`?"),
        _ if possible.is_empty() => "remove it".to_owned(),
        _ => format!("possible here: {}", possible.join(", ")),
    }
}

/// How many characters must be added, dropped or exchanged to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance() {
        for (a, b, steps) in
            [("", "abc", 3), ("abc", "abc", 0), ("wrokers", "workers", 2), ("rate", "rates", 1)]
        {
            assert_eq!(distance(a, b), steps, "{a} {b}");
            assert_eq!(distance(b, a), steps, "{b} {a}");
        }
    }

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(suggest("wrokers", ["page", "workers"]), "did you mean `workers`?");
        assert_eq!(suggest("colour", ["page", "workers"]), "possible here: page, workers");
    }
}
