//! `/workers`: handed on to the fleet.

use super::{Answering, Asked};
use crate::fleet;

/// The path that all of these begin with.
const PREFIX: &str = "/workers";

/// Every call about workers.
pub(crate) fn workers(asked: Asked) -> Answering {
    Box::pin(async move {
        let path = asked.request.uri().path();
        let rest = path.strip_prefix(PREFIX).unwrap_or_default().to_owned();
        fleet::api::handle(&asked.context, &rest, asked.request).await
    })
}
