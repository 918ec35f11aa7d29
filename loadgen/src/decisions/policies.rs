//! The configuration of a replay: the recorded one, or another policy.

use router::record::line::{Header, Named, Pairing, Roles};
use router_core::{
    BreakerConfig, OptionValue, PairPreference, Policies, PolicyConfig, Role, RouterConfig, WarmUp,
};
use serde_json::Value;

use super::ReplayError;

/// What is to be other than it was recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The policy of every role that it fits.
    pub policy: Option<String>,
    /// Options of it, or of the recorded ones, each with its value.
    pub set: Vec<(String, String)>,
}

impl Change {
    /// Whether everything is as it was recorded.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.policy.is_none() && self.set.is_empty()
    }

    /// The policies after it.
    pub(super) fn apply(&self, recorded: Policies) -> Result<Policies, ReplayError> {
        if let Some(name) = &self.policy {
            let mut config = PolicyConfig::new(name).map_err(wrong)?;
            self.set.iter().try_for_each(|(key, value)| config.set_text(key, value)).map_err(wrong)?;
            return Ok(Policies::all(config));
        }
        let mut policies = recorded;
        for (key, value) in &self.set {
            let has = |config: &PolicyConfig| config.options().any(|(spec, _)| spec.key == key);
            let roles = Role::ALL.into_iter().filter(|role| has(policies.get(*role)));
            let mut roles: Vec<_> = roles.collect();
            if roles.is_empty() {
                // For the message that says which there are.
                roles.push(Role::Regular);
            }
            for role in roles {
                let mut config = policies.get(role).clone();
                config.set_text(key, value).map_err(wrong)?;
                policies = policies.with(role, config).map_err(wrong)?;
            }
        }
        Ok(policies)
    }
}

/// The configuration that a recording began with.
pub(super) fn config(header: &Header) -> Result<RouterConfig, ReplayError> {
    let policies = policies(&header.policies)?;
    Ok(RouterConfig {
        load_poll_interval_ns: header.load_poll_interval_ns,
        breaker: header.breaker.map(|breaker| BreakerConfig {
            failure_threshold: breaker.failure_threshold,
            success_threshold: breaker.success_threshold,
            open_ns: breaker.open_ns,
            half_open_permits: breaker.half_open_permits,
            try_least_bad: breaker.try_least_bad,
        }),
        warm_up: header
            .warm_up
            .map(|warm_up| WarmUp { duration_ns: warm_up.duration_ns, share: warm_up.share }),
        decode_dispatch_limit: header.pairing.decode_dispatch_limit,
        pair: pair(header.pairing),
        ..RouterConfig::new(policies.get(Role::Regular).clone(), header.seed)
    })
    .map(|config| RouterConfig { policies, ..config })
}

pub(super) fn pair(pairing: Pairing) -> PairPreference {
    PairPreference { prefer: pairing.prefer, least_uncached_tokens: pairing.least_uncached_tokens }
}

/// The policies of each role.
pub(super) fn policies(named: &Roles<Named>) -> Result<Policies, ReplayError> {
    let mut policies = Policies::all(policy(&named.regular)?);
    for role in [Role::Prefill, Role::Decode] {
        policies = policies.with(role, policy(named.get(role))?).map_err(wrong)?;
    }
    Ok(policies)
}

fn policy(named: &Named) -> Result<PolicyConfig, ReplayError> {
    let mut config = PolicyConfig::new(&named.name).map_err(wrong)?;
    for (key, value) in &named.options {
        let value = match value {
            Value::Bool(value) => OptionValue::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => whole.into(),
                None => number.as_f64().unwrap_or(f64::NAN).into(),
            },
            Value::String(text) => text.as_str().into(),
            other => OptionValue::Text(other.to_string().into()),
        };
        config.set(key, value).map_err(wrong)?;
    }
    Ok(config)
}

fn wrong(error: impl std::fmt::Display) -> ReplayError {
    ReplayError::Policy(error.to_string())
}
