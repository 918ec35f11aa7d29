//! What an observer of an engine's events about KV knows in the end.

use simworker_core::{Event, Ranks};

use crate::mirror::Mirror;

/// Proves that these events, all that the ranks have told, tell of everything that they have cached. They must have
/// nothing left to do.
pub(crate) fn prove(ranks: &Ranks, events: &[Event], page: u32) {
    assert_eq!(ranks.next_deadline(), None, "all is told");
    for rank in 0..ranks.size() {
        let mut mirror = Mirror::default();
        let told = events.iter().filter_map(|event| match event {
            Event::Kv { rank: of, events, .. } if *of == rank => Some(events.clone()),
            _ => None,
        });
        let proof = mirror
            .apply(told.flatten(), page as usize)
            .and_then(|()| mirror.compare(ranks.cached(rank), page as usize));
        proof.unwrap_or_else(|why| panic!("rank {rank}: {why}"));
    }
}
