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
    pub(super) prefill_rank: RankWord,
    pub(super) decode_rank: RankWord,
}

/// What a leg's engine is told of its data-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RankWord {
    /// The one that the router has chosen, whatever the client says.
    Chosen(u32),
    /// What the client says, if it says something.
    Clients,
    /// Nothing, whatever the client says.
    Withheld,
}

impl RankWord {
    /// That for a leg of which the router has chosen the rank, or left it to the client and the engine.
    pub(super) fn of(chosen: Option<u32>) -> Self {
        chosen.map_or(Self::Clients, Self::Chosen)
    }

    fn chosen(self) -> Option<u32> {
        match self {
            Self::Chosen(rank) => Some(rank),
            Self::Clients | Self::Withheld => None,
        }
    }
}

/// The body for a worker that is addressed by rank. One that is no object goes on as it is: the engine will say so.
pub(super) fn for_rank(body: &Bytes, field: RankField, rank: u32) -> Bytes {
    let members = rank_members(field, RankWord::Chosen(rank));
    splice(body, &members).map_or_else(|NoObject| body.clone(), Bytes::from)
}

impl Introduction<'_> {
    /// The client's body for both legs. What it says itself under the names in question is taken out.
    ///
    /// # Errors
    /// It is no JSON object.
    pub(super) fn bodies(&self, body: &[u8]) -> Result<Bodies, NoObject> {
        let Bootstrap { host, port } = self.bootstrap;
        let common = self.items.bootstrap(host, *port, self.rooms);
        let with = |rank: RankWord, source: Option<u32>| {
            let mut members = common.to_vec();
            members.extend(rank_members(self.rank_field, rank));
            members.push(Member { name: PREFILL_DP_RANK, value: source.map(|rank| rank.to_string()) });
            splice(body, &members).map(Bytes::from)
        };
        let prefill = with(self.prefill_rank, None)?;
        let is_alike = (self.decode_rank, self.prefill_rank) == (RankWord::Clients, RankWord::Clients);
        let source = self.prefill_rank.chosen();
        let decode = if is_alike { prefill.clone() } else { with(self.decode_rank, source)? };
        Ok(Bodies { prefill, decode })
    }
}

/// The rank under the one of its names that engines are sent.
fn rank_members(field: RankField, rank: RankWord) -> Vec<Member<'static>> {
    let other = match field {
        RankField::DataParallelRank => RankField::RoutedDpRank,
        RankField::RoutedDpRank => RankField::DataParallelRank,
    };
    match rank {
        RankWord::Chosen(_) | RankWord::Withheld => {
            let value = rank.chosen().map(|rank| rank.to_string());
            vec![Member { name: field.name(), value }, Member::without(other.name())]
        }
        RankWord::Clients => Vec::new(),
    }
}
