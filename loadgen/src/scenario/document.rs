//! The scenario as it was typed: a tree of values in which every value knows the line or the flag it came from.
//! Nothing here knows what a key means; that is the business of the readers, one per table.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::error::ScenarioError;

/// Where a value was typed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A line of a file, counted from 1.
    Line {
        /// The file as the user named it.
        file: Arc<str>,
        /// The line.
        line: usize,
    },
    /// A flag of the command line, as typed.
    Flag(Arc<str>),
}

impl Origin {
    /// Whether the command line said it, and not the file.
    pub(super) fn is_flag(&self) -> bool {
        matches!(self, Self::Flag(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// The entries of a table.
pub(super) type Table = BTreeMap<String, Node>;

/// A value and its origin. The origin of a table's entry is the line of its key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

/// The kinds of values that a scenario may hold.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    /// As typed, without quotes. No key takes one; it is kept so that its key can be named.
    Date(String),
    List(Vec<Node>),
    Table(Table),
}

impl Value {
    /// The kind in words, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::Date(_) => "a date (or a text without its quotes)",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// The value as JSON, for reports.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool(b) => (*b).into(),
            Self::Integer(i) => (*i).into(),
            Self::Float(x) => (*x).into(),
            Self::Text(text) | Self::Date(text) => text.as_str().into(),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Table(table) => {
                table.iter().map(|(key, node)| (key.clone(), node.value.to_json())).collect()
            }
        }
    }
}

impl Node {
    /// Whether it is a list without items.
    pub(super) fn is_empty_list(&self) -> bool {
        matches!(&self.value, Value::List(items) if items.is_empty())
    }
}

/// A whole scenario, as typed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    /// The outermost table; its origin is the first line.
    pub(super) root: Node,
}

impl Document {
    /// Parses `text`, which was read from `file`.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self, ScenarioError> {
        let file: Arc<str> = file.into();
        let reader = Reader { text, place: &|line| Origin::Line { file: Arc::clone(&file), line } };
        let table = DeTable::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| reader.line(span.start));
            let problem = error.message().trim().replace('\n', ", ");
            ScenarioError::at((reader.place)(line), problem, "the file must be TOML")
        })?;
        let root =
            Node { value: Value::Table(reader.table(table.get_ref(), "")?), origin: (reader.place)(1) };
        Ok(Self { root })
    }

    /// The value at `path`, if there is one.
    pub(super) fn get(&self, path: &[&str]) -> Option<&Node> {
        path.iter().try_fold(&self.root, |node, key| match &node.value {
            Value::Table(table) => table.get(*key),
            _ => None,
        })
    }

    /// Removes an outermost key.
    pub(super) fn remove(&mut self, key: &str) {
        if let Value::Table(table) = &mut self.root.value {
            table.remove(key);
        }
    }

    /// Puts `node` at `path`; tables that are missing on the way are made, and a plain value in the way gives way.
    pub(super) fn set(&mut self, path: &[&str], node: Node) {
        let mut at = &mut self.root;
        for key in path {
            if !matches!(at.value, Value::Table(_)) {
                *at = Node { value: Value::Table(Table::new()), origin: node.origin.clone() };
            }
            let Value::Table(table) = &mut at.value else { return };
            at = table
                .entry((*key).to_owned())
                .or_insert_with(|| Node { value: Value::Table(Table::new()), origin: node.origin.clone() });
        }
        *at = node;
    }
}

/// A value as it is typed behind `--set path=`: TOML, or a bare word that is taken as text.
pub(super) fn parse_value(text: &str, origin: &Origin) -> Node {
    let reader = Reader { text: "", place: &|_| origin.clone() };
    let typed = format!("value = {text}");
    let parsed = DeTable::parse(&typed).ok().filter(|table| table.get_ref().len() == 1);
    let value = parsed.and_then(|table| {
        Some(reader.node(table.get_ref().values().next()?.get_ref(), origin.clone(), "").ok()?.value)
    });
    let value = match value {
        // On a command line a date, too, is a bare word.
        None | Some(Value::Date(_)) => Value::Text(text.to_owned()),
        Some(value) => value,
    };
    Node { value, origin: origin.clone() }
}

/// The keys of a dotted path, some perhaps quoted; `None` when it is not one.
pub(super) fn parse_path(path: &str) -> Option<Vec<String>> {
    let typed = format!("{path} = 0");
    let table = DeTable::parse(&typed).ok()?;
    let mut keys = Vec::new();
    let mut at = table.get_ref();
    loop {
        let (key, value) = at.iter().next().filter(|_| at.len() == 1)?;
        keys.push(key.get_ref().clone().into_owned());
        match value.get_ref() {
            DeValue::Table(next) => at = next,
            DeValue::Integer(_) => return Some(keys),
            _ => return None,
        }
    }
}

/// Turns parsed TOML into nodes.
struct Reader<'a> {
    text: &'a str,
    place: &'a dyn Fn(usize) -> Origin,
}

impl Reader<'_> {
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|b| *b == b'\n').count()
    }

    /// The entries of the table at `path`, which is empty for the outermost.
    fn table(&self, table: &DeTable<'_>, path: &str) -> Result<Table, ScenarioError> {
        table
            .iter()
            .map(|(key, value)| {
                let name = key.get_ref();
                let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
                let origin = (self.place)(self.line(key.span().start));
                Ok((name.clone().into_owned(), self.node(value.get_ref(), origin, &path)?))
            })
            .collect()
    }

    fn node(&self, value: &DeValue<'_>, origin: Origin, path: &str) -> Result<Node, ScenarioError> {
        let too_large = |digits: &str| {
            let problem = format!("{digits} is no number that fits");
            Err(ScenarioError::at(&origin, problem, "use a finite number").key(path))
        };
        let value = match value {
            DeValue::Boolean(b) => Value::Bool(*b),
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(integer) => Value::Integer(integer),
                Err(_) => return too_large(digits.as_str()),
            },
            DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Value::Float(number),
                _ => return too_large(digits.as_str()),
            },
            DeValue::Datetime(date) => Value::Date(date.to_string()),
            DeValue::Table(table) => Value::Table(self.table(table, path)?),
            DeValue::Array(items) => Value::List(
                items
                    .iter()
                    .map(|item| {
                        let origin = (self.place)(self.line(item.span().start));
                        self.node(item.get_ref(), origin, path)
                    })
                    .collect::<Result<_, ScenarioError>>()?,
            ),
        };
        Ok(Node { value, origin })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(node: &Node) -> usize {
        match &node.origin {
            Origin::Line { line, .. } => *line,
            Origin::Flag(flag) => panic!("{flag}"),
        }
    }

    #[test]
    fn every_value_knows_its_line() {
        let text = "a = 1\n\n[b]\nc = [\n 1,\n 2]\n[[d]]\nx = 1\n[[d]]\n";
        let document = Document::parse("f", text).unwrap();
        assert_eq!(line(document.get(&["a"]).unwrap()), 1);
        assert_eq!(line(document.get(&["b"]).unwrap()), 3);
        let Value::List(items) = &document.get(&["b", "c"]).unwrap().value else { panic!() };
        assert_eq!(items.iter().map(line).collect::<Vec<_>>(), [5, 6]);
        let Value::List(tables) = &document.get(&["d"]).unwrap().value else { panic!() };
        assert_eq!(tables.iter().map(line).collect::<Vec<_>>(), [7, 9]);
    }

    #[test]
    fn a_broken_file_names_its_line() {
        let error = Document::parse("f.toml", "a = 1\nb = \n").unwrap_err().to_string();
        assert!(error.starts_with("f.toml:2: "), "{error}");
        let error = Document::parse("f.toml", "a = 1\na = 2\n").unwrap_err().to_string();
        assert!(error.starts_with("f.toml:2: "), "{error}");
    }

    #[test]
    fn bare_words_are_text_and_the_rest_is_toml() {
        let origin = Origin::Flag("--set".into());
        for (typed, value) in [
            ("lpm", Value::Text("lpm".into())),
            ("\"lpm\"", Value::Text("lpm".into())),
            ("1.5s", Value::Text("1.5s".into())),
            ("8", Value::Integer(8)),
            ("-0.5", Value::Float(-0.5)),
            ("true", Value::Bool(true)),
            ("1\nb = 2", Value::Text("1\nb = 2".into())),
        ] {
            assert_eq!(parse_value(typed, &origin).value, value, "{typed}");
        }
        assert_eq!(parse_value("[0.1, 2]", &origin).value.to_json(), serde_json::json!([0.1, 2]));
    }

    #[test]
    fn paths_are_dotted_and_may_be_quoted() {
        assert_eq!(parse_path("a.b-c").unwrap(), ["a", "b-c"]);
        assert_eq!(parse_path("sweep.\"a.b\"").unwrap(), ["sweep", "a.b"]);
        for bad in ["", "a..b", "a b", "a=1\nb", "."] {
            assert_eq!(parse_path(bad), None, "{bad}");
        }
    }

    #[test]
    fn setting_makes_the_way() {
        let origin = Origin::Flag("--set".into());
        let node = |i| Node { value: Value::Integer(i), origin: origin.clone() };
        let mut document = Document::parse("f", "a = 1\n[b]\nc = 2\n").unwrap();
        document.set(&["b", "c"], node(3));
        document.set(&["x", "y"], node(4));
        document.set(&["a", "z"], node(5));
        assert_eq!(
            document.root.value.to_json(),
            serde_json::json!({"a": {"z": 5}, "b": {"c": 3}, "x": {"y": 4}})
        );
    }
}
