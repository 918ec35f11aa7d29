//! The command line of a target, and what stands in braces in it.

use std::collections::BTreeMap;
use std::fmt;

use super::super::document::Value;
use super::super::error::{ScenarioError, suggest};
use super::super::section::{Field, Section};
use super::Addresses;

/// What may stand in braces in a command.
const PLACEHOLDERS: [&str; 8] =
    ["port", "metrics_port", "workers", "worker_urls", "prefill", "bootstrap", "decode", "seed"];

/// A command line with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    words: Vec<Word>,
    /// Where it was written.
    pub place: String,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Once(String),
    /// Words that stand there once for every worker of a list.
    Each(List, Vec<String>),
}

/// The workers of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Regular,
    Prefill,
    Decode,
}

impl Command {
    /// Reads `command` and `env` of a target.
    pub(super) fn read(section: &Section<'_>, field: &Field<'_>) -> Result<Self, ScenarioError> {
        if section.get("worker_port").is_some() {
            let remedy = "remove it: a command is told where the workers are, by {workers}";
            return Err(section.error("worker_port", "is for a router that runs", remedy));
        }
        let words: Vec<Word> = field.list()?.iter().map(word).collect::<Result<_, _>>()?;
        let mut env = BTreeMap::new();
        if let Some(table) = section.get("env") {
            for (key, value) in Section::unchecked(table.node, "target.env")?.fields() {
                env.insert(key.to_owned(), value.text()?.to_owned());
            }
        }
        let command = Self { words, place: field.node.origin.to_string(), env };
        if !matches!(command.words.first(), Some(Word::Once(program)) if !program.is_empty()) {
            return Err(
                field.error("has no program", "begin it with the program, command = [\"program\", …]")
            );
        }
        if !command.names(&["port"]) {
            return Err(field.error("has no {port}", "say where the router is to listen, by {port}"));
        }
        Ok(command)
    }

    /// The program and its arguments.
    #[must_use]
    pub fn filled(&self, at: &Addresses) -> Vec<String> {
        let mut filled = Vec::new();
        for word in &self.words {
            match word {
                Word::Once(word) => match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
                    Some(name) => filled.extend(at.values(name)),
                    None => filled.push(replaced(word, |name| at.text(name))),
                },
                Word::Each(list, words) => {
                    for place in 0..at.count(*list) {
                        let of_one = |name: &str| at.of_one(*list, place, name);
                        filled.extend(words.iter().map(|word| replaced(word, of_one)));
                    }
                }
            }
        }
        filled
    }

    /// The program, where that is known before ports and workers are.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        match self.words.first() {
            Some(Word::Once(program)) if placeholders_of(program).next().is_none() => Some(program),
            _ => None,
        }
    }

    /// Whether one of these placeholders stands in it.
    pub(super) fn names(&self, placeholders: &[&str]) -> bool {
        self.words().any(|word| placeholders_of(word).any(|name| placeholders.contains(&name)))
    }

    /// The words as they were typed.
    fn words(&self) -> impl Iterator<Item = &str> {
        let words = self.words.iter().flat_map(|word| match word {
            Word::Once(word) => std::slice::from_ref(word),
            Word::Each(_, words) => words,
        });
        words.map(String::as_str)
    }
}

impl List {
    /// The workers that a placeholder is about, if it stands for one URL or port of each.
    pub(super) fn of(placeholder: &str) -> Option<Self> {
        match placeholder {
            "workers" => Some(Self::Regular),
            "prefill" | "bootstrap" => Some(Self::Prefill),
            "decode" => Some(Self::Decode),
            _ => None,
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().collect::<Vec<_>>().join(" "))
    }
}

/// The names in braces: small letters and underscores.
fn placeholders_of(word: &str) -> impl Iterator<Item = &str> {
    let plain = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    word.split('{').skip(1).filter_map(move |rest| rest.split_once('}').map(|(name, _)| name).filter(plain))
}

fn replaced(word: &str, value: impl Fn(&str) -> String) -> String {
    let mut text = word.to_owned();
    for name in PLACEHOLDERS {
        let placeholder = format!("{{{name}}}");
        if text.contains(&placeholder) {
            text = text.replace(&placeholder, &value(name));
        }
    }
    text
}

fn word(field: &Field<'_>) -> Result<Word, ScenarioError> {
    let Value::List(_) = field.node.value else {
        let word = field.text()?;
        check_placeholders(field, word)?;
        return Ok(Word::Once(word.to_owned()));
    };
    let mut list = None;
    let mut words = Vec::new();
    for field in field.list()? {
        let word = field.text()?;
        check_placeholders(&field, word)?;
        for of in placeholders_of(word).filter_map(List::of) {
            if *list.get_or_insert(of) != of {
                return Err(field.error("is about workers of two roles", "give each role a list of its own"));
            }
        }
        words.push(word.to_owned());
    }
    match list {
        Some(list) => Ok(Word::Each(list, words)),
        None => {
            let remedy = "a list within the command stands there once for every worker: name one by {workers}, \
                          {prefill}, {bootstrap} or {decode}";
            Err(field.error("names no worker", remedy))
        }
    }
}

fn check_placeholders(field: &Field<'_>, word: &str) -> Result<(), ScenarioError> {
    match placeholders_of(word).find(|name| !PLACEHOLDERS.contains(name)) {
        None => Ok(()),
        Some(unknown) => {
            Err(field.error(format!("{{{unknown}}} is no placeholder"), suggest(unknown, PLACEHOLDERS)))
        }
    }
}
