//! Blocks of text, and blocks of other sizes.

use protocol::tokenizer::{Token, mix};

/// Prompt tokens per block of what comes as text: fine enough for the prompts of a chat.
pub(super) const TEXT_BLOCK_TOKENS: u32 = 16;

/// The blocks of `tokens`. The name of a block stands for all that came before it too, so prompts have a name in common
/// exactly as far as they begin alike; the last block may not be full.
pub(super) fn of_text(tokens: &[Token]) -> Box<[u64]> {
    let mut hash = mix(u64::from(TEXT_BLOCK_TOKENS));
    let mut name = |block: &[Token]| {
        for token in block {
            hash = mix(hash.rotate_left(17) ^ u64::from(*token));
        }
        mix(hash ^ block.len() as u64)
    };
    tokens.chunks(TEXT_BLOCK_TOKENS as usize).map(&mut name).collect()
}

/// The names of the blocks of `to` tokens of a prompt whose blocks of `from` tokens are `blocks`; one size must divide the
/// other. Prompts that had blocks in common still have.
pub(super) fn resized(blocks: &[u64], input_tokens: u32, from: u32, to: u32) -> Box<[u64]> {
    if from == to {
        return blocks.into();
    }
    if to > from {
        let joined = |group: &[u64]| group.iter().fold(mix(u64::from(to)), |name, id| mix(name ^ mix(*id)));
        return blocks.chunks((to / from) as usize).map(joined).collect();
    }
    let parts = from / to;
    let part = |id: u64, at: u32| mix(mix(id) ^ u64::from(at));
    let all = blocks.iter().flat_map(|id| (0..parts).map(move |at| part(*id, at)));
    all.take(input_tokens.div_ceil(to) as usize).collect()
}

/// Keeps what belongs to one row apart from the blocks that rows share.
const OWN: u64 = 0x004F_574E;

/// Names for the blocks of row `seq` from the one at `from` on, which no other row has.
pub(super) fn own(seq: u64, from: usize) -> impl Iterator<Item = u64> {
    (from..).map(move |at| mix(mix(OWN ^ seq) ^ at as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_beginnings_have_equal_blocks_and_nothing_else_has() {
        let text: Vec<Token> = (0..100).collect();
        let a = of_text(&text);
        assert_eq!(a.len(), 7);
        let mut other = text.clone();
        other[40] = 999;
        let b = of_text(&other);
        let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
        assert_eq!(same, 2, "token 40 is in the third block");
        assert!(a[2..].iter().all(|name| !b.contains(name)), "and what follows is another prefix");
        assert_ne!(of_text(&text[..20])[1], a[1], "a block that is not full is another block");
        assert_eq!(of_text(&text[..16])[0], a[0]);
    }

    #[test]
    fn other_sizes_keep_what_is_common() {
        let (a, b) = ([1, 2, 3, 4, 5], [1, 2, 3, 9]);
        let common = |to: u32| {
            let (a, b) = (resized(&a, 320, 64, to), resized(&b, 250, 64, to));
            (a.len(), b.len(), a.iter().zip(&b).take_while(|(a, b)| a == b).count())
        };
        assert_eq!(common(64), (5, 4, 3));
        assert_eq!(common(128), (3, 2, 1));
        assert_eq!(common(16), (20, 16, 12));
    }
}
