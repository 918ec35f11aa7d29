//! A model of the index that is too slow to be wrong.

use std::collections::BTreeMap;

use router_core::ids::WorkerId;
use router_core::index::{HEAD_PART, Match};
use router_core::prompt::PromptView;

/// A prompt that owns its symbols.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Prompt {
    Text(Vec<u8>),
    Tokens(Vec<u32>),
}

impl Prompt {
    pub(crate) fn view(&self) -> PromptView<'_> {
        match self {
            Self::Text(text) => PromptView::Text(text),
            Self::Tokens(ids) => PromptView::Tokens(ids),
        }
    }

    /// Its first `n` symbols, for every `n` from 1.
    pub(crate) fn heads(&self) -> Vec<Prompt> {
        match self {
            Self::Text(text) => (1..=text.len()).map(|n| Self::Text(text[..n].to_vec())).collect(),
            Self::Tokens(ids) => (1..=ids.len()).map(|n| Self::Tokens(ids[..n].to_vec())).collect(),
        }
    }

    /// Characters of the last symbol.
    pub(crate) fn weight(&self) -> u64 {
        match self {
            Self::Text(text) => text.last().map_or(0, |byte| u64::from(!(0x80..0xC0).contains(byte))),
            Self::Tokens(_) => 4,
        }
    }

    /// Whether it begins with the first so many symbols of `other`.
    pub(crate) fn shares(&self, other: &Prompt, symbols: usize) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.starts_with(&b[..symbols]),
            (Self::Tokens(a), Self::Tokens(b)) => a.starts_with(&b[..symbols]),
            _ => false,
        }
    }

    pub(crate) fn is_longer_than(&self, other: &Prompt) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.len() > b.len() && a.starts_with(b),
            (Self::Tokens(a), Self::Tokens(b)) => a.len() > b.len() && a.starts_with(b),
            _ => false,
        }
    }
}

/// One owned symbol: named by the whole head of the prompt that it ends.
pub(crate) type Place = (u32, Prompt);

/// Per worker every symbol it owns, each with its last epoch and whether that one created it. No tree, no edges.
#[derive(Debug, Default)]
pub(crate) struct Model {
    max_tree_size: u64,
    epoch: u64,
    pub(crate) owned: BTreeMap<u32, BTreeMap<Place, (u64, bool)>>,
    forgotten: Vec<u32>,
    pub(crate) evicted_chars: u64,
}

impl Model {
    pub(crate) fn new(max_tree_size: u64) -> Self {
        Self { max_tree_size, ..Self::default() }
    }

    pub(crate) fn chars(&self, worker: u32) -> u64 {
        self.owned.get(&worker).map_or(0, |owned| owned.keys().map(|(_, head)| head.weight()).sum())
    }

    /// The heads of the part of the prompt that fits into one worker's share.
    pub(crate) fn fitting(&self, prompt: &Prompt) -> Vec<Prompt> {
        let mut chars = 0;
        let fits = |head: &Prompt| {
            chars += head.weight();
            chars <= self.max_tree_size
        };
        prompt.heads().into_iter().take_while(fits).collect()
    }

    pub(crate) fn credit(&mut self, scope: u32, prompt: &Prompt, worker: u32) -> u64 {
        // Bytes that continue a character which does not fit do not fit either, but those of the last one do.
        let heads = self.fitting(prompt);
        if heads.is_empty() || self.forgotten.contains(&worker) {
            return 0;
        }
        self.epoch += 1;
        let epoch = self.epoch;
        let owned = self.owned.entry(worker).or_default();
        let mut lacking = 0;
        for head in &heads {
            match owned.get_mut(&(scope, head.clone())) {
                Some(stamp) => *stamp = (epoch, false),
                None => lacking += head.weight(),
            }
        }
        while self.chars(worker) + lacking > self.max_tree_size {
            self.evict_one_symbol(worker);
        }
        let owned = self.owned.entry(worker).or_default();
        for head in heads {
            owned.entry((scope, head)).or_insert((epoch, true));
        }
        epoch
    }

    pub(crate) fn resize(&mut self, max_tree_size: u64) {
        self.max_tree_size = max_tree_size;
        for worker in 0..4 {
            while self.chars(worker) > max_tree_size {
                self.evict_one_symbol(worker);
            }
        }
    }

    /// Takes the least recent of the symbols that no other owned symbol follows.
    pub(crate) fn evict_one_symbol(&mut self, worker: u32) {
        let owned = self.owned.entry(worker).or_default();
        let is_leaf =
            |place: &Place| !owned.keys().any(|other| other.0 == place.0 && other.1.is_longer_than(&place.1));
        let oldest = owned.iter().filter(|(place, _)| is_leaf(place)).min_by_key(|(_, stamp)| stamp.0);
        let place = oldest.expect("something is owned").0.clone();
        self.evicted_chars += place.1.weight();
        owned.remove(&place);
    }

    pub(crate) fn withdraw(&mut self, scope: u32, prompt: &Prompt, worker: u32, epoch: u64) {
        let Some(owned) = self.owned.get_mut(&worker) else { return };
        for head in prompt.heads() {
            let place = (scope, head);
            if owned.get(&place) == Some(&(epoch, true)) {
                owned.remove(&place);
            }
        }
    }

    pub(crate) fn clear(&mut self, worker: u32) {
        self.owned.remove(&worker);
    }

    pub(crate) fn forget(&mut self, worker: u32) {
        self.clear(worker);
        self.forgotten.push(worker);
    }

    /// What each worker holds, and when it was last credited with that and with its head.
    pub(crate) fn lookup(&self, scope: u32, prompt: &Prompt) -> Vec<Match> {
        let heads = prompt.heads();
        let matched = |owned: &BTreeMap<Place, (u64, bool)>| {
            let row = |head: &Prompt| Some((head.weight(), owned.get(&(scope, head.clone()))?.0));
            let held: Vec<(u64, u64)> = heads.iter().map_while(row).collect();
            let chars = held.iter().map(|row| row.0).sum::<u64>();
            let mut up_to = 0;
            let head = held.iter().find(|row| {
                up_to += row.0;
                up_to >= chars.div_ceil(HEAD_PART)
            });
            Some((chars, held.last()?.1, head?.1))
        };
        let rows = self.owned.iter().filter_map(|(&worker, owned)| {
            let (chars, credited, head_credited) = matched(owned)?;
            Some(Match { worker: WorkerId(worker), chars, credited, head_credited })
        });
        rows.collect()
    }

    /// Symbols from the prompt's beginning that anybody holds.
    pub(crate) fn shared(&self, scope: u32, prompt: &Prompt) -> usize {
        let is_held =
            |head: &&Prompt| self.owned.values().any(|owned| owned.contains_key(&(scope, (*head).clone())));
        prompt.heads().iter().take_while(is_held).count()
    }

    /// Credits so far.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }
}
