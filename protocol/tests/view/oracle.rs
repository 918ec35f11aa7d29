//! The same reading by a full parser: slow, plain and with allocations at every step.

use std::collections::HashMap;

use protocol::view::{Dialect, Prompt, RequestView};
use serde::Deserialize;
use serde_json::value::RawValue;

type Members<'a> = HashMap<String, &'a RawValue>;

fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn string(raw: &RawValue) -> Option<String> {
    parse(raw)
}

fn list(raw: &RawValue) -> Option<Vec<&RawValue>> {
    parse(raw)
}

fn members(json: &str) -> Option<Members<'_>> {
    let mut all: Members<'_> = serde_json::from_str(json).ok()?;
    all.retain(|_, raw| raw.get() != "null");
    Some(all)
}

fn number(raw: &RawValue) -> Option<u64> {
    parse(raw).or_else(|| {
        parse::<f64>(raw).filter(|v| v.fract() == 0.0 && (0.0..9.0e15).contains(v)).map(|v| v as u64)
    })
}

/// Reads `body`; `None` if it is no JSON object.
pub(crate) fn view(dialect: Dialect, body: &str) -> Option<RequestView<'static>> {
    let fields = members(body)?;
    let get = |key: &str| fields.get(key).copied();
    let sampling = get("sampling_params").and_then(|raw| members(raw.get())).unwrap_or_default();
    let top = |key: &str| get(key).and_then(number);
    let nested = |key: &str| sampling.get(key).copied().and_then(number);
    let (n, output_budget) = match dialect {
        Dialect::Chat => (top("n"), top("max_completion_tokens").or(top("max_tokens"))),
        Dialect::Completions => (top("n"), top("max_tokens")),
        Dialect::Generate => (nested("n"), nested("max_new_tokens")),
        Dialect::Responses => (None, top("max_output_tokens")),
        _ => (None, None),
    };
    Some(RequestView {
        model: get("model").and_then(string).map(Into::into),
        stream: get("stream").and_then(parse).unwrap_or(false),
        prompt: prompt(dialect, &fields).unwrap_or(Prompt::Unreadable),
        n: n.unwrap_or(1).max(1),
        output_budget,
        rid: get("rid").and_then(string).map(Into::into),
    })
}

fn prompt(dialect: Dialect, fields: &Members<'_>) -> Option<Prompt<'static>> {
    let get = |key: &str| fields.get(key).copied();
    match dialect {
        Dialect::Chat => match get("input_ids").and_then(any) {
            Some(ids @ Prompt::Tokens(_)) => Some(ids),
            _ => {
                let text = tools(fields) + &turns(list(get("messages")?)?)?;
                Some(Prompt::Text((text + "\n<|assistant|>").into()))
            }
        },
        Dialect::Responses => {
            let mut text = tools(fields);
            if let Some(instructions) = get("instructions").and_then(string).filter(|text| !text.is_empty()) {
                text += &format!("\n<|system|>{instructions}");
            }
            text += &match string(get("input")?) {
                Some(input) => format!("\n<|user|>{input}"),
                None => turns(list(get("input")?)?)?,
            };
            Some(Prompt::Text((text + "\n<|assistant|>").into()))
        }
        Dialect::Completions => any(get("prompt")?),
        Dialect::Generate => match (get("text"), get("input_ids")) {
            (Some(raw), None) => any(raw).filter(|prompt| prompt.is_text()),
            (None, Some(raw)) => any(raw).filter(|prompt| !prompt.is_text()),
            _ => None,
        },
        Dialect::Embeddings => any(get("input")?),
        Dialect::Classify => any(get("input").or(get("text"))?),
        Dialect::Rerank => {
            let query = content(get("query")?);
            let documents = get("documents").and_then(list);
            Some(match documents {
                Some(all) => {
                    let all = all.into_iter().map(|raw| content(raw).into());
                    Prompt::Texts(std::iter::once(query.into()).chain(all).collect())
                }
                None => Prompt::Text(query.into()),
            })
        }
        Dialect::Score => match (any(get("query")?)?, get("items").and_then(any)) {
            (Prompt::Text(query), Some(Prompt::Text(item))) => Some(Prompt::Texts(vec![query, item])),
            (Prompt::Text(query), Some(Prompt::Texts(items))) => {
                Some(Prompt::Texts([vec![query], items].concat()))
            }
            (Prompt::Tokens(query), Some(Prompt::TokenLists(items))) => {
                Some(Prompt::TokenLists([vec![query], items].concat()))
            }
            (query @ (Prompt::Text(_) | Prompt::Tokens(_)), _) => Some(query),
            _ => None,
        },
        Dialect::Opaque => None,
    }
}

fn any(raw: &RawValue) -> Option<Prompt<'static>> {
    let text = string(raw).map(|text| Prompt::Text(text.into()));
    let ids = || parse(raw).map(Prompt::Tokens);
    let texts = || {
        let texts: Vec<String> = parse(raw)?;
        Some(Prompt::Texts(texts.into_iter().map(Into::into).collect()))
    };
    let lists = || parse(raw).map(Prompt::TokenLists);
    let is_empty = list(raw).is_some_and(|all| all.is_empty());
    text.or_else(ids).or_else(texts).or_else(lists).filter(|_| !is_empty)
}

fn tools(fields: &Members<'_>) -> String {
    let Some(tools) = fields.get("tools") else { return String::new() };
    let choice = fields.get("tool_choice");
    if list(tools).is_some_and(|all| all.is_empty())
        || choice.and_then(|c| string(c)).as_deref() == Some("none")
    {
        return String::new();
    }
    let forced =
        choice.map(|choice| choice.get()).filter(|choice| choice.starts_with('{')).unwrap_or_default();
    let written = tools.get();
    let bare = if written.starts_with('"') { &written[1..written.len() - 1] } else { written };
    format!("\n<|tools|>{forced}{bare}")
}

fn turns(messages: Vec<&RawValue>) -> Option<String> {
    let turn = |raw: &&RawValue| {
        let message = members(raw.get())?;
        let role = message.get("role").and_then(|role| string(role));
        let content = match (message.get("content"), &role) {
            (Some(raw), _) => content(raw),
            (None, Some(_)) => String::new(),
            (None, None) => raw.get().to_owned(),
        };
        let calls = message.get("tool_calls").filter(|calls| list(calls).is_some_and(|all| !all.is_empty()));
        let calls = calls.map(|calls| format!("\n<|tool_calls|>{}", calls.get())).unwrap_or_default();
        Some(format!("\n<|{}|>{content}{calls}", role.unwrap_or_default()))
    };
    let turns: Vec<String> = messages.iter().map(turn).collect::<Option<_>>()?;
    (!turns.is_empty()).then(|| turns.concat())
}

/// Knows nothing of media.
fn content(raw: &RawValue) -> String {
    let part = |raw: &&RawValue| {
        string(raw).or_else(|| members(raw.get())?.get("text").and_then(|text| string(text)))
    };
    match (string(raw), list(raw)) {
        (Some(text), _) => text,
        (None, Some(parts)) => parts.iter().filter_map(part).collect::<Vec<_>>().join(" "),
        (None, None) => raw.get().to_owned(),
    }
}
