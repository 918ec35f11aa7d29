//! Which requests wait for which, and what the end of one means for the others. The same machine in both worlds.

use protocol::record::RequestRecord;

use super::PlannedRequest;
use crate::run::{CLIENT_LEFT, was_left};

/// The error of a request that was never sent, because one that it goes on from had failed.
pub(crate) const PREDECESSOR_FAILED: &str = "its predecessor failed";

/// The error of a request that waited for this one, which did badly. A client that leaves takes the rest of its session along,
/// and nobody has failed that.
pub(crate) fn never_sent(predecessor: &RequestRecord) -> &'static str {
    if was_left(predecessor) { CLIENT_LEFT } else { PREDECESSOR_FAILED }
}

/// A request whose predecessor failed or was left: it waits for nothing any more.
const LOST: u32 = u32::MAX;

/// The dependencies of a plan, and how far they are met.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Absent where no request waits for another.
    links: Option<Links>,
}

#[derive(Debug)]
struct Links {
    /// For each request, how many predecessors have not ended; [`LOST`] when one of them did badly.
    open: Vec<u32>,
    /// `followers[starts[i]..starts[i + 1]]` wait for request `i`.
    starts: Vec<u32>,
    followers: Vec<u32>,
    /// The first request of the session of each.
    roots: Vec<u32>,
    /// For each first request, how many of its session have not ended.
    left: Vec<u32>,
    /// Requests whose replies others hold.
    kept: Vec<bool>,
}

/// What follows from the end of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Followers {
    /// Requests whose last predecessor this was.
    pub(crate) freed: Vec<usize>,
    /// Requests that can never be sent, in order of `seq`.
    pub(crate) lost: Vec<usize>,
    /// Whether nothing is left of the session.
    pub(crate) session_ended: bool,
}

impl Chain {
    /// The chain of a plan that has not begun.
    pub(crate) fn new(requests: &[PlannedRequest]) -> Self {
        let is_linked = requests.iter().any(|request| request.after.is_some());
        Self { links: is_linked.then(|| Links::new(requests)) }
    }

    /// Whether the reply to a request is part of another's prompt.
    pub(crate) fn keeps_reply(&self, seq: usize) -> bool {
        self.links.as_ref().is_some_and(|links| links.kept.get(seq).copied().unwrap_or(false))
    }

    /// Whether any reply is.
    pub(crate) fn keeps_any(&self) -> bool {
        self.links.as_ref().is_some_and(|links| links.kept.contains(&true))
    }

    /// How many replies may have to be kept: places by `seq`.
    pub(crate) fn places(&self) -> usize {
        self.links.as_ref().map_or(0, |links| links.open.len())
    }

    /// A request has ended, `whole` or not.
    pub(crate) fn ended(&mut self, seq: usize, whole: bool) -> Followers {
        match self.links.as_mut().filter(|links| seq < links.open.len()) {
            Some(links) => links.ended(seq, whole),
            None => Followers { session_ended: true, ..Followers::default() },
        }
    }
}

impl Links {
    fn new(requests: &[PlannedRequest]) -> Self {
        let after = |request: &PlannedRequest| -> Box<[u32]> {
            request.after.as_ref().map_or_else(Box::default, |after| after.seqs.clone())
        };
        let mut starts = vec![0; requests.len() + 1];
        let mut kept = vec![false; requests.len()];
        for request in requests {
            after(request).iter().for_each(|seq| starts[*seq as usize + 1] += 1);
            request.replies().for_each(|seq| kept[seq as usize] = true);
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut followers = vec![0; starts[requests.len()] as usize];
        let mut roots: Vec<u32> = (0..requests.len() as u32).collect();
        let mut left = vec![0; requests.len()];
        for (seq, request) in requests.iter().enumerate() {
            for before in after(request).iter().map(|before| *before as usize) {
                debug_assert!(before < seq, "predecessors come first");
                followers[next[before] as usize] = seq as u32;
                next[before] += 1;
                roots[seq] = roots[before];
            }
            left[roots[seq] as usize] += 1;
        }
        let open = requests.iter().map(|request| after(request).len() as u32).collect();
        Self { open, starts, followers, roots, left, kept }
    }

    fn ended(&mut self, seq: usize, whole: bool) -> Followers {
        let mut followers = Followers::default();
        let mut ends = vec![(seq, whole)];
        while let Some((seq, whole)) = ends.pop() {
            let root = self.roots[seq] as usize;
            self.left[root] -= 1;
            followers.session_ended = self.left[root] == 0;
            for place in self.starts[seq]..self.starts[seq + 1] {
                let follower = self.followers[place as usize] as usize;
                match &mut self.open[follower] {
                    &mut LOST => {}
                    open if whole => {
                        *open -= 1;
                        if *open == 0 {
                            followers.freed.push(follower);
                        }
                    }
                    open => {
                        *open = LOST;
                        followers.lost.push(follower);
                        ends.push((follower, false));
                    }
                }
            }
        }
        followers.lost.sort_unstable();
        followers
    }
}

#[cfg(test)]
mod tests {
    use super::super::After;
    use super::*;

    /// Requests that wait for these others.
    fn chain(after: &[&[u32]]) -> Chain {
        let request = |(seq, seqs): (usize, &&[u32])| PlannedRequest {
            seq: seq as u64,
            group: None,
            session: None,
            turn: None,
            at_ns: 0,
            prompt: Box::default(),
            output_tokens: 1,
            after: (!seqs.is_empty()).then(|| After { seqs: (*seqs).into(), think_ns: 0 }),
        };
        Chain::new(&after.iter().enumerate().map(request).collect::<Vec<_>>())
    }

    fn followers(freed: &[usize], lost: &[usize], session_ended: bool) -> Followers {
        Followers { freed: freed.into(), lost: lost.into(), session_ended }
    }

    #[test]
    fn a_join_waits_for_the_last_child() {
        let mut chain = chain(&[&[], &[0], &[0], &[1, 2], &[]]);
        assert_eq!(chain.ended(0, true), followers(&[1, 2], &[], false));
        assert_eq!(chain.ended(2, true), followers(&[], &[], false));
        assert_eq!(chain.ended(1, true), followers(&[3], &[], false));
        assert_eq!(chain.ended(4, true), followers(&[], &[], true));
        assert_eq!(chain.ended(3, true), followers(&[], &[], true));
    }

    #[test]
    fn a_failure_loses_all_that_follows_once() {
        let mut chain = chain(&[&[], &[0], &[0], &[1, 2], &[3]]);
        chain.ended(0, true);
        assert_eq!(chain.ended(1, false), followers(&[], &[3, 4], false), "the other child goes on");
        assert_eq!(chain.ended(2, false), followers(&[], &[], true));
    }

    #[test]
    fn requests_of_their_own_are_sessions_of_one() {
        let mut chain = chain(&[&[], &[]]);
        assert_eq!(chain.ended(1, false), followers(&[], &[], true));
        assert!(!chain.keeps_reply(0) && chain.places() == 0);
    }
}
