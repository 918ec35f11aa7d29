//! Which word was probably meant.

/// The word of `words` that is nearest to `given`, if it is near enough that it was probably meant.
#[must_use]
pub fn nearest<'a>(given: &str, words: &[&'a str]) -> Option<&'a str> {
    let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
    if given.len() > 2 * longest {
        return None;
    }
    let (edits, word) = words.iter().map(|word| (edits(given, word), *word)).min()?;
    (edits <= (word.len() / 3).max(1)).then_some(word)
}

/// The fewest characters to insert, delete or replace, and neighbours to swap, that make `b` of `a`; nothing is changed twice
/// (the distance of Damerau and Levenshtein in its restricted form).
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let changed = (row[j] + usize::from(from != to)).min(next[j] + 1).min(row[j + 1] + 1);
            let is_swap = i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to;
            next.push(if is_swap { changed.min(before[j - 1] + 1) } else { changed });
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, count) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("flaw", "lawn", 2),
            ("prot", "port", 1),
        ] {
            assert_eq!((edits(a, b), edits(b, a)), (count, count), "{a} {b}");
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        let words = ["random", "round_robin", "manual"];
        assert_eq!(nearest("roundrobin", &words), Some("round_robin"));
        assert_eq!(nearest("RANDOM", &words), None);
        assert_eq!(nearest("", &words), None);
        assert_eq!(nearest(&"x".repeat(10_000), &words), None);
    }
}
