//! What a scenario says when it cannot be used: one message that names the place, the key and the way out.

use std::fmt::{self, Write as _};

use router_core::spelling;

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
        let key = self.key.as_ref().map_or(String::new(), |key| format!("key `{key}`: "));
        let remedy = if self.remedy.is_empty() { String::new() } else { format!("; {}", self.remedy) };
        // What was typed may hold anything; a message is one line and moves no cursor.
        for c in format!("{}: {key}{}{remedy}", self.place, self.problem).chars() {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { f.write_char(c)? }
        }
        Ok(())
    }
}

impl std::error::Error for ScenarioError {}

/// The way out of a wrong word: the one that was probably meant, else all that are possible.
pub(crate) fn suggest<'a>(word: &str, possible: impl IntoIterator<Item = &'a str>) -> String {
    let possible: Vec<&'a str> = possible.into_iter().collect();
    match spelling::nearest(word, &possible) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if possible.is_empty() => "remove it".to_owned(),
        None => format!("possible here: {}", possible.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(suggest("wrokers", ["page", "workers"]), "did you mean `workers`?");
        assert_eq!(suggest("colour", ["page", "workers"]), "possible here: page, workers");
    }
}
