//! What operators say of a worker, and what is wrong with it.

use std::collections::BTreeMap;

use http::StatusCode;
use serde::Deserialize;

use super::Problem;
use crate::api_key::ApiKey;
use crate::fleet::{Member, Terms};
use crate::shared::Shared;
use crate::upstream::Address;

/// The body of `POST /workers`. What the gateway knows and this router has no use for is read over.
#[derive(Deserialize)]
pub(super) struct Addition {
    url: String,
    #[serde(default)]
    worker_type: Option<String>,
    #[serde(default)]
    runtime: Option<String>,
    #[serde(default)]
    model_id: Option<String>,
    #[serde(default)]
    disable_health_check: bool,
    #[serde(flatten)]
    update: Update,
}

/// The body of `PUT /workers/{id}`; what is not said stays.
#[derive(Deserialize)]
pub(super) struct Update {
    #[serde(default)]
    api_key: Option<String>,
    #[serde(default)]
    priority: Option<u32>,
    #[serde(default)]
    cost: Option<f64>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl Addition {
    /// Where the worker is, and on which terms it serves.
    pub(super) fn resolve(self, shared: &Shared) -> Result<(Address, Terms), Problem> {
        let address =
            Address::parse_lenient(&self.url).map_err(|problem| Problem::bad(problem.to_string()))?;
        if let Some(other) = self.worker_type.as_deref().filter(|kind| *kind != "regular") {
            let message = format!("worker_type `{other}`: this router has workers of the type regular only");
            return Err(Problem::bad(message));
        }
        if let Some(other) = self.runtime.as_deref().filter(|runtime| *runtime != "sglang") {
            let message = format!("runtime `{other}`: this router knows workers of the runtime sglang only");
            return Err(Problem::bad(message));
        }
        let mut terms = Terms {
            authorization: shared.settings.added_worker_key.as_ref().map(ApiKey::credential),
            model: self.model_id.filter(|model| !model.is_empty()),
            health_check: !self.disable_health_check,
            ..Terms::default()
        };
        self.update.resolve()?(&mut terms);
        if terms.authorization.is_none() && shared.settings.api_key.is_some() {
            tracing::warn!(
                worker = %address.url,
                "registered without api_key, while the router has a key: the worker gets the clients' Authorization"
            );
        }
        Ok((address, terms))
    }
}

impl Update {
    /// Takes the changes over.
    pub(super) fn apply(self, member: &Member) -> Result<(), Problem> {
        member.change_terms(self.resolve()?);
        Ok(())
    }

    fn resolve(self) -> Result<impl FnOnce(&mut Terms), Problem> {
        let wrong =
            |message: &str| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "BAD_REQUEST", message.to_owned());
        let key = self.api_key.map(|text| {
            ApiKey::new(&text)
                .ok_or_else(|| wrong("api_key: one or more visible ASCII characters, without blanks"))
        });
        let key = key.transpose()?;
        if self.cost.is_some_and(|cost| !cost.is_finite() || cost < 0.0) {
            return Err(wrong("cost: not a number of 0 or more"));
        }
        Ok(move |terms: &mut Terms| {
            if let Some(key) = key {
                terms.authorization = Some(key.credential());
            }
            terms.priority = self.priority.unwrap_or(terms.priority);
            terms.cost = self.cost.unwrap_or(terms.cost);
            if let Some(labels) = self.labels {
                terms.labels = labels;
            }
        })
    }
}
