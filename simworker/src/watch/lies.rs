//! Answers about load that are not true.

use bytes::Bytes;
use http_body_util::{BodyExt, Collected};
use hyper::Response;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde_json::{Map, Value};

use crate::clock::{rfc3339, unix_seconds};
use crate::fault::Skew;
use crate::instant::AnswerBody;

/// A text that is no JSON, called JSON.
pub(super) fn garbage() -> Response<AnswerBody> {
    let mut answer = Response::new(AnswerBody::whole("{\"loads\":[{\"num_running_reqs\":"));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// The same answer with every rank's entry changed.
pub(super) async fn retold(
    answer: Response<AnswerBody>,
    change: impl Fn(&mut Map<String, Value>),
) -> Response<AnswerBody> {
    rewritten(answer, |value| entries(value).for_each(&change)).await
}

/// The same answer by a clock that is off: the time of the answer, and that of every rank's entry.
pub(super) async fn skewed(answer: Response<AnswerBody>, skew: Skew) -> Response<AnswerBody> {
    let seconds = skew.seconds();
    let shift = |value: &mut Value| {
        for entry in entries(value) {
            if let Some(at) = entry.get("timestamp").and_then(Value::as_f64) {
                entry.insert("timestamp".to_owned(), Value::from(at + seconds));
            }
        }
        if let Some(at) = value.get_mut("timestamp") {
            *at = Value::from(rfc3339((unix_seconds() + seconds).max(0.0)));
        }
    };
    rewritten(answer, shift).await
}

/// The same answer with its JSON changed.
async fn rewritten(
    mut answer: Response<AnswerBody>,
    change: impl FnOnce(&mut Value),
) -> Response<AnswerBody> {
    // An own route has all of its answer at hand.
    let mut text = answer.body_mut().collect().await.map_or_else(|_| Bytes::new(), Collected::to_bytes);
    if let Ok(mut value) = serde_json::from_slice::<Value>(&text) {
        change(&mut value);
        text = value.to_string().into();
    }
    answer.headers_mut().remove(CONTENT_LENGTH);
    answer.map(|_| AnswerBody::whole(text))
}

/// The entries of `/v1/loads`, or of `/get_load`, whose answer is the list itself.
fn entries(value: &mut Value) -> impl Iterator<Item = &mut Map<String, Value>> {
    let list = if value.is_array() { Some(value) } else { value.get_mut("loads") };
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Makes every count negative, zero included; the rank and the time stay.
pub(super) fn negate(entry: &mut Map<String, Value>) {
    for (key, value) in entry.iter_mut() {
        let count = value.as_i64().filter(|_| !matches!(key.as_str(), "dp_rank" | "timestamp"));
        if let Some(count) = count {
            *value = Value::from(-1 - count);
        }
    }
}
