//! Stop strings and stop tokens.

use std::sync::Arc;

use memchr::memmem;
use protocol::tokenizer::{Token, decode};

use super::{End, Matched, Source};

/// Tokens that are looked at first: most stops come early, and many replies are long.
const FIRST_LOOK: u32 = 512;

/// What ends a reply early. The default ends none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stops {
    /// In the order in which they were given: of two that are complete with the same token the first counts.
    pub(crate) texts: Vec<Arc<str>>,
    pub(crate) tokens: Vec<Token>,
    /// No token ends a reply that is not longer than this; strings do.
    pub(crate) min_tokens: u32,
    /// The client sees the stop string or stop token too.
    pub(crate) are_shown: bool,
}

impl Stops {
    /// Whether nothing ends a reply early.
    pub(crate) fn are_none(&self) -> bool {
        self.texts.is_empty() && self.tokens.is_empty()
    }

    /// The longest stop string in bytes.
    pub(super) fn longest(&self) -> u32 {
        self.texts.iter().map(|text| text.len() as u32).max().unwrap_or(0)
    }

    /// Whether a text ends with the beginning of a stop string.
    pub(super) fn may_begin(&self, text: &str) -> bool {
        let begins = |stop: &Arc<str>| {
            // No more of it than there is text.
            let ends = stop.char_indices().skip(1).map(|(at, _)| at).take_while(|at| *at <= text.len());
            let prefixes = ends.map(|at| &stop[..at]);
            prefixes.chain((!stop.is_empty()).then_some(&**stop)).any(|prefix| text.ends_with(prefix))
        };
        self.texts.iter().any(begins)
    }

    /// Where a reply of at most so many tokens ends. With `ignore_eos` no token ends it; strings come before tokens.
    pub(super) fn first_end(&self, reply: &Source, most: u32, ignore_eos: bool) -> Option<End> {
        if self.texts.is_empty() && (self.tokens.is_empty() || ignore_eos) {
            return None;
        }
        // What ends the reply within its first tokens is the first that ends it: there is no need to look further.
        let mut looked = FIRST_LOOK.min(most);
        loop {
            let end = self.within(&reply.ids(0, looked), ignore_eos);
            if end.is_some() || looked == most {
                return end;
            }
            looked = looked.saturating_mul(4).min(most);
        }
    }

    /// The first end within these tokens.
    fn within(&self, ids: &[Token], ignore_eos: bool) -> Option<End> {
        let by_text = self.by_text(ids);
        let by_token = if ignore_eos { None } else { self.by_token(ids) };
        match (by_text, by_token) {
            (Some(text), Some(token)) if token.tokens < text.tokens => Some(token),
            (Some(text), _) => Some(text),
            (None, token) => token,
        }
    }

    fn by_text(&self, ids: &[Token]) -> Option<End> {
        if self.texts.is_empty() {
            return None;
        }
        let text = decode(ids);
        let found = self.texts.iter().filter_map(|stop| {
            let from = memmem::find(text.as_bytes(), stop.as_bytes())?;
            Some((stop, from, from + stop.len()))
        });
        let ended = found.map(|(stop, from, to)| (tokens_up_to(ids, to), stop, from, to));
        // `min_by_key` gives the first of equals.
        let (tokens, stop, from, to) = ended.min_by_key(|(tokens, ..)| *tokens)?;
        let whole = decode(&ids[..tokens as usize]).len();
        let hidden = whole - if self.are_shown { to } else { from };
        Some(End { tokens, matched: Matched::Text(Arc::clone(stop)), hidden })
    }

    fn by_token(&self, ids: &[Token]) -> Option<End> {
        let from = (self.min_tokens as usize).min(ids.len());
        let place = ids[from..].iter().position(|id| self.tokens.contains(id))? + from;
        let hidden = if self.are_shown { 0 } else { decode(&ids[place..=place]).len() };
        Some(End { tokens: place as u32 + 1, matched: Matched::Token(ids[place]), hidden })
    }
}

/// How many tokens the first so many bytes of text take, at least one.
fn tokens_up_to(ids: &[Token], bytes: usize) -> u32 {
    let mut seen = 0;
    let whole = |id: &Token| {
        seen += decode(&[*id]).len();
        seen >= bytes
    };
    ids.iter().position(whole).map_or(ids.len(), |place| place + 1) as u32
}
