//! The keys of `[fleet]` about data parallelism: how many ranks each worker has, and how it spreads requests over them.

use simworker_core::{DpConfig, EngineRole, LoadBalance};

use super::error::{ScenarioError, suggest};
use super::section::{Field, Section};

/// The word for the balancing that SGLang takes by role.
const AUTO: &str = "auto";
/// Most ranks of one worker.
const MOST_RANKS: u32 = 64;

/// The data-parallel ranks of every worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranks {
    /// How many each worker has.
    pub size: u32,
    /// Whether they step together.
    pub attention: bool,
    /// How a worker spreads requests that name no rank; `None` is by its role.
    pub balance: Option<LoadBalance>,
}

impl Ranks {
    /// The ranks of a worker of a role.
    #[must_use]
    pub fn of(&self, role: EngineRole) -> DpConfig {
        DpConfig {
            size: self.size,
            balance: self.balance.unwrap_or_else(|| LoadBalance::auto(role)),
            attention: self.attention,
        }
    }

    /// SGLang's word for the balancing.
    #[must_use]
    pub fn balance_word(&self) -> &'static str {
        self.balance.map_or(AUTO, |balance| balance.label())
    }

    /// Reads the ranks. `rooms`: all requests have a bootstrap room, as prefill and decode are apart everywhere.
    pub(super) fn read(section: &Section<'_>, rooms: bool) -> Result<Self, ScenarioError> {
        let ranks = Self {
            size: section.get("dp_size").map_or(Ok(1), |field| field.whole(1..=MOST_RANKS))?,
            attention: section.get("dp_attention").map_or(Ok(false), |field| field.boolean())?,
            balance: section.get("load_balance").map_or(Ok(None), |field| balance(&field))?,
        };
        match ranks.balance {
            Some(LoadBalance::FollowBootstrapRoom) if !rooms => {
                let problem =
                    "goes by the rooms of disaggregated requests, and workers that do both get none";
                Err(section.error("load_balance", problem, "set fleet.prefill, or use auto"))
            }
            _ => Ok(ranks),
        }
    }

    /// Refuses what contradicts a router that chooses ranks: on decode workers the room would have to lead to the rank
    /// that was chosen there, and it leads to that of the prefill worker.
    pub(super) fn check_aware(&self, fleet: &Field<'_>) -> Result<(), ScenarioError> {
        match self.balance {
            Some(LoadBalance::FollowBootstrapRoom) if self.size > 1 => {
                let section = Section::unchecked(fleet.node, "fleet")?;
                let problem = "with router.dp_aware, a room cannot lead to the ranks of two workers";
                Err(section.error(
                    "load_balance",
                    problem,
                    "use auto: prefill workers alone go by the room then",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn balance(field: &Field<'_>) -> Result<Option<LoadBalance>, ScenarioError> {
    let given = field.text()?;
    if given == AUTO {
        return Ok(None);
    }
    let words = || LoadBalance::ALL.iter().map(|balance| balance.label()).chain([AUTO]);
    let unknown = || field.error(format!("\"{given}\" is not known"), suggest(given, words()));
    LoadBalance::from_label(given).map(Some).ok_or_else(unknown)
}
