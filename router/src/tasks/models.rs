//! Which model each worker serves, by its own word. Until a worker has said so it is taken to serve every one.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde::Deserialize;

use crate::server::Context;
use crate::upstream::{Probe, probe};

const PATH: &str = "/v1/models";
const TIMEOUT: Duration = Duration::from_secs(5);

/// A worker may come back as another one behind the same address.
const RENEWAL: Duration = Duration::from_secs(30);
/// Before the first answer the question is repeated sooner.
const REPETITION: Duration = Duration::from_secs(1);

/// The form of OpenAI's list, as far as it is looked at.
#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    /// Of a LoRA adapter: the model that it changes.
    #[serde(default)]
    parent: Option<String>,
}

/// Asks one worker for ever. A worker that has no such list keeps what was known of it.
pub(super) async fn watch(context: Arc<Context>, place: usize) {
    let member = &context.shared.fleet[place];
    loop {
        let path = Uri::from_static(PATH);
        let question = Probe { path, member, key: place, timeout: TIMEOUT };
        let answer = probe(&context.pool, question).await;
        let pause = match &answer {
            Ok((status, body)) if status.is_success() => {
                if let Some(model) = served(body)
                    && context.shared.router.lock().set_model(member.id, Some(model.clone()))
                {
                    tracing::info!(worker = %member.address.url, model, "serves");
                }
                RENEWAL
            }
            Ok(_) => RENEWAL,
            Err(_) => REPETITION,
        };
        tokio::time::sleep(pause).await;
    }
}

/// The model that a list begins with; adapters come behind it.
fn served(body: &[u8]) -> Option<String> {
    let models: Models = serde_json::from_slice(body).ok()?;
    models.data.into_iter().find(|model| model.parent.is_none()).map(|model| model.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_the_first_that_is_no_adapter() {
        let list =
            br#"{"object":"list","data":[{"id":"a1","parent":"m"},{"id":"m","root":"m","parent":null}]}"#;
        assert_eq!(served(list).as_deref(), Some("m"));
        assert_eq!(served(br#"{"data":[]}"#), None);
        assert_eq!(served(b"not found"), None);
    }
}
