//! What workers say, passed on to standard error line by line, each with the worker's number before it.

use std::io::{self, BufRead, BufReader, Read};

use crate::log;

/// A line is passed on in pieces of at most so many bytes.
const LONGEST_PIECE: usize = 64 << 10;

/// Passes on everything until nobody can write any more.
pub(super) fn pass_on(index: usize, from: impl Read) {
    let prefix = format!("[worker {index}] ");
    let mut from = BufReader::new(from);
    let mut piece = Vec::new();
    while let Ok(Some(())) = next(&mut from, &prefix, &mut piece) {
        // Where nobody reads it, it is dropped: the worker must not be held up.
        log::pass(&piece);
    }
}

/// Makes `piece` the next line, ended, with the prefix before it; `None` at the end.
fn next(from: &mut impl BufRead, prefix: &str, piece: &mut Vec<u8>) -> io::Result<Option<()>> {
    piece.clear();
    piece.extend_from_slice(prefix.as_bytes());
    let read = from.by_ref().take(LONGEST_PIECE as u64).read_until(b'\n', piece)?;
    if read == 0 {
        return Ok(None);
    }
    if piece.last() != Some(&b'\n') {
        piece.push(b'\n');
    }
    Ok(Some(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_a_prefix_and_an_end() {
        let long = "x".repeat(LONGEST_PIECE + 1);
        let text = format!("one\n\n{long}\nlast");
        let mut from = text.as_bytes();
        let (mut piece, mut lines) = (Vec::new(), Vec::new());
        while let Some(()) = next(&mut from, "> ", &mut piece).expect("text") {
            lines.push(String::from_utf8(piece.clone()).expect("text"));
        }
        let lengths: Vec<_> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [6, 3, 2 + LONGEST_PIECE + 1, 4, 7]);
        assert!(lines.iter().all(|line| line.starts_with("> ") && line.ends_with('\n')));
        assert_eq!(lines[4], "> last\n");
    }
}
