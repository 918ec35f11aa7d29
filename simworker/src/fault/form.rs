//! How faults are written: `KEY=VALUE,option=…` on the command line, `{KEY: VALUE}` in JSON, where the value may also
//! be an object with options (`{"value": 503, "times": 2}`) or a list of several.

use hyper::header::HeaderValue;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::table::{OptionKey, Row, keys, row};
use super::{Active, Fault, Options};

/// Why something is no fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FaultError {
    /// It has no value.
    #[error("fault {0}: write KEY=VALUE, for example status=503")]
    Form(String),
    /// There is no such fault.
    #[error("fault {key}: there is no such fault; allowed: {}", keys())]
    Key {
        /// What was given.
        key: String,
    },
    /// The value makes no sense.
    #[error("fault {key}: {value} is not allowed; allowed: {allowed}")]
    Value {
        /// The fault.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// An option makes no sense.
    #[error("fault {key}: the option {option}={value} is not allowed; allowed: {allowed}")]
    Option {
        /// The fault.
        key: &'static str,
        /// The option.
        option: String,
        /// What was given.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

/// A fault of the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// Of this worker only, by its place.
    pub worker: Option<u32>,
    /// What goes wrong.
    pub fault: Fault,
}

impl Assigned {
    /// Reads `[WORKER:]KEY=VALUE[,option=…]…`. The option `body` takes all that follows it.
    ///
    /// # Errors
    /// [`FaultError`], which names the key, the value, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let (worker, rest) = match text.split_once(':') {
            Some((index, rest)) if index.parse::<u32>().is_ok() => (index.parse().ok(), rest),
            _ => (None, text),
        };
        let (key, rest) = rest.split_once('=').ok_or_else(|| FaultError::Form(text.to_owned()))?;
        let row = known(key)?;
        let (value, mut rest) = cut(rest);
        let mut options = Options::default();
        while let Some((option, text)) = rest {
            let (value, next) = if option == OptionKey::Body { (text, None) } else { cut(text) };
            set_option(row, &mut options, option.label(), value)?;
            rest = next;
        }
        Ok(Self { worker, fault: fault(row, value, options)? })
    }
}

/// The text up to the next option; that option, and what follows its `=`.
fn cut(text: &str) -> (&str, Option<(OptionKey, &str)>) {
    let named = |at: usize| {
        OptionKey::ALL.into_iter().find_map(|option| {
            let rest = text[at + 1..].strip_prefix(option.label())?.strip_prefix('=')?;
            Some((&text[..at], Some((option, rest))))
        })
    };
    text.match_indices(',').find_map(|(at, _)| named(at)).unwrap_or((text, None))
}

fn known(key: &str) -> Result<&'static Row, FaultError> {
    row(key).ok_or_else(|| FaultError::Key { key: key.to_owned() })
}

fn fault(row: &'static Row, value: &str, options: Options) -> Result<Fault, FaultError> {
    let wrong = || FaultError::Value { key: row.key, value: value.to_owned(), allowed: row.allowed };
    let kind = (row.read)(value).ok_or_else(wrong)?;
    Ok(Fault { row, value: value.to_owned(), kind, options })
}

fn set_option(row: &'static Row, options: &mut Options, option: &str, value: &str) -> Result<(), FaultError> {
    let wrong = |allowed: &str| FaultError::Option {
        key: row.key,
        option: option.to_owned(),
        value: value.to_owned(),
        allowed: allowed.to_owned(),
    };
    let taken = row.takes.iter().find(|key| key.label() == option);
    match taken.ok_or_else(|| wrong(&options_of(row)))? {
        OptionKey::Times => {
            options.times = Some(value.parse().map_err(|_| wrong("a number of requests"))?);
        }
        OptionKey::Probability => {
            let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            options.probability = share.ok_or_else(|| wrong("a number from 0 to 1"))?;
        }
        OptionKey::Path if value.starts_with('/') => options.path = Some(value.to_owned()),
        OptionKey::Path => return Err(wrong("the beginning of a path, such as /v1")),
        OptionKey::RetryAfter if HeaderValue::from_str(value).is_ok() => {
            options.retry_after = Some(value.to_owned());
        }
        OptionKey::RetryAfter => return Err(wrong("a text that a header may hold")),
        OptionKey::Body => options.body = Some(value.to_owned()),
    }
    Ok(())
}

/// The options of a fault, for messages.
fn options_of(row: &Row) -> String {
    match row.takes {
        [] => "none: this fault is one of the whole worker".to_owned(),
        keys => {
            let labels: Vec<&str> = keys.iter().map(|key| key.label()).collect();
            format!("the options {}", labels.join(", "))
        }
    }
}

/// The faults of a JSON object.
pub(crate) fn from_json(object: &Map<String, Value>) -> Result<Vec<Fault>, FaultError> {
    let mut faults = Vec::new();
    for (key, value) in object {
        read_all(known(key)?, value, &mut faults)?;
    }
    Ok(faults)
}

/// Replaces the faults whose keys are in the object; `null` takes them away.
pub(crate) fn merge(active: &mut Vec<Active>, object: &Map<String, Value>) -> Result<(), FaultError> {
    let mut faults = Vec::new();
    for (key, value) in object {
        let row = known(key)?;
        if !value.is_null() {
            read_all(row, value, &mut faults)?;
        }
    }
    active.retain(|active| !object.contains_key(active.fault.row.key));
    active.extend(Active::all(faults));
    Ok(())
}

/// One fault, or a list of several with the same key.
fn read_all(row: &'static Row, value: &Value, faults: &mut Vec<Fault>) -> Result<(), FaultError> {
    match value {
        Value::Array(all) => {
            for one in all {
                faults.push(read_one(row, one)?);
            }
        }
        one => faults.push(read_one(row, one)?),
    }
    Ok(())
}

fn read_one(row: &'static Row, value: &Value) -> Result<Fault, FaultError> {
    let Some(object) = value.as_object().filter(|object| object.contains_key("value")) else {
        return fault(row, &text(value), Options::default());
    };
    let mut options = Options::default();
    // What is only shown may be sent back.
    for (option, value) in object.iter().filter(|(name, _)| !matches!(name.as_str(), "value" | "hits")) {
        set_option(row, &mut options, option, &text(value))?;
    }
    fault(row, &text(&object["value"]), options)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".to_owned(),
        other => other.to_string(),
    }
}

/// The faults in the form in which they can be set, each with the requests it was applied to.
pub(crate) fn to_json(active: &[Active]) -> Value {
    let mut object = Map::new();
    for Active { fault, hits } in active {
        let entry = object.entry(fault.row.key).or_insert_with(|| json!([]));
        if let Value::Array(all) = entry {
            all.push(describe(fault, *hits));
        }
    }
    Value::Object(object)
}

fn describe(fault: &Fault, hits: u64) -> Value {
    let Options { times, probability, path, body, retry_after } = &fault.options;
    let mut one = json!({ "value": fault.value, "hits": hits });
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            one[name] = value;
        }
    };
    add("times", times.map(Value::from));
    add("probability", (*probability < 1.0).then(|| json!(probability)));
    add("path", path.clone().map(Value::from));
    add("retry-after", retry_after.clone().map(Value::from));
    add("body", body.clone().map(Value::from));
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Kind;

    #[test]
    fn options_follow_the_value() {
        let text = "2:status=503,retry-after=3,times=4,path=/v1,body={\"a\":1,times=9}";
        let Assigned { worker, fault } = Assigned::parse(text).unwrap();
        assert_eq!((worker, fault.kind), (Some(2), Kind::Status(503)));
        assert_eq!(fault.options.times, Some(4));
        assert_eq!(fault.options.retry_after.as_deref(), Some("3"));
        assert_eq!(fault.options.path.as_deref(), Some("/v1"));
        assert_eq!(fault.options.body.as_deref(), Some("{\"a\":1,times=9}"));
    }

    #[test]
    fn a_value_may_hold_commas() {
        let fault = Assigned::parse("loads={\"a\":1,\"b\":2},times=3").unwrap().fault;
        assert_eq!(fault.value, "{\"a\":1,\"b\":2}");
        assert_eq!(fault.options.times, Some(3));
    }

    #[test]
    fn errors_name_key_value_and_what_is_allowed() {
        for (text, words) in [
            ("slower=3", &["slower", "delay-head", "slow-read"][..]),
            ("status", &["KEY=VALUE"]),
            ("status=9", &["status", "9", "200 to 599"]),
            ("status=503,times=x", &["times=x", "a number of requests"]),
            ("status=503,probability=2", &["probability=2", "from 0 to 1"]),
            ("refuse=new,times=3", &["refuse", "times=3", "whole worker"]),
            ("reset=head,body=x", &["body=x", "allowed: the options times, probability, path"]),
            ("health=bad,path=/x", &["path=/x", "allowed: the options times, probability"]),
            ("status=503,path=v1", &["path=v1", "such as /v1"]),
            ("status=503,retry-after=\n", &["retry-after", "a header"]),
        ] {
            let message = Assigned::parse(text).expect_err(text).to_string();
            assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
        }
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let given = json!({
            "status": [{"value": 503, "times": 2, "body": "x", "retry-after": "1"}, 500],
            "delay-head": "5ms", "close-after-answer": true,
            "loads": {"value": {"num_running_reqs": 9}, "probability": 0.5},
        });
        let faults = from_json(given.as_object().unwrap()).unwrap();
        assert_eq!(faults.len(), 5);
        let active: Vec<Active> = faults.iter().map(|f| Active { fault: f.clone(), hits: 7 }).collect();
        let shown = to_json(&active);
        assert_eq!(from_json(shown.as_object().unwrap()).unwrap(), faults);
    }

    #[test]
    fn merging_replaces_by_key() {
        let mut active = Vec::new();
        let mut merge =
            |value: Value| merge(&mut active, value.as_object().unwrap()).map(|()| to_json(&active));
        merge(json!({"status": 503, "delay-head": "1s"})).unwrap();
        let shown = merge(json!({"status": [500, 502], "delay-head": null})).unwrap();
        assert_eq!(shown["status"].as_array().unwrap().len(), 2);
        assert!(shown.get("delay-head").is_none());
        assert!(merge(json!({"no-such": null})).is_err());
        let unknown = merge(json!({"stall": {"value": "head", "retry": 1}})).unwrap_err().to_string();
        assert!(unknown.contains("retry=1") && unknown.contains("the options times"), "{unknown}");
    }
}
