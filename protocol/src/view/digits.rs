//! Token ids, which come by the hundred thousand.

/// Reads the decimal number that `text` begins with, if it fits into 32 bits, and returns what follows it.
pub(super) fn leading_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    if let Some(word) = text.first_chunk().copied().map(u64::from_le_bytes)
        && let Some((number, len)) = short(word)
    {
        return Some((number, &text[len..]));
    }
    let len = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(len);
    let number = digits
        .iter()
        .try_fold(0_u32, |number, digit| number.checked_mul(10)?.checked_add(u32::from(digit - b'0')))?;
    (len > 0).then_some((number, rest))
}

/// A number of one to seven digits, and how many these are, read without a branch per digit: a loop would be
/// mispredicted at the end of nearly every id.
fn short(word: u64) -> Option<(u32, usize)> {
    let values = word ^ 0x3030_3030_3030_3030;
    // The high bit of every byte that is no digit. A carry may mark the byte above one too, but never the lowest mark.
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let len = others.trailing_zeros() / 8;
    if !(1..8).contains(&len) {
        return None;
    }
    // Leading zeros make it eight digits; these are joined to pairs, the pairs to fours, and those to the number.
    let digits = values << (64 - 8 * len);
    let pairs = (digits.wrapping_mul(10 << 8 | 1) >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_FFFF_0000_FFFF;
    let number = fours.wrapping_mul(10_000 << 32 | 1) >> 32;
    Some((number as u32, len as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_32_bits() {
        let id = |text: &str| leading_digits(text.as_bytes()).map(|(id, _)| id);
        assert_eq!((id("0,"), id("4294967295]")), (Some(0), Some(u32::MAX)));
        assert_eq!((id("4294967296"), id("-1"), id("\"1\""), id("")), (None, None, None, None));
        assert_eq!(id(&"9".repeat(100)), None);
    }

    proptest! {
        #[test]
        fn numbers_of_every_length(digits in "[0-9]{1,9}", tail in "(|[^0-9].{0,9})") {
            let text = format!("{digits}{tail}");
            prop_assert_eq!(leading_digits(text.as_bytes()), Some((digits.parse().unwrap(), tail.as_bytes())));
        }
    }
}
