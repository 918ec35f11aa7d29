//! The keys of `[fleet]` about prefill/decode disaggregation: who prefills, who decodes, and how KV gets across.

use std::ops::Range;

use simworker_core::{EngineRole, HandoffConfig, LINKS, LinkPreset};

use super::error::{ScenarioError, suggest};
use super::section::{Field, Section};

/// What KV leaves a prefill engine through where nothing is said.
const DEFAULT_LINK: &str = "ib-400g";
/// Most output tokens that a decode engine may keep free per request.
const MOST_RESERVED: u32 = 1 << 20;

/// Which workers prefill, which decode and which do both: in the order of their places, first those that prefill, then
/// those that decode, then those that do both.
#[derive(Debug, Clone, PartialEq)]
pub struct Roles {
    /// How many prefill; with 0 all do both.
    pub prefill: u32,
    /// How many decode; 0 exactly if none prefills.
    pub decode: u32,
    /// The name of the link that KV leaves a prefill engine through.
    pub link: &'static str,
}

/// Workers that share one kind of work: their role and their places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// What they do.
    pub role: EngineRole,
    /// Their places in the fleet.
    pub places: Range<u32>,
}

impl Pool {
    /// The word for its role: `regular`, `prefill` or `decode`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.role {
            EngineRole::Whole => "regular",
            EngineRole::Prefill => "prefill",
            EngineRole::Decode => "decode",
        }
    }

    /// Whether its workers compute prompts.
    #[must_use]
    pub fn computes(&self) -> bool {
        self.role != EngineRole::Decode
    }

    /// How people call a fleet of these pools: `regular`, or `4 prefill + 4 decode`.
    #[must_use]
    pub fn fleet_word(pools: &[Self]) -> String {
        if let [only] = pools {
            return only.word().to_owned();
        }
        let words = pools.iter().map(|pool| format!("{} {}", pool.places.len(), pool.word()));
        words.collect::<Vec<_>>().join(" + ")
    }
}

impl Roles {
    /// The role of the worker at a place.
    #[must_use]
    pub fn of(&self, worker: u32) -> EngineRole {
        match worker {
            _ if worker < self.prefill => EngineRole::Prefill,
            _ if worker < self.prefill + self.decode => EngineRole::Decode,
            _ => EngineRole::Whole,
        }
    }

    /// The workers of each role that there is among `workers`.
    #[must_use]
    pub fn pools(&self, workers: u32) -> Vec<Pool> {
        let apart = self.prefill + self.decode;
        let pools = [
            (EngineRole::Prefill, 0..self.prefill),
            (EngineRole::Decode, self.prefill..apart),
            (EngineRole::Whole, apart..workers),
        ];
        pools
            .map(|(role, places)| Pool { role, places })
            .into_iter()
            .filter(|pool| !pool.places.is_empty())
            .collect()
    }

    /// Whether prefill and decode are apart.
    #[must_use]
    pub fn disaggregated(&self) -> bool {
        self.prefill > 0
    }

    /// Reads who has which role among `workers`.
    pub(super) fn read(section: &Section<'_>, workers: u32) -> Result<Self, ScenarioError> {
        let count = |key: &str| section.get(key).map_or(Ok(0), |field| field.whole(0..=workers));
        let (prefill, regular) = (count("prefill")?, count("regular")?);
        let link = link_of(section)?.name;
        if prefill == 0 {
            return Ok(Self { prefill, decode: 0, link });
        }
        match workers.checked_sub(prefill + regular).filter(|left| *left > 0) {
            Some(decode) => Ok(Self { prefill, decode, link }),
            None if prefill >= workers => Err(nobody_decodes(section, "prefill", workers, prefill)),
            None => Err(nobody_decodes(section, "regular", workers, prefill + regular)),
        }
    }
}

fn nobody_decodes(section: &Section<'_>, key: &str, workers: u32, taken: u32) -> ScenarioError {
    let problem = format!("of {workers} workers, {taken} are taken, so that none decodes");
    section.error(key, problem, "leave at least one; 0 prefill workers let every worker do both")
}

fn link_of(section: &Section<'_>) -> Result<&'static LinkPreset, ScenarioError> {
    let name = section.get("kv_link").map_or(Ok(DEFAULT_LINK), |field| field.text())?;
    LINKS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let remedy = suggest(name, LINKS.iter().map(|preset| preset.name));
        section.error("kv_link", format!("\"{name}\" is not a link"), remedy)
    })
}

/// What the engines need to know of the hand-off.
pub(super) fn handoff(
    section: &Section<'_>,
    default: &HandoffConfig,
) -> Result<HandoffConfig, ScenarioError> {
    let reserved = |field: Field<'_>| field.whole(0..=MOST_RESERVED);
    Ok(HandoffConfig {
        link: link_of(section)?.link,
        num_reserved_decode_tokens: section
            .get("reserved_decode_tokens")
            .map_or(Ok(default.num_reserved_decode_tokens), reserved)?,
        decode_radix_cache: section
            .get("decode_radix_cache")
            .map_or(Ok(default.decode_radix_cache), |field| field.boolean())?,
        ..*default
    })
}
