//! What goes on beside the requests: load reports, health probes, questions for models, ticks of the core, the index's sweep.

mod health;
mod loads;
mod models;
mod upkeep;

use std::sync::Arc;

use crate::config::Config;
use crate::server::Context;

/// Starts the tasks that this configuration needs, on the current runtime.
pub(crate) fn start(context: &Arc<Context>, config: &Config) {
    tokio::spawn(upkeep::run(Arc::clone(&context.shared)));
    if let Some(gate) = &context.shared.gate {
        tokio::spawn(Arc::clone(gate).keep());
    }
    let loads = context.shared.router.lock().signals().loads;
    for place in 0..context.shared.fleet.len() {
        tokio::spawn(models::watch(Arc::clone(context), place));
        if loads {
            tokio::spawn(loads::watch(Arc::clone(context), place, config.load_poll_interval));
        }
        if let Some(health) = &config.health {
            tokio::spawn(health::watch(Arc::clone(context), place, health.clone()));
        }
    }
}
