//! Failures that an engine tells within an answer of status 200, because its head had gone before.

use super::lists::each_frame;
use crate::view::cursor::{Cursor, Value};
use crate::view::fields::{fields, number};

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
    Reason { status_code, code }
}

/// The status of 500 or above that an answer should have had: that of a generation which the engine's scheduler has given up,
/// or of an error in place of a frame. A request that was aborted because somebody asked for it has none.
#[must_use]
pub fn failure(answer: &[u8]) -> Option<u16> {
    let mut found = None;
    each_frame(answer, |_, item| found = found.or_else(|| status(item)));
    found
}

fn status(item: &[u8]) -> Option<u16> {
    let mut answer = Answer::default();
    answer.read(&mut Cursor::new(item))?;
    let told = match (answer.error, answer.meta_info) {
        (Some(Value::Object(error)), _) => {
            let mut reason = Reason::default();
            reason.read(&mut Cursor::new(error))?;
            number(reason.code).unwrap_or(500)
        }
        (_, Some(Value::Object(meta))) => {
            let mut known = Meta::default();
            known.read(&mut Cursor::new(meta))?;
            let Some(Value::Object(why)) = known.finish_reason else { return None };
            let mut reason = Reason::default();
            reason.read(&mut Cursor::new(why))?;
            number(reason.status_code)?
        }
        _ => return None,
    };
    u16::try_from(told).ok().filter(|status| (500..600).contains(status))
}
