//! Whom a call speaks of: an engine, or one of the ranks by which it is addressed. By id or by URL; the URL of a rank is
//! that of its engine with `@` and its number behind.

use std::sync::Arc;

use super::{Problem, percent_decoded};
use crate::fleet::{Books, Identity, Layout, Member, Rank};
use crate::shared::Shared;
use crate::upstream::{Address, BadUrl, split_rank, without_userinfo};

/// The engine that a call speaks of and, where it named one, the rank.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) member: Arc<Member>,
    /// `None`: the engine with all that it has.
    pub(super) rank: Option<Arc<Rank>>,
}

impl Target {
    /// Finds who is meant by the last part of a path.
    ///
    /// # Errors
    /// It is not well formed, or nobody has this name.
    pub(super) fn find(shared: &Shared, name: &str) -> Result<Self, Problem> {
        let text = percent_decoded(name)
            .ok_or_else(|| Problem::bad(format!("`{}` is not well encoded", without_userinfo(name))))?;
        if let Some(identity) = Identity::parse(&text) {
            let found = Self::of(&shared.books.lock(), identity);
            return found.ok_or_else(|| Problem::not_found(&text));
        }
        let (address, number) = match split_rank(&text) {
            Some((engine, number)) => (engine, Some(number)),
            None => (Address::parse_lenient(&text).map_err(|problem| unreadable(&text, problem))?, None),
        };
        let books = shared.books.lock();
        let found = Self::of(&books, Identity::of_rank(&address, number));
        let engine = books.find(Identity::of(&address));
        drop(books);
        found.ok_or_else(|| match (number, engine) {
            (Some(number), Some(engine)) => no_rank(&engine, number),
            (Some(number), None) => Problem::missing(&format!("{}@{number}", address.url)),
            (None, _) => Problem::not_found(&text),
        })
    }

    /// The whole of an engine.
    pub(super) fn engine(member: Arc<Member>) -> Self {
        Self { member, rank: None }
    }

    fn of(books: &Books, identity: Identity) -> Option<Self> {
        let rank = || books.find_rank(identity).map(|(rank, member)| Self { member, rank: Some(rank) });
        books.find(identity).map(Self::engine).or_else(rank)
    }

    pub(super) fn identity(&self) -> Identity {
        self.rank.as_ref().map_or(self.member.identity, |rank| rank.identity)
    }

    pub(super) fn url(&self) -> &str {
        self.rank.as_ref().map_or(&self.member.address.url, |rank| &rank.url)
    }
}

fn unreadable(text: &str, problem: BadUrl) -> Problem {
    let text = without_userinfo(text);
    Problem::bad(format!("`{text}` is neither a worker's id nor its URL: {problem}"))
}

/// An engine that is known has no rank of this number.
fn no_rank(engine: &Member, number: u32) -> Problem {
    let layout = engine.layout();
    let url = &engine.address.url;
    match layout {
        Layout::Whole => {
            Problem::missing_as(format!("no worker `{url}@{number}`: `{url}` is addressed {layout}"))
        }
        Layout::Ranks { .. } => {
            let ranks = engine.ranks();
            let names: Vec<_> =
                ranks.iter().filter_map(|rank| rank.number).map(|number| number.to_string()).collect();
            Problem::missing_as(format!(
                "no worker `{url}@{number}`; the ranks of `{url}` are {}",
                names.join(", ")
            ))
        }
    }
}
