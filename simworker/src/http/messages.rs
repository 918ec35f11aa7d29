//! The messages of a chat, checked as SGLang's models of them check them.

use serde_json::value::RawValue;

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};

/// Roles other than the user's, in any case of letters.
const ROLES: [&str; 7] = ["system", "assistant", "tool", "function", "developer", "latest_reminder", "root"];

/// Whether every message has a role that there is, and content of a type that it may have.
pub(super) fn check(fields: &Fields<'_>) -> Result<(), Failure> {
    match fields.objects("messages")? {
        None => Ok(()),
        Some(OneOrMany::Many(messages)) => {
            (0..).zip(&messages).try_for_each(|(at, message): (usize, _)| check_one(at, message))
        }
        Some(OneOrMany::One(_)) => Err(Failure::schema("messages: Input should be a valid list")),
    }
}

fn check_one(at: usize, message: &Fields<'_>) -> Result<(), Failure> {
    let wrong = |what: &str| Err(Failure::schema(format!("messages[{at}].{what}")));
    let Some(role) = message.get::<String>("role")? else { return wrong("role: Field required") };
    let is_user = role == "user";
    if !is_user && !ROLES.contains(&role.to_lowercase().as_str()) {
        let allowed = ROLES.map(|role| format!("'{role}'")).join(", ");
        return wrong(&format!("role: Value error, 'role' must be one of {allowed} (case-insensitive)."));
    }
    let content = message.get::<&RawValue>("content")?.map(RawValue::get);
    match content.filter(|text| *text != "null") {
        None if is_user => wrong("content: Field required"),
        Some(text) if !text.starts_with(['"', '[']) => {
            wrong("content: Input should be a valid string or list")
        }
        _ => Ok(()),
    }
}
