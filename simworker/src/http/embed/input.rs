//! The field `input`, checked as SGLang checks it.

use protocol::tokenizer::Token;
use protocol::view::Prompt;
use serde::Deserialize;

use crate::http::failure::Failure;
use crate::http::fields::Fields;

/// What `input` may be.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<i64>),
    Lists(Vec<Vec<Token>>),
    /// Texts with pictures, which are not looked at.
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
}

/// The prompt that `input` is.
pub(super) fn read(fields: &Fields<'_>) -> Result<Prompt<'static>, Failure> {
    let input = fields.get("input")?.ok_or_else(|| Failure::schema("input: Field required"))?;
    let prompt = match input {
        Input::Text(text) if text.is_empty() => return Err(Failure::bad_request("Input cannot be empty")),
        Input::Text(text) if text.trim().is_empty() => {
            return Err(Failure::bad_request("Input cannot be empty or whitespace only"));
        }
        Input::Text(text) => Prompt::Text(text.into()),
        Input::Texts(texts) if texts.is_empty() => return Err(Failure::bad_request("Input cannot be empty")),
        Input::Texts(texts) => {
            if let Some(at) = texts.iter().position(|text| text.trim().is_empty()) {
                let message = format!("Input at index {at} cannot be empty or whitespace only");
                return Err(Failure::bad_request(message));
            }
            Prompt::Texts(texts.into_iter().map(Into::into).collect())
        }
        Input::Tokens(ids) => Prompt::Tokens(tokens(&ids)?),
        Input::Lists(lists) => Prompt::TokenLists(lists),
        Input::Parts(parts) => {
            let text = |part: Part| part.text.unwrap_or_else(|| "padding".into()).into();
            Prompt::Texts(parts.into_iter().map(text).collect())
        }
    };
    Ok(prompt)
}

fn tokens(ids: &[i64]) -> Result<Vec<Token>, Failure> {
    let read = |(at, id): (usize, &i64)| {
        Token::try_from(*id)
            .map_err(|_| Failure::bad_request(format!("Token ID at index {at} must be non-negative")))
    };
    ids.iter().enumerate().map(read).collect()
}
