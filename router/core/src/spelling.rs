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

/// Levenshtein's distance: the fewest characters to insert, delete or replace that make `b` of `a`.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, count) in
            [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)]
        {
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
