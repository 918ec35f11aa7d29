//! Puts members into the JSON object of a body, without touching anything else in it.
//!
//! What the body says under the same names is taken out, however often it says so and however the names are escaped:
//! of duplicates the last one counts for some readers and the first one for others. All other members keep their bytes
//! and their order, and so does the white space around them.

use crate::view::BYTE_ORDER_MARK;
use crate::view::cursor::Cursor;

/// What becomes of the members of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// The name; of letters that JSON writes as they are.
    pub name: &'a str,
    /// The value as JSON text; `None` takes the member out.
    pub value: Option<String>,
}

/// The body is no JSON object, or breaks off, or has something behind its end. Nothing can be put into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is no JSON object")]
pub struct NoObject;

impl<'a> Member<'a> {
    /// A member of this value, which is JSON text.
    #[must_use]
    pub fn new(name: &'a str, value: impl Into<String>) -> Self {
        Self { name, value: Some(value.into()) }
    }

    /// No member of this name.
    #[must_use]
    pub fn without(name: &'a str) -> Self {
        Self { name, value: None }
    }
}

/// `body` with these members at its end, and no others of their names. Takes time in proportion to its length.
///
/// # Errors
/// [`NoObject`].
pub fn splice(body: &[u8], members: &[Member<'_>]) -> Result<Vec<u8>, NoObject> {
    let room: usize =
        members.iter().map(|m| m.name.len() + m.value.as_ref().map_or(0, String::len) + 4).sum();
    let mut copy = Copy { body, out: Vec::with_capacity(body.len() + room), from: 0, end: 0, kept: false };
    copy.walk(members).ok_or(NoObject)?;
    let Copy { mut out, end, mut kept, .. } = copy;
    for Member { name, value } in members {
        if let Some(value) = value {
            out.extend_from_slice(if kept { b",\"" } else { b"\"" });
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            out.extend_from_slice(value.as_bytes());
            kept = true;
        }
    }
    out.extend_from_slice(&body[end..]);
    Ok(out)
}

/// A copy under way.
struct Copy<'a> {
    body: &'a [u8],
    out: Vec<u8>,
    /// Where what is to be copied next begins.
    from: usize,
    /// Where the last member ended, or the opening bracket.
    end: usize,
    /// Whether a member is among what is copied.
    kept: bool,
}

impl Copy<'_> {
    /// Copies all but the members of these names, up to the closing bracket. `None` if this is no object.
    fn walk(&mut self, members: &[Member<'_>]) -> Option<()> {
        let body = self.body;
        let at = |cursor: Cursor<'_>| body.len() - cursor.left();
        let mut cursor = Cursor::new(body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body));
        cursor.take(b'{')?;
        self.end = at(cursor);
        if cursor.peek()? != b'}' {
            loop {
                cursor.peek()?;
                let begin = at(cursor);
                let name = cursor.quoted()?.name();
                cursor.take(b':')?;
                cursor.value()?;
                self.member(begin, at(cursor), members.iter().any(|m| m.name.as_bytes() == &*name));
                if cursor.take(b',').is_none() {
                    break;
                }
            }
        }
        cursor.take(b'}')?;
        self.out.extend_from_slice(&body[self.from..self.end]);
        cursor.peek().is_none().then_some(())
    }

    /// The next member, from `begin` up to `end`, goes or stays.
    fn member(&mut self, begin: usize, end: usize, goes: bool) {
        if goes {
            // The comma goes along that separates it from what was kept, or else the one behind it.
            self.out.extend_from_slice(&self.body[self.from..self.end]);
            self.from = end;
        } else {
            if !self.kept && self.from > 0 {
                self.from = begin;
            }
            self.kept = true;
        }
        self.end = end;
    }
}

#[cfg(test)]
mod tests;
