//! Failures that an engine tells within an answer of status 200, because its head had gone before; and what it says of them.

use std::borrow::Cow;

use super::lists::each_frame;
use crate::view::cursor::{Cursor, Value};
use crate::view::fields::{fields, number, text};

fields! {
    /// One answer.
    Answer { meta_info, error }
}

fields! {
    /// What is known of a generation.
    Meta { finish_reason }
}

fields! {
    /// Why it has ended, or what is wrong; SGLang's names in both.
    Reason { status_code, code, message, detail }
}

/// An engine has failed at a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// The status that its answer should have had.
    pub status: u16,
    /// What it says of the hand-off, if that is what has failed.
    pub hand_off: Option<HandOff>,
}

/// What the engines of a pair call a hand-off that has failed: SGLang's words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOff {
    /// The decode engine has had no sign of life of the prefill engine.
    LostPrefill,
    /// The two engines have not met.
    Handshake,
    /// The KV has not come.
    Transfer,
    /// The prefill engine's bootstrap server could not be asked.
    Bootstrap,
    /// Another error of the transfer.
    Other,
}

/// The failure that an answer of success tells of: that of a generation which the engine's scheduler has given up, or an error in
/// place of a frame. A request that was aborted because somebody asked for it has failed in no way; an error that does not say that
/// the engine is to blame counts as one of the request (400).
#[must_use]
pub fn failure(answer: &[u8]) -> Option<Failed> {
    let mut found = None;
    each_frame(answer, |_, item| found = found.or_else(|| failed(item)));
    found
}

/// The failed hand-off that an answer of any status tells of.
#[must_use]
pub fn hand_off(answer: &[u8]) -> Option<HandOff> {
    let mut found = None;
    each_frame(answer, |_, item| {
        found = found.or_else(|| told(item).and_then(|told| HandOff::of(&told.message)));
    });
    found
}

/// Whether an answer of any status refuses a request because the engine has another one under the same id (`rid`).
#[must_use]
pub fn is_duplicate(answer: &[u8]) -> bool {
    let mut is_one = false;
    each_frame(answer, |_, item| {
        is_one |= told(item).is_some_and(|told| told.message.starts_with("Duplicate request ID"));
    });
    is_one
}

/// What is wrong, as one answer tells it.
struct Told<'a> {
    message: Cow<'a, str>,
    kind: Kind,
    reason: Reason<'a>,
    /// The member `type` beside these.
    class: Option<Value<'a>>,
}

enum Kind {
    /// The scheduler's word.
    Abort,
    /// In place of an answer.
    Error,
    /// The same without the name of one: in an answer of success it may be anything.
    Unnamed,
}

fn failed(item: &[u8]) -> Option<Failed> {
    let told = told(item)?;
    let hand_off = HandOff::of(&told.message);
    let status = match told.kind {
        Kind::Abort => u16::try_from(number(told.reason.status_code)?)
            .ok()
            .filter(|status| (500..600).contains(status))?,
        Kind::Error => told.status_of_error(hand_off),
        Kind::Unnamed => return None,
    };
    Some(Failed { status, hand_off })
}

fn told(item: &[u8]) -> Option<Told<'_>> {
    let mut answer = Answer::default();
    answer.read(&mut Cursor::new(item))?;
    match (answer.error, answer.meta_info) {
        (Some(Value::Object(error)), _) => Told::of(Kind::Error, error),
        (Some(Value::String(message)), _) => {
            let message = message.text();
            Some(Told { message, kind: Kind::Error, reason: Reason::default(), class: None })
        }
        (_, Some(Value::Object(meta))) => {
            let mut known = Meta::default();
            known.read(&mut Cursor::new(meta))?;
            let Some(Value::Object(why)) = known.finish_reason else { return None };
            Told::of(Kind::Abort, why)
        }
        _ => Told::of(Kind::Unnamed, item),
    }
}

// === impl Told ===

impl<'a> Told<'a> {
    fn of(kind: Kind, object: &'a [u8]) -> Option<Self> {
        let mut reason = Reason::default();
        reason.read(&mut Cursor::new(object))?;
        let message = text(reason.message.or(reason.detail)).unwrap_or_default();
        Some(Self { message, kind, reason, class: member(object, b"type") })
    }

    /// By its code or its type, which may be numbers, numbers as texts or names.
    fn status_of_error(&self, hand_off: Option<HandOff>) -> u16 {
        let words = [self.reason.code, self.class];
        let as_text = |word| text(word).and_then(|word| word.trim().parse::<u64>().ok());
        let numbers = words.iter().filter_map(|word| number(*word).or_else(|| as_text(*word)));
        let told = numbers.filter_map(|number| u16::try_from(number).ok()).find(|status| is_failure(*status));
        let is_servers = || words.iter().any(|word| text(*word).is_some_and(|word| is_server_error(&word)));
        match told {
            Some(status) => status,
            None if hand_off.is_some() || is_servers() => 500,
            None => 400,
        }
    }
}

/// The last member of this name.
fn member<'a>(object: &'a [u8], name: &[u8]) -> Option<Value<'a>> {
    let mut found = None;
    let _ = Cursor::new(object).members(|key, cursor| {
        let value = cursor.value()?;
        if *key.name() == *name {
            found = Some(value);
        }
        Some(())
    });
    found
}

fn is_failure(status: u16) -> bool {
    (400..600).contains(&status)
}

/// `InternalServerError`, `server_error` and the like.
fn is_server_error(word: &str) -> bool {
    let letters: String = word.chars().filter(char::is_ascii_alphabetic).collect();
    letters.to_ascii_lowercase().contains("servererror")
}

// === impl HandOff ===

impl HandOff {
    /// Which one a message tells of.
    fn of(message: &str) -> Option<Self> {
        const KINDS: [(&str, HandOff); 6] = [
            ("Lost connection with prefill", HandOff::LostPrefill),
            ("Losing connection with prefill", HandOff::LostPrefill),
            ("Decode handshake failed", HandOff::Handshake),
            ("Decode transfer failed", HandOff::Transfer),
            ("bootstrap", HandOff::Bootstrap),
            ("KVTransferError", HandOff::Other),
        ];
        KINDS.into_iter().find(|(words, _)| message.contains(words)).map(|(_, kind)| kind)
    }
}

impl std::fmt::Display for HandOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LostPrefill => "lost connection with the prefill engine",
            Self::Handshake => "the handshake failed",
            Self::Transfer => "the transfer failed",
            Self::Bootstrap => "the bootstrap server was not to be asked",
            Self::Other => "a transfer error",
        })
    }
}
