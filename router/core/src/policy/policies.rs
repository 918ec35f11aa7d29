//! Which policy decides about the workers of which role.

use super::{POLICIES, PolicyConfig, Signals};
use crate::fleet::{PerRole, Role};

/// A policy for each role, each of which fits its role.
#[derive(Debug, Clone, PartialEq)]
pub struct Policies(PerRole<PolicyConfig>);

/// A policy that cannot choose among the workers of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("policy `{policy}` cannot choose {} workers; these can: {}", .role.label(), fitting(*.role))]
pub struct Unfit {
    /// The policy.
    pub policy: &'static str,
    /// The role.
    pub role: Role,
}

// === impl Policies ===

impl Policies {
    /// The same for all roles. A role that it does not fit gets the first of the table that does, `round_robin`: it matters
    /// only where there are workers of that role, and whoever configures these should use [`Policies::with`].
    #[must_use]
    pub fn all(config: PolicyConfig) -> Self {
        let of = |role| {
            let others = || POLICIES.iter().find(|row| (row.fits)(role)).map(PolicyConfig::of);
            if config.fits(role) { None } else { others() }.unwrap_or_else(|| config.clone())
        };
        Self(PerRole::of(of))
    }

    /// With another policy for one role.
    ///
    /// # Errors
    /// The policy does not fit the role.
    pub fn with(mut self, role: Role, config: PolicyConfig) -> Result<Self, Unfit> {
        if !config.fits(role) {
            return Err(Unfit { policy: config.name(), role });
        }
        *self.0.get_mut(role) = config;
        Ok(self)
    }

    /// That of a role.
    #[must_use]
    pub fn get(&self, role: Role) -> &PolicyConfig {
        self.0.get(role)
    }

    /// What they need to be told, all together.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.0.iter().map(PolicyConfig::signals).fold(Signals::default(), Signals::merge)
    }
}

fn fitting(role: Role) -> String {
    let names: Vec<_> = POLICIES.iter().filter(|row| (row.fits)(role)).map(|row| row.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn a_policy_that_does_not_fit_a_role_is_refused_there_and_told_which_do() {
        let all = Policies::all(config("random", &[]));
        let unfit = all.clone().with(Role::Decode, config("bucket", &[])).expect_err("it looks at prompts");
        let message = unfit.to_string();
        assert!(
            message.starts_with("policy `bucket` cannot choose decode workers; these can: "),
            "{message}"
        );
        for row in POLICIES {
            let offered = message.split(": ").last().is_some_and(|names| names.contains(row.name));
            assert_eq!(offered, (row.fits)(Role::Decode), "{message}");
            for role in Role::ALL {
                let with = all.clone().with(role, PolicyConfig::of(row));
                assert_eq!(with.is_ok(), (row.fits)(role), "{} for {}", row.name, role.label());
                assert!((row.fits)(Role::Regular), "{}", row.name);
            }
        }
        let bucket = Policies::all(config("bucket", &[]));
        assert_eq!(Role::ALL.map(|role| bucket.get(role).name()), ["bucket", "bucket", "round_robin"]);
    }

    #[test]
    fn an_index_of_several_roles_is_as_large_as_the_largest_wants_it() {
        let cache_aware = |size: i64, bytes: i64| {
            config("cache_aware", &[("max_tree_size", size.into()), ("max_tree_bytes", bytes.into())])
        };
        let policies = Policies::all(config("random", &[]));
        assert_eq!(policies.signals(), Signals::default());
        let policies = policies.with(Role::Prefill, cache_aware(10, 2 << 20)).expect("it fits");
        assert_eq!(policies.signals(), policies.get(Role::Prefill).signals());
        let policies = policies.with(Role::Decode, cache_aware(20, 1 << 20)).expect("it fits");
        let policies = policies.with(Role::Regular, config("power_of_two", &[])).expect("it fits");
        let merged = policies.signals();
        let limits = merged.prefix_index.expect("two follow prefixes");
        assert_eq!((limits.max_tree_size, limits.max_tree_bytes, merged.loads), (20, 2 << 20, true));
    }
}
