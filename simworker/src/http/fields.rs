//! The fields of a request body, read one by one with their types checked; the last of duplicate keys counts.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;

/// A request body.
#[derive(Debug)]
pub(super) struct Fields<'a>(HashMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Reads a body, which must be a JSON object.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Failure> {
        let fields = serde_json::from_slice(body);
        fields.map(Self).map_err(|e| Failure::bad_request(format!("The body is not a JSON object: {e}")))
    }

    /// The field `key`; absent and `null` are the same.
    pub(super) fn get<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, Failure> {
        let Some(raw) = self.0.get(key) else { return Ok(None) };
        serde_json::from_str(raw.get()).map_err(|e| Failure::bad_request(format!("{key}: {e}")))
    }

    /// The field `key`, or the default of its type.
    pub(super) fn get_or_default<T: Deserialize<'a> + Default>(&self, key: &str) -> Result<T, Failure> {
        Ok(self.get(key)?.unwrap_or_default())
    }
}

/// A value, or one for each prompt of a batch.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}
