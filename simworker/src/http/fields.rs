//! The fields of a request body, read one by one with their types checked; the last of duplicate keys counts.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;

/// The members of a request body, or of an object in it.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    members: HashMap<String, &'a RawValue>,
    /// What stands before a key in messages: `sampling_params.` for the members of that object.
    path: String,
}

impl<'a> Fields<'a> {
    /// Reads a body, which must be a JSON object.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Failure> {
        let members = serde_json::from_slice(body)
            .map_err(|e| Failure::schema(format!("The body is not a JSON object: {e}")))?;
        Ok(Self { members, path: String::new() })
    }

    /// The field `key`; absent and `null` are the same.
    pub(super) fn get<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, Failure> {
        let Some(raw) = self.members.get(key) else { return Ok(None) };
        self.read(key, raw)
    }

    /// Whether the field `key` is there, and not `null`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|raw| raw.get() != "null")
    }

    /// Whether the field `key` is there, and `null`.
    pub(super) fn is_null(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|raw| raw.get() == "null")
    }

    /// Whether the field `key` is a list without anything in it.
    pub(super) fn is_empty_list(&self, key: &str) -> bool {
        let bare = |raw: &RawValue| raw.get().bytes().all(|byte| b"[] \t\r\n".contains(&byte));
        self.members.get(key).is_some_and(|raw| is_list(raw) && bare(raw))
    }

    /// Whether the field `key` is `false`.
    pub(super) fn is_false(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|raw| raw.get() == "false")
    }

    /// Whether the field `key` is a list.
    pub(super) fn is_list(&self, key: &str) -> bool {
        self.members.get(key).is_some_and(|raw| is_list(raw))
    }

    /// The field `key` for each of so many prompts: one value for all of them, or a list with one for each. `null` is
    /// none.
    pub(super) fn per_prompt<T>(&self, key: &str, prompts: usize) -> Result<Vec<Option<T>>, Failure>
    where
        T: Deserialize<'a> + Clone,
    {
        match self.members.get(key) {
            None => Ok(vec![None; prompts]),
            Some(raw) if is_list(raw) => self.list(key, raw, prompts),
            Some(raw) => Ok(vec![self.read(key, raw)?; prompts]),
        }
    }

    /// The same for a field whose values are lists themselves: it is one value, or a list with one for each prompt.
    pub(super) fn list_per_prompt<T>(&self, key: &str, prompts: usize) -> Result<Vec<Option<Vec<T>>>, Failure>
    where
        T: Deserialize<'a> + Clone,
    {
        let members: Vec<&'a RawValue> = self.get_or_default(key)?;
        match self.members.get(key) {
            Some(raw) if members.into_iter().any(is_list) => self.list(key, raw, prompts),
            _ => Ok(vec![self.get(key)?; prompts]),
        }
    }

    /// A list with one value for each prompt.
    fn list<T: Deserialize<'a>>(
        &self,
        key: &str,
        raw: &'a RawValue,
        prompts: usize,
    ) -> Result<Vec<T>, Failure> {
        let all: Vec<T> = self.read(key, raw)?;
        if all.len() == prompts {
            return Ok(all);
        }
        let Self { path, .. } = self;
        let length = all.len();
        Err(Failure::bad_request(format!("{path}{key} has {length} entries for {prompts} prompts.")))
    }

    /// The objects under `key`: one, or a list of them.
    pub(super) fn objects(&self, key: &str) -> Result<Option<OneOrMany<Fields<'a>>>, Failure> {
        let Some(raw) = self.members.get(key) else { return Ok(None) };
        if is_list(raw) {
            let all: Vec<&'a RawValue> = self.read(key, raw)?;
            let all = all.iter().enumerate().map(|(at, raw)| {
                let name = format!("{key}[{at}]");
                Ok(Self { members: self.read(&name, raw)?, path: format!("{}{name}.", self.path) })
            });
            return Ok(Some(OneOrMany::Many(all.collect::<Result<_, _>>()?)));
        }
        let one: Option<HashMap<String, &'a RawValue>> = self.read(key, raw)?;
        Ok(one.map(|members| OneOrMany::One(Self { members, path: format!("{}{key}.", self.path) })))
    }

    fn read<T: Deserialize<'a>>(&self, name: &str, raw: &'a RawValue) -> Result<T, Failure> {
        let Self { path, .. } = self;
        serde_json::from_str(raw.get()).map_err(|e| Failure::schema(format!("{path}{name}: {e}")))
    }

    /// The field `key`, or the default of its type.
    pub(super) fn get_or_default<T: Deserialize<'a> + Default>(&self, key: &str) -> Result<T, Failure> {
        Ok(self.get(key)?.unwrap_or_default())
    }
}

fn is_list(raw: &RawValue) -> bool {
    raw.get().starts_with('[')
}

/// A value, or one for each prompt of a batch.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}
