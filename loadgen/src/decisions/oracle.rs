//! Random calls to an index, and to the one of a replay by what is recorded of them alone: every lookup must give the same.

use std::collections::BTreeMap;

use protocol::tokenizer::mix;
use router::record::line::{Look, Pieces, RoleName, Roles};
use router::record::look_of;
use router_core::Role;
use router_core::ids::{ScopeId, WorkerId};
use router_core::index::{Credit, IndexLimits, PrefixIndex};

use super::belief::Belief;
use super::prompt::Prompt;

const WORKERS: u64 = 4;

/// Random numbers.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % end
    }

    pub(super) fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len() as u64) as usize]
    }
}

/// Prompts that often begin as earlier ones do, over few symbols.
#[derive(Default)]
struct Prompts {
    texts: Vec<String>,
    ids: Vec<Vec<u32>>,
}

impl Prompts {
    fn draw(&mut self, draw: &mut Draw) -> Prompt {
        const ALPHABETS: [&[&str]; 3] =
            [&["a", "b"], &["日", "本", "晦", "é", "a"], &["what ", "is ", "the ", "he", "it"]];
        let added = if draw.below(20) == 0 { 300 } else { draw.of(&[0, 1, 3, 12, 40]) };
        let added = draw.below(added + 1);
        if draw.below(4) == 0 {
            let mut ids = Vec::new();
            if !self.ids.is_empty() && draw.below(6) > 0 {
                let other = &self.ids[draw.below(self.ids.len() as u64) as usize];
                ids.extend(&other[..draw.below(other.len() as u64 + 1) as usize]);
            }
            ids.extend((0..added).map(|_| draw.below(3) as u32));
            self.ids.push(ids.clone());
            return Prompt::Ids(ids);
        }
        let mut text = String::new();
        if !self.texts.is_empty() && draw.below(6) > 0 {
            let other = &self.texts[draw.below(self.texts.len() as u64) as usize];
            text.extend(other.chars().take(draw.below(other.len() as u64 + 1) as usize));
        }
        let alphabet = draw.of(&ALPHABETS);
        (0..added).for_each(|_| text.push_str(draw.of(alphabet)));
        self.texts.push(text.clone());
        Prompt::Text(text.into_bytes())
    }
}

/// A request that was looked up.
struct Asked {
    prompt: Prompt,
    look: Look,
    credits: BTreeMap<RoleName, Option<Credit>>,
}

/// Both indexes.
struct Pair {
    index: PrefixIndex,
    belief: Belief,
    asked: Vec<Asked>,
    looks: u64,
    /// Lookups that gave the same, and those that did not.
    found: [usize; 2],
}

impl Pair {
    fn new(limits: IndexLimits, is_same: bool) -> Self {
        let (index, belief) = (PrefixIndex::new(limits), Belief::new(limits, is_same));
        Self { index, belief, asked: Vec::new(), looks: 0, found: [0; 2] }
    }

    fn made(look: &Look) -> Prompt {
        Prompt::of(look, Pieces::WRITTEN)
    }

    fn look(&mut self, prompt: Prompt, scopes: Roles<Option<u32>>) {
        self.looks += 1;
        let mut look = look_of([7; 16], self.looks, scopes, prompt.view());
        look.share(prompt.view(), &self.index);
        let look: Look = serde_json::from_str(&serde_json::to_string(&look).unwrap()).unwrap();
        for role in Role::ALL {
            let Some(scope) = scopes.get(role).map(ScopeId) else { continue };
            let shared = look.shared.get(&role.into()).copied();
            let found = self.belief.lookup(scope, Self::made(&look), shared);
            let is_same = found == self.index.lookup(scope, prompt.view());
            self.found[usize::from(!is_same)] += 1;
        }
        self.asked.push(Asked { prompt, look, credits: BTreeMap::new() });
    }

    /// Credits a request in one of its roles, or takes that back, or forgets it.
    fn go_on(&mut self, draw: &mut Draw) {
        if self.asked.is_empty() {
            return;
        }
        let at = draw.below(self.asked.len() as u64) as usize;
        let Asked { prompt, look, credits } = &mut self.asked[at];
        let n = look.n;
        let roles = Role::ALL.into_iter().filter_map(|role| Some((role, ScopeId((*look.scopes.get(role))?))));
        let Some((role, scope)) = roles.into_iter().find(|(role, _)| !credits.contains_key(&(*role).into()))
        else {
            let Asked { prompt, credits, .. } = self.asked.swap_remove(at);
            for (role, credit) in credits {
                if let Some(credit) = credit.filter(|_| draw.below(4) == 0) {
                    self.index.withdraw(prompt.view(), credit);
                    self.belief.withdraw((n, role));
                }
            }
            return;
        };
        let role = RoleName::from(role);
        let worker = WorkerId(draw.below(WORKERS) as u32);
        let shared = self.index.shared(scope, prompt.view()).map(Into::into);
        let credit = self.index.credit(scope, prompt.view(), worker);
        credits.insert(role, Some(credit));
        let told = (shared, self.index.clock());
        self.belief.credit((n, role), (scope, worker), Self::made(look), told);
    }
}

/// How many lookups gave the same, and how many did not; and how many characters had to make room.
fn run(seed: u64, is_same: bool) -> ([usize; 2], u64) {
    let mut draw = Draw::new(seed);
    // With little memory it is the trees' shapes that decide what goes; so nothing may be left there that is nobody's.
    let is_narrow = seed.is_multiple_of(3);
    let max_tree_bytes = if is_narrow { 20_000 + draw.below(60_000) } else { 1 << 40 };
    let max_tree_size = draw.of(&[30, 200, 2_000, 1 << 40]);
    let mut pair = Pair::new(IndexLimits { max_tree_size, max_tree_bytes }, is_same);
    let mut prompts = Prompts::default();
    for _ in 0..400 {
        match draw.below(60) {
            0 if !is_narrow => {
                let worker = WorkerId(draw.below(WORKERS) as u32);
                pair.index.clear(worker);
                pair.belief.clear(worker);
            }
            1 => _ = pair.index.sweep(draw.below(20) as usize),
            2 => pair.belief.sweep(),
            3..30 => {
                let pairs = Roles { regular: None, prefill: Some(1), decode: Some(2) };
                let prompt = prompts.draw(&mut draw);
                let regular = Roles { regular: Some(0), ..Roles::default() };
                pair.look(prompt, if draw.below(3) == 0 { pairs } else { regular });
            }
            _ => pair.go_on(&mut draw),
        }
    }
    (pair.found, pair.index.stats().evicted_chars)
}

#[test]
fn an_index_that_is_told_what_was_recorded_answers_the_same() {
    let mut full = 0;
    for seed in 0..400 {
        let ([same, other], evicted) = run(seed, true);
        assert!(same > 100 && other == 0, "seed {seed}: {other} lookups of {} differ", same + other);
        full += usize::from(evicted > 0);
    }
    assert!(full > 200, "characters were evicted with {full} seeds");
}

#[test]
fn tags_alone_are_not_enough_for_that() {
    let differ = (0..40).filter(|seed| run(*seed, false).0[1] > 20).count();
    assert_eq!(differ, 40);
}
