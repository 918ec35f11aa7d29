//! Calls of tools that a chat forces (`tool_choice`): the reply is the JSON text that SGLang's grammar would allow, with
//! arguments made up from the tool's schema. Nothing else makes the mock call a tool.

mod bounds;
mod schema;

use std::ops::Range;
use std::sync::Arc;

use protocol::openai::{FunctionCall, ToolCall};
use protocol::tokenizer::{Token, encode, mix};
use serde::Deserialize;
use serde_json::Value;

use super::failure::Failure;
use super::fields::Fields;
use super::labels::hash;
use crate::reply::{Output, Wish};
use schema::Example;

/// A tool that a body offers.
#[derive(Debug, Deserialize)]
struct Tool {
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    parameters: Option<Value>,
}

/// `tool_choice`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Choice {
    Word(String),
    Named { function: Named },
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

/// The tool that must be called.
#[derive(Debug)]
pub(super) struct Forced(Function);

/// A reply that is the call of a tool.
#[derive(Debug)]
pub(super) struct Call {
    name: String,
    /// The whole reply, or as much of it as there is.
    text: String,
    /// It is not cut.
    is_whole: bool,
    /// Where in the text the name has ended.
    named: usize,
    /// Where in the text the arguments are.
    arguments: Range<usize>,
}

impl Forced {
    /// Reads which tool must be called, if any.
    pub(super) fn read(fields: &Fields<'_>) -> Result<Option<Self>, Failure> {
        let named = match fields.get::<Choice>("tool_choice")? {
            None => return Ok(None),
            Some(Choice::Word(word)) if word == "required" => None,
            Some(Choice::Word(word)) if word == "auto" || word == "none" => return Ok(None),
            Some(Choice::Word(_)) => {
                return Err(Failure::schema("tool_choice: Input should be 'auto', 'required' or 'none'"));
            }
            Some(Choice::Named { function }) => Some(function.name),
        };
        let tools: Vec<Tool> = fields.get_or_default("tools")?;
        if tools.is_empty() {
            let what = if named.is_some() { "a specific tool" } else { "required" };
            let message = format!("Tools cannot be empty if tool choice is set to {what}.");
            return Err(Failure::bad_request(message));
        }
        let is_it = |tool: &Tool| named.as_ref().is_none_or(|name| tool.function.name == *name);
        let absent = || format!("Tool '{}' not found in tools list.", named.as_deref().unwrap_or_default());
        let tool = tools.into_iter().find(is_it).ok_or_else(|| Failure::bad_request(absent()))?;
        Ok(Some(Self(tool.function)))
    }

    /// The call, a function of the tool and of `seed`.
    pub(super) fn call(self, seed: u64) -> Call {
        let Self(Function { name, parameters }) = self;
        let none = || Example { text: "{}".to_owned(), is_whole: true };
        let Example { text: mut values, is_whole } =
            parameters.map_or_else(none, |schema| schema::example(&schema, seed));
        if !is_whole {
            // What is said ends before the brackets close.
            values.truncate(values.trim_end_matches(['}', ']', '"']).len());
        }
        let end = if is_whole { "}]" } else { "" };
        let head = format!("[{{\"name\": {}", Value::from(name.as_str()));
        let before = format!("{head}, \"parameters\": ");
        let arguments = before.len()..before.len() + values.len();
        Call { name, text: format!("{before}{values}{end}"), is_whole, named: head.len(), arguments }
    }
}

impl Call {
    /// What the replies are to be, where the context has room for so many tokens more. A call that is cut never ends by
    /// itself: it has the length that it may have, as under a grammar that asks for more.
    pub(super) fn force<'a>(&self, wishes: impl Iterator<Item = &'a mut Wish>, room: u32) {
        let script: Arc<[Token]> = encode(&self.text).into();
        for wish in wishes {
            wish.script = Some(Arc::clone(&script));
            if !self.is_whole {
                let most = (script.len() as u32).saturating_sub(1).min(room).max(1);
                wish.output = match wish.output {
                    Output::Tokens(tokens) => Output::Tokens(tokens.min(most)),
                    Output::Open => Output::Tokens(most),
                };
            }
        }
    }

    /// The call as it is told when the reply is whole.
    pub(super) fn whole<'a>(&'a self, id: &'a str) -> ToolCall<'a> {
        tool_call(Some(id), Some(&self.name), &self.text[self.arguments.clone()])
    }

    /// What a stream tells when the bytes `from..to` of the reply come: its beginning once its name is there, and then
    /// its arguments piece by piece.
    pub(super) fn news<'a>(&'a self, id: &'a str, from: usize, to: usize) -> [Option<ToolCall<'a>>; 2] {
        let begins = from < self.named && to >= self.named;
        let Range { start, end } = self.arguments;
        let piece = from.clamp(start, end)..to.clamp(start, end);
        [
            begins.then(|| tool_call(Some(id), Some(&self.name), "")),
            (!piece.is_empty()).then(|| tool_call(None, None, &self.text[piece])),
        ]
    }
}

fn tool_call<'a>(id: Option<&'a str>, name: Option<&'a str>, arguments: &'a str) -> ToolCall<'a> {
    ToolCall { id, index: 0, kind: "function", function: FunctionCall { name, arguments } }
}

/// The id of the call in the reply to a request.
pub(super) fn call_id(rid: &str) -> String {
    let seed = hash(0, rid);
    format!("call_{seed:016x}{:08x}", mix(seed) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: &str) -> Result<Option<Call>, Failure> {
        Ok(Forced::read(&Fields::parse(body.as_bytes())?)?.map(|forced| forced.call(7)))
    }

    #[test]
    fn a_call_in_pieces_is_the_whole_call() {
        let body = r#"{"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f\"x",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]}"#;
        let call = call(body).unwrap().unwrap();
        let whole = call.whole("id");
        assert_eq!((whole.id, whole.function.name), (Some("id"), Some("f\"x")));
        let reply: Value = serde_json::from_str(&call.text).unwrap();
        let arguments: Value = serde_json::from_str(whole.function.arguments).unwrap();
        assert_eq!((&reply[0]["name"], &reply[0]["parameters"]), (&Value::from("f\"x"), &arguments));
        for step in 1..call.text.len() {
            let ends = (0..).map(|at| at * step).take_while(|at| *at < call.text.len());
            let ends: Vec<usize> = ends.chain([call.text.len()]).collect();
            let news = ends.windows(2).flat_map(|ends| call.news("id", ends[0], ends[1])).flatten();
            let news: Vec<ToolCall<'_>> = news.collect();
            assert_eq!(
                (news[0].id, news[0].function.name, news[0].function.arguments),
                (Some("id"), whole.function.name, "")
            );
            assert!(news[1..].iter().all(|piece| piece.id.is_none() && piece.function.name.is_none()));
            let pieces: String = news.iter().map(|piece| piece.function.arguments).collect();
            assert_eq!(pieces, whole.function.arguments, "{step}");
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        let tools = r#""tools": [{"function": {"name": "a"}}, {"function": {"name": "b"}}]"#;
        let named =
            |name: &str| format!(r#"{{"tool_choice": {{"function": {{"name": "{name}"}}}}, {tools}}}"#);
        assert_eq!(call(&named("b")).unwrap().unwrap().text, r#"[{"name": "b", "parameters": {}}]"#);
        let message = |body: &str| call(body).unwrap_err().message;
        assert_eq!(message(&named("c")), "Tool 'c' not found in tools list.");
        let none = "Tools cannot be empty if tool choice is set to ";
        assert_eq!(message(r#"{"tool_choice": "required"}"#), format!("{none}required."));
        let body = r#"{"tool_choice": {"function": {"name": "c"}}, "tools": null}"#;
        assert_eq!(message(body), format!("{none}a specific tool."));
        for word in ["auto", "none"] {
            assert!(call(&format!(r#"{{"tool_choice": "{word}", {tools}}}"#)).unwrap().is_none());
        }
    }

    #[test]
    fn ids_differ_from_request_to_request() {
        assert_eq!(call_id("a"), call_id("a"));
        assert_ne!(call_id("a"), call_id("b"));
        assert_eq!(call_id("a").len(), "call_".len() + 24);
    }
}
