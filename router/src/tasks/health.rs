//! Health probes: a worker goes out of rotation after some failures in a row and comes back after some successes
//! in a row. Static workers start healthy.

use std::sync::Arc;

use tokio::time::MissedTickBehavior;

use crate::config::HealthConfig;
use crate::server::Context;
use crate::upstream::{Probe, ProbeError, probe};

/// Probes one worker for ever; the first probe comes after one interval.
pub(super) async fn watch(context: Arc<Context>, place: usize, config: HealthConfig) {
    let member = &context.shared.fleet[place];
    let mut streak = Streak { healthy: true, against: 0 };
    let mut ticks = tokio::time::interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let question = Probe {
            path: config.path.clone(),
            address: &member.address,
            key: place,
            timeout: config.timeout,
        };
        let verdict = probe(&context.pool, question).await;
        let good = matches!(&verdict, Ok((status, _)) if status.is_success());
        if streak.note(good, &config) {
            let url = &member.address.url;
            if streak.healthy {
                tracing::info!(worker = %url, "healthy again");
            } else {
                tracing::warn!(worker = %url, "unhealthy: {}", describe(verdict));
            }
            context.shared.set_healthy(member.id, streak.healthy);
        }
    }
}

fn describe(verdict: Result<(http::StatusCode, bytes::Bytes), ProbeError>) -> String {
    verdict.map_or_else(|error| error.to_string(), |(status, _)| format!("status {status}"))
}

/// The state, and how many verdicts in a row spoke against it.
#[derive(Debug)]
struct Streak {
    healthy: bool,
    against: u32,
}

impl Streak {
    /// Takes a verdict; whether it changed the state.
    fn note(&mut self, good: bool, config: &HealthConfig) -> bool {
        if good == self.healthy {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let limit = if self.healthy { config.failure_threshold } else { config.success_threshold };
        let turned = self.against >= limit;
        if turned {
            *self = Self { healthy: good, against: 0 };
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_verdicts_in_a_row_turn_the_state() {
        let config = HealthConfig {
            path: http::Uri::from_static("/health"),
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            failure_threshold: 3,
            success_threshold: 2,
        };
        let mut streak = Streak { healthy: true, against: 0 };
        let verdicts = [0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0];
        let states: Vec<bool> = verdicts
            .iter()
            .map(|good| {
                streak.note(*good == 1, &config);
                streak.healthy
            })
            .collect();
        let expected = [1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1].map(|state| state == 1);
        assert_eq!(states, expected);
    }
}
