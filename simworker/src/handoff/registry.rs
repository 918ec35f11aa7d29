//! What a bootstrap server knows: where each rank of its prefill worker hands off KV, and which rank has which room.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use simworker_core::LoadBalance;
use thiserror::Error;

/// For so long the rank of a room is known, in engine time (SGLang's bootstrap server).
const ROOM_KEPT_NS: u64 = 120_000_000_000;

/// How a rank of a prefill worker registers (`PUT /route`). A rank here stands for its whole group of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) attn_tp_size: u32,
    pub(crate) attn_tp_rank: u32,
    pub(crate) attn_cp_size: u32,
    pub(crate) attn_cp_rank: u32,
    pub(crate) attn_dp_size: u32,
    pub(crate) attn_dp_rank: u32,
    pub(crate) pp_size: u32,
    pub(crate) pp_rank: u32,
    pub(crate) system_dp_size: u32,
    pub(crate) system_dp_rank: u32,
    pub(crate) rank_ip: String,
    pub(crate) rank_port: u16,
    pub(crate) page_size: u32,
    pub(crate) kv_cache_dtype: String,
    pub(crate) load_balance_method: String,
    pub(crate) prefill_http_port: u16,
}

impl Registration {
    /// Under DP attention the ranks are those of the attention, else those of the system.
    fn ranks(&self) -> (u32, u32) {
        if self.system_dp_size == 1 {
            (self.attn_dp_rank, self.attn_dp_size)
        } else {
            (self.system_dp_rank, self.system_dp_size)
        }
    }

    fn info(&self) -> PrefillInfo {
        PrefillInfo {
            attn_tp_size: self.attn_tp_size,
            attn_cp_size: self.attn_cp_size,
            dp_size: self.ranks().1,
            pp_size: self.pp_size,
            page_size: self.page_size,
            kv_cache_dtype: self.kv_cache_dtype.clone(),
            follow_bootstrap_room: self.load_balance_method == LoadBalance::FollowBootstrapRoom.label(),
            prefill_http_port: self.prefill_http_port,
        }
    }
}

/// What decode workers must know of a prefill worker (`GET /route` with all ranks −1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrefillInfo {
    pub(crate) attn_tp_size: u32,
    pub(crate) attn_cp_size: u32,
    pub(crate) dp_size: u32,
    pub(crate) pp_size: u32,
    pub(crate) page_size: u32,
    pub(crate) kv_cache_dtype: String,
    pub(crate) follow_bootstrap_room: bool,
    pub(crate) prefill_http_port: u16,
}

/// Where a rank hands off KV.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankAddress {
    pub(crate) rank_ip: String,
    pub(crate) rank_port: u16,
}

/// The rank that has a room (`POST /register_dp_rank`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoomRank {
    pub(crate) bootstrap_room: u64,
    pub(crate) dp_rank: u32,
}

/// Why a registration makes no sense.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum RegistryError {
    #[error("dp_rank is {rank}; it must be in the range [0, {size})")]
    Rank { rank: u32, size: u32 },
    #[error("the sizes differ from those of the ranks that have registered before")]
    Sizes,
}

/// All that has been registered.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    info: Option<PrefillInfo>,
    ranks: BTreeMap<u32, RankAddress>,
    /// Ranks of rooms, and when they were told.
    rooms: HashMap<u64, (u32, u64)>,
}

impl Registry {
    /// Adds a rank, or replaces its address.
    pub(crate) fn add(&mut self, registration: Registration) -> Result<(), RegistryError> {
        let (rank, size) = registration.ranks();
        if rank >= size {
            return Err(RegistryError::Rank { rank, size });
        }
        let info = registration.info();
        if self.info.as_ref().is_some_and(|known| *known != info) {
            return Err(RegistryError::Sizes);
        }
        self.info = Some(info);
        let Registration { rank_ip, rank_port, .. } = registration;
        self.ranks.insert(rank, RankAddress { rank_ip, rank_port });
        Ok(())
    }

    /// The worker; None until all its ranks have registered.
    pub(crate) fn info(&self) -> Option<&PrefillInfo> {
        self.info.as_ref().filter(|info| self.ranks.len() as u32 == info.dp_size)
    }

    /// The address of a rank.
    pub(crate) fn rank(&self, rank: u32) -> Option<&RankAddress> {
        self.ranks.get(&rank)
    }

    /// A room is on this rank.
    pub(crate) fn tell(&mut self, now_ns: u64, RoomRank { bootstrap_room, dp_rank }: RoomRank) {
        self.rooms.retain(|_, (_, since_ns)| now_ns.saturating_sub(*since_ns) < ROOM_KEPT_NS);
        self.rooms.insert(bootstrap_room, (dp_rank, now_ns));
    }

    /// The ranks of those of the rooms that are known.
    pub(crate) fn find(&self, now_ns: u64, rooms: &[u64]) -> BTreeMap<String, u32> {
        let fresh = |room: &u64| {
            let (rank, since_ns) = self.rooms.get(room)?;
            (now_ns.saturating_sub(*since_ns) < ROOM_KEPT_NS).then(|| (room.to_string(), *rank))
        };
        rooms.iter().filter_map(fresh).collect()
    }
}
