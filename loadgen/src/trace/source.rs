//! The bytes of a trace: opened and counted; cut into lines, or into the objects of a JSON array.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{Fault, Mistake, TraceError};
use crate::scenario::input;

/// Longest line, in bytes: the longest prompt in blocks of 16 tokens has a million ids.
pub(super) const LONGEST_LINE: usize = 16 << 20;
/// Largest conversation, in bytes.
const LARGEST_OBJECT: usize = 256 << 20;
/// What some editors put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// How much of a file is looked at to find its format.
const HEAD: usize = 256 << 10;

/// Where a trace comes from.
pub(super) type Source = Box<dyn BufRead + Send>;

/// Opens the file at `path`; `read` counts the bytes that have been read.
pub(super) fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Source, TraceError> {
    let file = input::open(path).map_err(TraceError::File)?;
    let counted = Counted { file, read: Arc::clone(read) };
    Ok(Box::new(BufReader::with_capacity(1 << 16, counted)))
}

struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// The first bytes of `source`, and a source that still begins with them; both without a byte order mark.
pub(super) fn head(mut source: Source) -> io::Result<(Vec<u8>, Source)> {
    let mut head = Vec::new();
    source.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    if head.starts_with(BYTE_ORDER_MARK) {
        head.drain(..BYTE_ORDER_MARK.len());
    }
    let whole = io::Cursor::new(head.clone()).chain(source);
    Ok((head, Box::new(whole)))
}

/// The lines of a source, numbered from 1.
pub(super) struct Lines {
    from: Source,
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn new(from: Source) -> Self {
        Self { from, number: 0, line: Vec::new() }
    }

    /// The next line that is not blank, trimmed, with its number.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, Fault> {
        loop {
            self.line.clear();
            self.number += 1;
            let most = LONGEST_LINE as u64 + 1;
            self.from.by_ref().take(most).read_until(b'\n', &mut self.line)?;
            if self.line.is_empty() {
                return Ok(None);
            }
            if self.line.len() > LONGEST_LINE {
                self.pass_rest()?;
                let mistake = ("the line is longer than 16 MB".to_owned(), "a trace has one row per line");
                return Err(Fault::Bad { line: self.number, mistake });
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some((self.number, self.line.trim_ascii())));
            }
        }
    }

    /// Whether the file ends within the line that was given last, as where its writer was killed.
    pub(super) fn is_cut(&self) -> bool {
        !self.line.is_empty() && !self.line.ends_with(b"\n")
    }

    /// Passes over what is left of a line that is too long, without keeping it.
    fn pass_rest(&mut self) -> io::Result<()> {
        if self.line.ends_with(b"\n") {
            return Ok(());
        }
        self.from.skip_until(b'\n').map(|_| ())
    }
}

/// The JSON objects of a source: those of one array, or one after the other.
pub(super) struct Objects {
    from: Source,
    line: u64,
    begun: bool,
    in_array: bool,
    object: Vec<u8>,
}

impl Objects {
    pub(super) fn new(from: Source) -> Self {
        Self { from, line: 1, begun: false, in_array: false, object: Vec::new() }
    }

    /// The next object, with the number of the line on which it begins.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, Fault> {
        loop {
            let Some(byte) = self.peek()? else {
                if self.in_array {
                    return Err(self.lost("the array does not end", "the file is cut"));
                }
                return Ok(None);
            };
            match byte {
                b'{' => break,
                b'[' if !self.begun => self.in_array = true,
                b']' if self.in_array => self.in_array = false,
                b',' if self.in_array => {}
                byte if byte.is_ascii_whitespace() => {}
                // One object after the other: the next line may be one.
                _ if !self.in_array => return Err(self.pass_line()?),
                _ => return Err(self.lost("this is not a JSON object", "the file is cut or not JSON")),
            }
            self.begun |= !byte.is_ascii_whitespace();
            self.line += u64::from(byte == b'\n');
            self.from.consume(1);
        }
        self.begun = true;
        let line = self.line;
        self.take_object()?;
        Ok(Some((line, &self.object)))
    }

    /// Passes over a line that is no object, and says so.
    fn pass_line(&mut self) -> io::Result<Fault> {
        let line = self.line;
        self.from.skip_until(b'\n')?;
        self.line += 1;
        let mistake = ("this is not a JSON object".to_owned(), "the file is cut or not JSON");
        Ok(Fault::Bad { line, mistake })
    }

    fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.from.fill_buf()?.first().copied())
    }

    /// Moves the object that begins here into `self.object`.
    fn take_object(&mut self) -> Result<(), Fault> {
        self.object.clear();
        let start = self.line;
        let mut scan = Scan::default();
        while !scan.done {
            let chunk = self.from.fill_buf()?;
            let length = scan.pass(chunk);
            self.line += chunk[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.object.extend_from_slice(&chunk[..length]);
            let mistake: Mistake = if chunk.is_empty() {
                ("the object does not end".to_owned(), "the file is cut or not JSON")
            } else if self.object.len() > LARGEST_OBJECT {
                ("the object is larger than 256 MB".to_owned(), "a conversation is an object of its own")
            } else {
                self.from.consume(length);
                continue;
            };
            return Err(Fault::Lost { line: start, mistake });
        }
        Ok(())
    }

    fn lost(&self, problem: &str, remedy: &'static str) -> Fault {
        Fault::Lost { line: self.line, mistake: (problem.to_owned(), remedy) }
    }
}

/// Where an object ends: how deep the scan is, and whether within a string.
#[derive(Default)]
struct Scan {
    depth: u32,
    in_string: bool,
    escaped: bool,
    done: bool,
}

impl Scan {
    /// How many bytes of `chunk` belong to the object.
    fn pass(&mut self, chunk: &[u8]) -> usize {
        for (at, byte) in chunk.iter().enumerate() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.done = true;
                        return at + 1;
                    }
                }
                _ => {}
            }
        }
        chunk.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(text: &'static str, chunk: usize) -> Vec<(u64, String)> {
        let mut objects = Objects::new(Box::new(BufReader::with_capacity(chunk, text.as_bytes())));
        let mut all = Vec::new();
        while let Some((line, object)) = objects.next().unwrap() {
            all.push((line, String::from_utf8(object.to_vec()).unwrap()));
        }
        all
    }

    #[test]
    fn objects_are_the_same_whatever_the_chunks() {
        let text = "[\n{\"a\": \"}\\\"]\\\\\", \"b\": [{}, {\"c\":\n 1}]} ,\n\n{}\n]\n";
        let expected =
            [(2, "{\"a\": \"}\\\"]\\\\\", \"b\": [{}, {\"c\":\n 1}]}".to_owned()), (5, "{}".to_owned())];
        for chunk in 1..text.len() {
            assert_eq!(objects(text, chunk), expected, "chunks of {chunk} bytes");
        }
    }

    #[test]
    fn a_head_is_given_back_without_its_byte_order_mark() {
        for text in ["\u{feff}abc\ndef", "abc\ndef", ""] {
            let (head, source) = head(Box::new(text.as_bytes())).unwrap();
            let all = io::read_to_string(source).unwrap();
            assert_eq!((all.as_bytes(), all.as_str()), (&head[..], text.trim_start_matches('\u{feff}')));
        }
    }
}
