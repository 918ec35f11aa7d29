//! CSV with a header: columns by name, in any order, others passed over. No public trace has commas within its fields, so
//! quotes are taken off and mean nothing else, and a stray one cannot swallow the rest of the file.

use crate::trace::error::{Fault, Mistake, bad};
use crate::trace::source::{Lines, Source};
use crate::trace::stamp::shortened;

/// Reads the columns `N` of a table.
pub(super) struct Table<const N: usize> {
    lines: Lines,
    columns: [Column; N],
    header: Option<Header<N>>,
}

/// What the first line says.
#[derive(Debug, Clone, Copy)]
struct Header<const N: usize> {
    /// Where the columns are.
    places: [Option<usize>; N],
    /// How many there are in all.
    width: usize,
}

/// A column by its name in the header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) required: bool,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(source: Source, columns: [Column; N]) -> Self {
        Self { lines: Lines::new(source), columns, header: None }
    }

    /// Gives the fields of the next row to `read`, empty where the table does not have the column.
    pub(super) fn next<T>(
        &mut self,
        read: impl FnOnce([&str; N]) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Fault> {
        let header = match self.header {
            Some(header) => header,
            None => match self.read_header()? {
                Some(header) => *self.header.insert(header),
                None => return Ok(None),
            },
        };
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        fields(text, header, self.columns).and_then(read).map(Some).map_err(bad(line))
    }

    fn read_header(&mut self) -> Result<Option<Header<N>>, Fault> {
        let columns = self.columns;
        let Some((line, text)) = self.lines.next()? else { return Ok(None) };
        let text = String::from_utf8_lossy(text);
        let names: Vec<&str> = text.split(',').map(plain).collect();
        let places = columns.map(|column| names.iter().position(|name| *name == column.name));
        let lost = |mistake| Err(Fault::Lost { line, mistake });
        for (Column { name, required }, place) in columns.iter().zip(places) {
            let count = names.iter().filter(|other| *other == name).count();
            if *required && place.is_none() {
                return lost((
                    format!("the header has no column `{name}`"),
                    "the first line names the columns",
                ));
            }
            if count > 1 {
                let problem = format!("the header has {count} columns `{name}`");
                return lost((problem, "give each column a name of its own"));
            }
        }
        Ok(Some(Header { places, width: names.len() }))
    }
}

fn fields<const N: usize>(
    text: &[u8],
    Header { places, width }: Header<N>,
    columns: [Column; N],
) -> Result<[&str; N], Mistake> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(("the row is not UTF-8".to_owned(), "convert the file"));
    };
    let given = text.split(',').count();
    if given > width {
        let problem = format!("the row has {given} fields, the header {width}");
        return Err((problem, "write numbers without commas, and one field for each column"));
    }
    let mut fields = [""; N];
    let mut found = [false; N];
    for (at, field) in text.split(',').enumerate() {
        for (which, _) in places.iter().enumerate().filter(|(_, place)| **place == Some(at)) {
            (fields[which], found[which]) = (plain(field), true);
        }
    }
    match columns.iter().zip(found).find(|(column, found)| column.required && !found) {
        None => Ok(fields),
        Some((column, _)) => {
            Err((format!("the row ends before `{}`", column.name), "the row is cut or not of this table"))
        }
    }
}

fn plain(field: &str) -> &str {
    field.trim().trim_matches('"')
}

/// A whole number; some tools write it with decimals.
pub(super) fn whole(name: &str, text: &str) -> Result<i64, Mistake> {
    let with_decimals = || text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && n.abs() < 1e15);
    match text.parse::<i64>() {
        Ok(number) => Ok(number),
        Err(_) => with_decimals().map(|number| number as i64).ok_or_else(|| {
            (format!("{name} \"{}\" is not a whole number", shortened(text)), "lengths are counts of tokens")
        }),
    }
}
