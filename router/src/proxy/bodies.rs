//! The bodies that a request's legs are sent: the client's, with as few members added as they need.

use bytes::Bytes;
use protocol::pd::{Items, PREFILL_DP_RANK};
use protocol::splice::{Member, NoObject, splice};

use crate::config::RankField;
use crate::fleet::Bootstrap;

/// The bodies of a pair.
pub(super) struct Bodies {
    pub(super) prefill: Bytes,
    pub(super) decode: Bytes,
}

/// What a pair is told.
pub(super) struct Introduction<'a> {
    pub(super) items: Items,
    /// Of the prefill engine.
    pub(super) bootstrap: &'a Bootstrap,
    pub(super) rooms: &'a [u64],
    pub(super) rank_field: RankField,
    /// The ranks that were chosen, where engines are addressed by rank.
    pub(super) prefill_rank: Option<u32>,
    pub(super) decode_rank: Option<u32>,
}

/// The body for a worker that is addressed by rank. One that is no object goes on as it is: the engine will say so.
pub(super) fn for_rank(body: &Bytes, field: RankField, rank: u32) -> Bytes {
    splice(body, &rank_members(field, Some(rank))).map_or_else(|NoObject| body.clone(), Bytes::from)
}

impl Introduction<'_> {
    /// The client's body for both legs. What it says itself under the names in question is taken out.
    ///
    /// # Errors
    /// It is no JSON object.
    pub(super) fn bodies(&self, body: &[u8]) -> Result<Bodies, NoObject> {
        let Bootstrap { host, port } = self.bootstrap;
        let common = self.items.bootstrap(host, *port, self.rooms);
        let with = |rank: Option<u32>, source: Option<u32>| {
            let mut members = common.to_vec();
            members.extend(rank_members(self.rank_field, rank));
            members.push(Member { name: PREFILL_DP_RANK, value: source.map(|rank| rank.to_string()) });
            splice(body, &members).map(Bytes::from)
        };
        let prefill = with(self.prefill_rank, None)?;
        let is_alike = (self.decode_rank, self.prefill_rank) == (None, None);
        let decode = if is_alike { prefill.clone() } else { with(self.decode_rank, self.prefill_rank)? };
        Ok(Bodies { prefill, decode })
    }
}

/// The rank under the one of its names that engines are sent. Without a rank the body says what the client says.
fn rank_members(field: RankField, rank: Option<u32>) -> Vec<Member<'static>> {
    let Some(rank) = rank else { return Vec::new() };
    let other = match field {
        RankField::DataParallelRank => RankField::RoutedDpRank,
        RankField::RoutedDpRank => RankField::DataParallelRank,
    };
    vec![Member::new(field.name(), rank.to_string()), Member::without(other.name())]
}
