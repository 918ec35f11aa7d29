//! The configuration file: TOML whose keys are the flags' names in `snake_case`, each at the top or in the section of its
//! group. What a value may be is left to its flag.

use std::path::Path;
use std::sync::Arc;

use clap::{Arg, Command};
use router_core::spelling;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::absent;
use super::file_workers::{self, FileWorker};
use super::given::{Given, Layer, Origin};
use super::ignored;
use super::sections::{self, POLICY, POLICY_NAME, SECTIONS, Shape, WORKER_TABLES};
use super::source::FileMark;
use super::stop::Stop;
use crate::reload::Contents;

/// What a file says.
#[derive(Default)]
pub(super) struct File {
    pub(super) layer: Layer,
    pub(super) workers: Vec<FileWorker>,
    /// Absent without a file.
    pub(super) mark: Option<FileMark>,
}

/// A key of the file with its value.
pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a DeValue<'a>,
    pub(super) place: Origin,
}

/// A file's name and text, for places.
pub(super) struct Text<'a> {
    file: Arc<str>,
    text: &'a str,
    /// Where lines end, in ascending order: each key wants to know its line.
    ends: Vec<usize>,
}

impl File {
    /// Reads a file; every flag that it may set is an argument of `command`.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or says what no flag takes.
    pub(super) fn read(path: &Path, command: &Command) -> Result<Self, Stop> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Stop::wrong("--config", format!("cannot read `{}`: {error}", path.display())))?;
        Self::parse(&path.display().to_string(), &text, command)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// As [`File::read`], but that it is there already.
    pub(super) fn parse(file: &str, text: &str, command: &Command) -> Result<Self, Stop> {
        let text = Text::new(file, text);
        // Not the error's own text: it repeats the line, which may hold a key.
        let root = DeTable::parse(text.text).map_err(|error| {
            let place = text.place(error.span().map_or(0, |span| span.start));
            Stop::Wrong(format!("{place}: {}", error.message().trim().replace('\n', ", ")))
        })?;
        let (mut read, mut command) = (Self::default(), command.clone());
        for entry in text.entries(root.get_ref()) {
            let section = SECTIONS.iter().find(|(_, section)| *section == entry.key);
            if entry.key == WORKER_TABLES {
                read.workers = file_workers::read(&text, &entry)?;
            } else if let Some((_, section)) = section {
                let DeValue::Table(table) = entry.value else {
                    return Err(entry.wrong(format!("is a section; write [{section}] above its keys")));
                };
                for entry in text.entries(table) {
                    read.put(entry, Some(section), &mut command)?;
                }
            } else {
                read.put(entry, None, &mut command)?;
            }
        }
        let is_blank = read.layer.0.is_empty() && read.workers.is_empty();
        read.mark = Some(FileMark { contents: Contents::of(text.text.as_bytes()), is_blank });
        Ok(read)
    }

    /// Takes a key's value as that of its flag.
    fn put(&mut self, entry: Entry<'_>, section: Option<&str>, command: &mut Command) -> Result<(), Stop> {
        let arg = find(&entry, section, command)?;
        let (id, shape) = (arg.get_id().to_string(), sections::shape(arg));
        let values = match entry.value {
            DeValue::Array(items) if shape == Shape::List => {
                items.iter().map(|item| text(item.get_ref())).collect::<Option<Vec<_>>>()
            }
            value => text(value).map(|text| vec![text]),
        };
        let values = values.ok_or_else(|| entry.wrong(takes(shape)))?;
        let given = Given { values, origin: entry.place.clone() };
        given.check(&id, command)?;
        if !fits(entry.value, shape) {
            return Err(entry.wrong(takes(shape)));
        }
        if let Some(before) = self.layer.origin(&id) {
            return Err(entry.wrong(format!("is set already, at {before}")));
        }
        self.layer.0.insert(id, given);
        Ok(())
    }
}

impl Entry<'_> {
    /// A refusal of this key or its value.
    pub(super) fn wrong(&self, problem: impl std::fmt::Display) -> Stop {
        Stop::Wrong(format!("{}: `{}` {problem}", self.place, self.key))
    }

    /// A refusal of a key that is not known.
    pub(super) fn unknown(&self, section: &str, known: &[&str]) -> Stop {
        let nearest = spelling::nearest(self.key, known);
        let hint = nearest.map_or_else(String::new, |nearest| format!(" (did you mean `{nearest}`?)"));
        self.wrong(format!("is no key{section}{hint}"))
    }
}

impl<'t> Text<'t> {
    fn new(file: &str, text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Self { file: file.into(), text, ends }
    }

    fn place(&self, offset: usize) -> Origin {
        let line = 1 + self.ends.partition_point(|end| *end < offset);
        Origin::Line { file: Arc::clone(&self.file), line }
    }

    /// The entries of a table from top to bottom.
    pub(super) fn entries<'a>(&self, table: &'a DeTable<'_>) -> Vec<Entry<'a>> {
        let mut rows: Vec<_> = table.iter().collect();
        rows.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'_>>)| Entry {
            key: AsRef::<str>::as_ref(key.get_ref() as &std::borrow::Cow<'_, str>),
            value: value.get_ref(),
            place: self.place(key.span().start),
        };
        rows.into_iter().map(entry).collect()
    }

    /// Where an item of a list begins.
    pub(super) fn place_of(&self, item: &Spanned<DeValue<'_>>) -> Origin {
        self.place(item.span().start)
    }
}

/// The flag that a key stands for.
fn find<'a>(entry: &Entry<'_>, section: Option<&str>, command: &'a Command) -> Result<&'a Arg, Stop> {
    let own = |arg: &&Arg| match (sections::section(arg), section) {
        (Some(own), Some(section)) => own == section,
        // The policy's name needs its section to be understood.
        (Some(own), None) => own != POLICY,
        (None, _) => false,
    };
    if let Some(arg) = command.get_arguments().filter(own).find(|arg| sections::key(arg) == entry.key) {
        return Ok(arg);
    }
    let mut others = command.get_arguments().filter(|arg| sections::key(arg) == entry.key);
    if let Some(home) = others.find_map(sections::section) {
        return Err(entry.wrong(format!("belongs in the section [{home}]")));
    }
    if (entry.key, section) == (POLICY, Some(POLICY)) {
        return Err(entry.wrong(format!("is called `{POLICY_NAME}` in its section")));
    }
    let flag = sections::flag(entry.key);
    if let Some(row) = ignored::find(&flag) {
        return Err(entry.wrong(format!("has no effect here: {}; leave it out", row.instead)));
    }
    if let Some(message) = absent::of_gateway([flag.as_str()]) {
        return Err(Stop::Wrong(message).at(&entry.place));
    }
    let mut known: Vec<&str> = command.get_arguments().filter(own).map(sections::key).collect();
    if section.is_none() {
        known.extend(SECTIONS.iter().map(|(_, section)| *section).chain([WORKER_TABLES]));
    }
    let place = section.map_or_else(String::new, |section| format!(" of [{section}]"));
    Err(entry.unknown(&place, &known))
}

/// A single value as it is typed on a command line.
fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(digits) => {
            let number = i128::from_str_radix(digits.as_str(), digits.radix()).ok()?;
            Some(number.to_string())
        }
        DeValue::Float(digits) => Some(digits.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn fits(value: &DeValue<'_>, shape: Shape) -> bool {
    match (value, shape) {
        (DeValue::Boolean(_), shape) => shape == Shape::Bool,
        (DeValue::Integer(_) | DeValue::Float(_), shape) => matches!(shape, Shape::Number | Shape::List),
        (DeValue::String(_), shape) => matches!(shape, Shape::Text | Shape::List),
        (DeValue::Array(items), Shape::List) => items
            .iter()
            .all(|item| !matches!(item.get_ref(), DeValue::Array(_)) && fits(item.get_ref(), shape)),
        _ => false,
    }
}

fn takes(shape: Shape) -> &'static str {
    match shape {
        Shape::Bool => "takes true or false, without quotes",
        Shape::Number => "takes one number, without quotes",
        Shape::Text => "takes one text, in quotes",
        Shape::List => "takes a list such as [\"a\", \"b\"]",
    }
}
