//! The one chat template: how a list of messages becomes one text.
//!
//! Router and worker render with the same function, so a prefix that the router's index sees is a prefix of the
//! tokens that the engine caches. Two properties carry that:
//!
//! * order is kept and nothing depends on what follows, so the rendering of a conversation's first messages is a
//!   prefix of the rendering of the whole;
//! * every header starts with white space and the reply's own header ends the prompt, so that prompt, reply and
//!   next turn add up in tokens (see [`crate::tokenizer`]).

/// Renders `messages`, pairs of role and text, and opens the assistant's turn.
#[must_use]
pub fn render<R: AsRef<str>, T: AsRef<str>>(messages: impl IntoIterator<Item = (R, T)>) -> String {
    let mut text = String::new();
    for (role, content) in messages {
        header(&mut text, role.as_ref());
        text.push_str(content.as_ref());
    }
    header(&mut text, "assistant");
    text
}

/// Begins a message.
pub(crate) fn header(text: &mut String, role: &str) {
    text.push_str("\n<|");
    text.push_str(role);
    text.push_str("|>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::{block_token, decode, encode};

    #[test]
    fn a_turn_continues_the_cached_sequence() {
        let first = render([("system", "Be brief."), ("user", "Why?")]);
        let reply: Vec<u32> = (0..9).map(|i| block_token(3, i)).collect();
        let next = render([
            ("system", "Be brief."),
            ("user", "Why?"),
            ("assistant", decode(&reply).as_str()),
            ("user", "And then?"),
        ]);
        let mut cached = encode(&first);
        cached.extend(reply);
        assert!(encode(&next).starts_with(&cached));
    }

    #[test]
    fn order_and_roles_matter() {
        assert_ne!(render([("user", "a"), ("user", "b")]), render([("user", "b"), ("user", "a")]));
        assert_ne!(render([("user", "a")]), render([("system", "a")]));
    }
}
