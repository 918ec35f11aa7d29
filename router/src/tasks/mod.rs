//! What goes on beside the requests and is no single worker's matter: ticks of the core, the index's sweep, the queue's clock.

mod upkeep;

use std::sync::Arc;

use crate::shared::Shared;

/// Starts the tasks that this configuration needs, on the current runtime.
pub(crate) fn start(shared: &Arc<Shared>) {
    tokio::spawn(upkeep::run(Arc::clone(shared)));
    if let Some(gate) = &shared.gate {
        tokio::spawn(Arc::clone(gate).keep());
    }
}
