//! Reading one table: which keys it may have, and each value as the type and within the range it must have.

use std::ops::RangeInclusive;

use protocol::duration::{self, DurationError};

use super::document::{Node, Origin, Table, Value};
use super::error::{ScenarioError, suggest};
use super::horizon::HOUR_NS;

/// A table whose keys have been checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    path: &'a str,
    table: &'a Table,
    origin: &'a Origin,
}

/// One value of a table.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    path: String,
    pub(super) node: &'a Node,
}

/// A kind of workload or arrival, and the keys that belong to it alone.
pub(super) type Kind = (&'static str, &'static [&'static str]);

impl<'a> Section<'a> {
    /// The table `node`, found at `path` (empty for the outermost), which may have `keys` and no others.
    pub(super) fn open(node: &'a Node, path: &'a str, keys: &[&'static str]) -> Result<Self, ScenarioError> {
        let section = Self::unchecked(node, path)?;
        section.refuse_unknown(|key| keys.contains(&key), keys)?;
        Ok(section)
    }

    /// A table with a key `kind` that decides which other keys it may have. Returns the kind's name.
    ///
    /// Keys of another kind are mistakes, unless the kind came from the command line: then the file cannot have
    /// known, and they are set aside.
    pub(super) fn open_kind(
        node: &'a Node,
        path: &'a str,
        kinds: &[Kind],
    ) -> Result<(Self, &'static str), ScenarioError> {
        Self::open_kind_with(node, path, kinds, &[])
    }

    /// As [`Section::open_kind`], where every kind also has the keys of `common`.
    pub(super) fn open_kind_with(
        node: &'a Node,
        path: &'a str,
        kinds: &[Kind],
        common: &[&'static str],
    ) -> Result<(Self, &'static str), ScenarioError> {
        let section = Self::unchecked(node, path)?;
        let kind_field = section.need("kind")?;
        let (kind, own) = kind_field.choice(&kinds.iter().map(|k| (k.0, *k)).collect::<Vec<_>>())?;
        let surprised = |value: &Node| kind_field.node.origin.is_flag() && !value.origin.is_flag();
        let foreign = |key: &str| kinds.iter().find(|k| k.1.contains(&key)).map(|k| k.0);
        for (key, value) in section.table {
            let is_own = key == "kind" || own.contains(&key.as_str()) || common.contains(&key.as_str());
            if let Some(other) = foreign(key).filter(|_| !is_own && !surprised(value)) {
                let problem = format!("belongs to kind = \"{other}\", and this is \"{kind}\"");
                return Err(section.field(key, value).error(problem, "remove it or change the kind"));
            }
        }
        let mut known = vec!["kind"];
        known.extend_from_slice(own);
        known.extend_from_slice(common);
        section.refuse_unknown(|key| known.contains(&key) || foreign(key).is_some(), &known)?;
        Ok((section, kind))
    }

    /// A table whose keys are free (names of policies, paths).
    pub(super) fn unchecked(node: &'a Node, path: &'a str) -> Result<Self, ScenarioError> {
        match &node.value {
            Value::Table(table) => Ok(Self { path, table, origin: &node.origin }),
            other => {
                let error =
                    ScenarioError::at(&node.origin, format!("is {}", other.kind()), "make it a table");
                Err(error.key(path))
            }
        }
    }

    /// The value of `key`, if it was given.
    pub(super) fn get(&self, key: &str) -> Option<Field<'a>> {
        self.table.get(key).map(|node| self.field(key, node))
    }

    /// The value of `key`, which has no default.
    pub(super) fn need(&self, key: &str) -> Result<Field<'a>, ScenarioError> {
        self.get(key)
            .ok_or_else(|| self.error(key, "is missing", format!("it has no default: add `{key} = …`")))
    }

    /// A mistake in the value of `key`, whether it was given or is a default.
    pub(super) fn error(
        &self,
        key: &str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ScenarioError {
        let origin = self.table.get(key).map_or(self.origin, |node| &node.origin);
        ScenarioError::at(origin, problem, remedy).key(self.path_of(key))
    }

    /// All values, ordered by key.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        self.table.iter().map(|(key, node)| (key.as_str(), self.field(key, node)))
    }

    fn field(&self, key: &str, node: &'a Node) -> Field<'a> {
        Field { path: self.path_of(key), node }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Refuses the first unknown key, in the order of the file.
    fn refuse_unknown(
        &self,
        known: impl Fn(&str) -> bool,
        keys: &[&'static str],
    ) -> Result<(), ScenarioError> {
        let unknown = self.table.iter().filter(|(key, _)| !known(key)).min_by_key(|(_, node)| &node.origin);
        match unknown {
            None => Ok(()),
            Some((key, node)) => {
                let remedy = suggest(key, keys.iter().copied());
                Err(self.field(key, node).error("is not a key of a scenario", remedy))
            }
        }
    }
}

impl<'a> Field<'a> {
    /// A mistake in this value.
    pub(super) fn error(&self, problem: impl Into<String>, remedy: impl Into<String>) -> ScenarioError {
        ScenarioError::at(&self.node.origin, problem, remedy).key(&self.path)
    }

    /// The dotted path of the key.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// A text.
    pub(super) fn text(&self) -> Result<&'a str, ScenarioError> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong_kind("a text in quotes")),
        }
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self) -> Result<bool, ScenarioError> {
        match self.node.value {
            Value::Bool(value) => Ok(value),
            _ => Err(self.wrong_kind("true or false")),
        }
    }

    /// A whole number within `range`.
    pub(super) fn whole<T>(&self, range: RangeInclusive<T>) -> Result<T, ScenarioError>
    where
        T: Copy + Into<u64> + TryFrom<u64> + PartialOrd,
    {
        let (low, high): (u64, u64) = ((*range.start()).into(), (*range.end()).into());
        let remedy = || format!("use a whole number from {low} to {high}");
        match self.node.value {
            Value::Integer(given) => u64::try_from(given)
                .ok()
                .and_then(|value| T::try_from(value).ok())
                .filter(|value| range.contains(value))
                .ok_or_else(|| self.error(format!("{given} is out of range"), remedy())),
            _ => Err(self.wrong_kind("a whole number")),
        }
    }

    /// A number within `range`.
    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Result<f64, ScenarioError> {
        let given = match self.node.value {
            Value::Float(given) => given,
            Value::Integer(given) => given as f64,
            _ => return Err(self.wrong_kind("a number")),
        };
        if range.contains(&given) {
            return Ok(given);
        }
        let remedy = format!("use a number from {} to {}", range.start(), range.end());
        Err(self.error(format!("{given} is out of range"), remedy))
    }

    /// A span of time, in nanoseconds.
    pub(super) fn duration_ns(&self) -> Result<u64, ScenarioError> {
        match &self.node.value {
            Value::Text(text) => duration::parse_ns(text).map_err(|error| match error {
                DurationError::Syntax => {
                    self.error(format!("\"{text}\" is not a duration"), duration::SYNTAX)
                }
                DurationError::TooLong => {
                    self.error(format!("\"{text}\" is out of range"), error.to_string())
                }
            }),
            other => Err(self.error(format!("is {}, not a duration", other.kind()), duration::SYNTAX)),
        }
    }

    /// A span of time that is part of one request's way, in nanoseconds: at most an hour.
    pub(super) fn short_duration_ns(&self) -> Result<u64, ScenarioError> {
        let given_ns = self.duration_ns()?;
        if given_ns > HOUR_NS {
            let given = format!("{} s is out of range", given_ns / 1_000_000_000);
            return Err(self.error(given, "use at most 1h"));
        }
        Ok(given_ns)
    }

    /// One of some words, each with what it means.
    pub(super) fn choice<T: Clone>(&self, words: &[(&'static str, T)]) -> Result<T, ScenarioError> {
        let names = || words.iter().map(|(word, _)| *word);
        let given = self.text()?;
        match words.iter().find(|(word, _)| *word == given) {
            Some((_, meaning)) => Ok(meaning.clone()),
            None => Err(self.error(format!("\"{given}\" is not known"), suggest(given, names()))),
        }
    }

    /// A list; its items keep the key's path.
    pub(super) fn list(&self) -> Result<Vec<Field<'a>>, ScenarioError> {
        match &self.node.value {
            Value::List(items) => {
                Ok(items.iter().map(|node| Field { path: self.path.clone(), node }).collect())
            }
            _ => Err(self.wrong_kind("a list")),
        }
    }

    /// Whether it is a table.
    pub(super) fn is_table(&self) -> bool {
        matches!(self.node.value, Value::Table(_))
    }

    /// Whether it is just this text.
    pub(super) fn is_text(&self, text: &str) -> bool {
        matches!(&self.node.value, Value::Text(given) if given == text)
    }

    /// Whether it is just this whole number.
    pub(super) fn is_integer(&self, number: i64) -> bool {
        matches!(self.node.value, Value::Integer(given) if given == number)
    }

    /// The one word that may stand here where there is no table that looks like `table`.
    pub(super) fn word_or_table(&self, word: &str, table: &str) -> Result<(), ScenarioError> {
        let remedy = || format!("write \"{word}\" or {table}");
        match &self.node.value {
            Value::Text(text) if text == word => Ok(()),
            Value::Text(text) => Err(self.error(format!("\"{text}\" is not known"), remedy())),
            other => Err(self.error(format!("is {}", other.kind()), remedy())),
        }
    }

    /// A mistake of type.
    pub(super) fn wrong_kind(&self, wanted: &str) -> ScenarioError {
        self.error(format!("is {}", self.node.value.kind()), format!("it must be {wanted}"))
    }
}
