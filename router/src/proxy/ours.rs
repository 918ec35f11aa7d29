//! Refusals of an engine that are about what the router has put into a request: no matter of the client's, who has said nothing
//! of the kind. There is another try.

use protocol::dp_rank::{self, Refused};
use protocol::pd;

/// What there is in a request that an engine may refuse and that is the router's doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ours {
    /// The engine was sent an earlier try of the request.
    pub(super) is_again: bool,
    /// The router has chosen the rank.
    pub(super) rank: bool,
    /// The rooms were drawn so that they stand for a rank.
    pub(super) room: bool,
}

/// What the engine refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// It has not finished with the earlier try.
    Duplicate,
    /// It has other ranks than it was believed to have.
    OtherRanks,
}

impl Ours {
    /// Whether there is anything.
    pub(super) fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Why this answer, which is none of success, is none of the client's business; `None` if it is.
    pub(super) fn reason(self, answer: &[u8]) -> Option<Reason> {
        if self.is_again && pd::is_duplicate(answer) {
            return Some(Reason::Duplicate);
        }
        let is_rank = (self.rank || self.room)
            && match dp_rank::refused(answer) {
                Some(Refused::Rank) => self.rank,
                Some(Refused::Room) => self.room,
                None => false,
            };
        is_rank.then_some(Reason::OtherRanks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_has_said_itself_is_its_business() {
        let twice = br#"{"error":{"message":"Duplicate request ID detected: a"}}"#;
        let rank = br#"{"error":{"message":"data_parallel_rank is 2; it must be in the range [0, 2)."}}"#;
        let room = br#"{"error":{"message":"follow_bootstrap_room conflict: routed_dp_rank is 1"}}"#;
        let none = Ours::default();
        for (case, ours, reasons) in [
            ("nothing is", none, [None; 3]),
            ("again", Ours { is_again: true, ..none }, [Some(Reason::Duplicate), None, None]),
            ("rank", Ours { rank: true, ..none }, [None, Some(Reason::OtherRanks), None]),
            ("room", Ours { room: true, ..none }, [None, None, Some(Reason::OtherRanks)]),
        ] {
            assert_eq!([&twice[..], rank, room].map(|answer| ours.reason(answer)), reasons, "{case}");
            assert_eq!(ours.reason(br#"{"error":{"message":"too long"}}"#), None, "{case}");
        }
    }
}
