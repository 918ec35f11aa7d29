//! By which ranks an engine is addressed, where the router chooses among the ranks of engines: as many as it says that it
//! has, under the numbers by which it reports their loads. A node of a larger deployment may own the ranks 4 to 7
//! (vllm-project/router#210); numbers that are made up here would be refused there.
//!
//! An engine whose words contradict each other gets no requests: half of them would fail.

use std::sync::Arc;

use protocol::loads::{LoadSummary, RankSummary};

use super::loads::{self, Answer, Unanswered};
use super::rank::{Layout, Rank};
use super::{Facts, MAX_WORKERS, Member};
use crate::shared::Shared;

/// Most ranks of one engine, and the highest number that the first of them may have. More is a mistake.
const MAX_RANKS: u64 = 1024;
const MAX_FIRST: u32 = 1 << 20;

/// Why it is not known how an engine is to be addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unsettled {
    /// It may tell when it is asked again.
    NotYet(String),
    /// It is not to have requests.
    Wrong(String),
}

/// What is remembered of an engine's layout.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// What it was found by; the engine is asked again when that changes.
    basis: Option<Basis>,
    /// What was told to operators last.
    told: Option<String>,
    /// The load report that came with it, which is news once.
    report: Option<Answer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Basis {
    dp_size: Option<u64>,
    nodes: Option<u64>,
    instance: Option<String>,
}

impl Basis {
    fn of(facts: &Facts) -> Self {
        Self { dp_size: facts.dp_size, nodes: facts.nodes, instance: facts.instance.clone() }
    }
}

impl Settled {
    /// What the engine reports of its ranks is not what was found: it is to be asked again.
    pub(super) fn doubt(&mut self) {
        self.basis = None;
    }

    /// The report, if nobody has had it yet.
    pub(super) fn take_report(&mut self) -> Option<Answer> {
        self.report.take()
    }

    /// Whether that has not been told just now.
    fn is_news(&mut self, message: &str) -> bool {
        let is_news = self.told.as_deref() != Some(message);
        self.told = Some(message.to_owned());
        is_news
    }
}

/// Finds out how an engine that has described itself is addressed, and addresses it so from now on. Nothing is asked where
/// the answer is known, or where ranks are no matter of the router's.
///
/// # Errors
/// It is not known, and stays as it was.
pub(super) async fn settle(shared: &Arc<Shared>, member: &Arc<Member>) -> Result<(), Unsettled> {
    if !shared.rounds.dp_aware {
        return Ok(());
    }
    let facts = member.facts();
    let basis = Basis::of(&facts);
    if member.settled.lock().basis.as_ref() == Some(&basis) {
        return Ok(());
    }
    let found = match facts.dp_size {
        Some(dp_size) => ask(shared, member, dp_size, facts.nodes).await,
        None => Ok(untold(member)),
    };
    let done = found.and_then(|layout| lay_out(shared, member, layout).map_err(Unsettled::Wrong));
    let mut settled = member.settled.lock();
    match &done {
        Ok(()) => settled.basis = Some(basis),
        // Whoever brings an engine in tells why it does not come.
        Err(Unsettled::NotYet(_)) => {}
        Err(Unsettled::Wrong(problem)) => {
            if !member.stage().is_coming() && settled.is_news(problem) {
                tracing::error!(worker = %member.address.url, "its ranks stay as they were: {problem}");
            }
        }
    }
    done
}

/// The engine does not say how many ranks it has.
fn untold(member: &Member) -> Layout {
    let problem = "it does not say its dp_size, so it is addressed as a whole and shares requests among its ranks by itself";
    if member.settled.lock().is_news(problem) {
        tracing::warn!(worker = %member.address.url, "{problem}");
    }
    Layout::Whole
}

async fn ask(
    shared: &Shared,
    member: &Member,
    dp_size: u64,
    nodes: Option<u64>,
) -> Result<Layout, Unsettled> {
    let asked = loads::ask_either(shared, member).await;
    let numbers: Option<Vec<Option<u32>>> = match &asked.ranks {
        Ok(ranks) => Some(ranks.iter().map(|rank| rank.dp_rank).collect()),
        Err(Unanswered::NoSuchPath) => None,
        // One rank needs no number.
        Err(_) if dp_size <= 1 => None,
        Err(problem) => {
            return Err(Unsettled::NotYet(format!("it does not tell the numbers of its ranks: {problem}")));
        }
    };
    member.settled.lock().report = Some(asked);
    layout(dp_size, nodes, numbers.as_deref()).map_err(Unsettled::Wrong)
}

/// The layout of an engine that says that it has so many ranks, on so many nodes, and that reports the loads of these:
/// their numbers, as far as it tells them.
fn layout(dp_size: u64, nodes: Option<u64>, reported: Option<&[Option<u32>]>) -> Result<Layout, String> {
    if dp_size > MAX_RANKS {
        return Err(format!(
            "its dp_size is {dp_size}; {MAX_RANKS} ranks are the most that one engine may have"
        ));
    }
    let size = dp_size.max(1) as u32;
    let Some(reported) = reported else { return Ok(Layout::of(0, size)) };
    let mut numbers: Vec<u32> = reported.iter().copied().flatten().collect();
    numbers.sort_unstable();
    let count = reported.len();
    if numbers.is_empty() && count == size as usize {
        return Ok(Layout::of(0, size));
    }
    // One node of several may report its own ranks only.
    let share =
        nodes.filter(|nodes| *nodes > 1 && dp_size.is_multiple_of(*nodes)).map(|nodes| dp_size / nodes);
    let is_all = count == size as usize;
    let is_share = share.is_some_and(|share| share == count as u64);
    let first = numbers.first().copied().unwrap_or(0);
    let is_row = first <= MAX_FIRST
        && numbers.len() == count
        && numbers.iter().zip(first..).all(|(number, due)| *number == due);
    let is_within = is_all || u64::from(first) + count as u64 <= dp_size;
    if (is_all || is_share) && is_row && is_within {
        return Ok(Layout::of(first, count as u32));
    }
    Err(format!(
        "it says that it has dp_size {dp_size}, and reports the loads of {count} ranks{}: start it so that both agree, or \
         the router without --dp-aware, and register it again",
        listed(&numbers)
    ))
}

/// The first few numbers, for a message.
fn listed(numbers: &[u32]) -> String {
    const NAMED: usize = 16;
    let names: Vec<_> = numbers.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if numbers.len() > NAMED { ", …" } else { "" };
    if names.is_empty() { String::new() } else { format!(" ({}{more})", names.join(", ")) }
}

/// Addresses an engine so from now on.
pub(super) fn lay_out(shared: &Shared, member: &Arc<Member>, layout: Layout) -> Result<(), String> {
    let mut books = shared.books.lock();
    // One that was taken out meanwhile has no workers any more.
    if member.layout() == layout || !books.has(member) {
        return Ok(());
    }
    let others = books.ranks().len() - member.ids().len();
    if others + layout.numbers().count() > MAX_WORKERS {
        return Err(format!("there is no room for its ranks: {MAX_WORKERS} workers are the most"));
    }
    let gone = books.lay_out(shared.clock.now_ns(), member, layout);
    drop(books);
    if let Some(gone) = gone {
        shared.belief.remove(&gone);
        tracing::info!(worker = %member.address.url, "addressed {layout}");
        shared.turns.notify_waiters();
    }
    Ok(())
}

impl Member {
    /// The load of one of its workers by what it reports of its ranks; of the whole engine, their sum.
    pub(crate) fn load_of(&self, rank: &Rank, reported: &[RankSummary]) -> Option<LoadSummary> {
        let Some(number) = rank.number else { return LoadSummary::sum(reported) };
        let Layout::Ranks { first, .. } = self.layout() else { return None };
        let named = reported.iter().find(|one| one.dp_rank == Some(number));
        let by_place =
            || reported.get(number.checked_sub(first)? as usize).filter(|one| one.dp_rank.is_none());
        named.or_else(by_place).map(|one| one.load)
    }

    /// It has refused one of the ranks that it was believed to have: it is asked for them anew, also if it says that it is the same
    /// as before.
    pub(crate) fn doubt_ranks(&self) {
        self.settled.lock().doubt();
        self.inquire();
    }

    /// The URL of the rank of this number, where it is addressed by rank; otherwise its own.
    pub(crate) fn url_of_rank(&self, number: Option<u64>) -> String {
        let ranks = self.ranks();
        let named =
            number.and_then(|number| ranks.iter().find(|rank| rank.number.map(u64::from) == Some(number)));
        named.map_or_else(|| self.address.url.clone(), |rank| rank.url.to_string())
    }
}

#[cfg(test)]
mod tests {
    use router_core::ids::WorkerId;

    use super::*;
    use crate::fleet::Terms;
    use crate::upstream::Address;

    #[test]
    fn ranks_are_those_that_the_engine_reports() {
        let numbers = |of: std::ops::Range<u32>| of.map(Some).collect::<Vec<_>>();
        let ranks = |first, count| Ok(Layout::Ranks { first, count });
        for (case, dp_size, nodes, reported, expected) in [
            ("one", 1, None, Some(numbers(0..1)), Ok(Layout::Whole)),
            ("none is one", 0, None, None, Ok(Layout::Whole)),
            ("nothing reported", 4, None, None, ranks(0, 4)),
            ("the usual", 4, None, Some(numbers(0..4)), ranks(0, 4)),
            ("without numbers", 2, None, Some(vec![None, None]), ranks(0, 2)),
            ("in any order", 2, None, Some(vec![Some(1), Some(0)]), ranks(0, 2)),
            ("the second node's", 4, None, Some(numbers(4..8)), ranks(4, 4)),
            ("the second node's of all", 8, Some(2), Some(numbers(4..8)), ranks(4, 4)),
            ("all of two nodes", 8, Some(2), Some(numbers(0..8)), ranks(0, 8)),
        ] {
            assert_eq!(layout(dp_size, nodes, reported.as_deref()), expected, "{case}");
        }
    }

    #[test]
    fn a_rank_has_the_load_of_its_number_or_else_of_its_place() {
        let member =
            Member::new(WorkerId(0), Address::parse("http://w").expect("a URL"), Terms::default(), 1);
        let rank = |number| Arc::new(Rank::new(WorkerId(number), &member.address, Some(number)));
        let whole = member.ranks()[0].clone();
        let report = |entries: &[(&str, u64)]| {
            let entry = |(rank, tokens): &(&str, u64)| {
                format!(r#"{{{rank}"num_running_reqs":0,"num_waiting_reqs":0,"num_used_tokens":{tokens}}}"#)
            };
            let entries: Vec<_> = entries.iter().map(entry).collect();
            RankSummary::parse(format!(r#"{{"loads":[{}]}}"#, entries.join(",")).as_bytes())
                .expect("a report")
        };
        member.set_ranks(Layout::Ranks { first: 4, count: 2 }, vec![rank(4), rank(5)], |_| false);
        let tokens = |rank: &Rank, reported: &[RankSummary]| {
            member.load_of(rank, reported).map(|load| load.total_tokens)
        };
        let ranks = member.ranks();
        for (case, reported, expected) in [
            ("by number", report(&[(r#""dp_rank":5,"#, 50), (r#""dp_rank":4,"#, 40)]), [Some(40), Some(50)]),
            ("by place", report(&[("", 40), ("", 50)]), [Some(40), Some(50)]),
            ("one is missing", report(&[(r#""dp_rank":5,"#, 50)]), [None, Some(50)]),
            ("others", report(&[(r#""dp_rank":0,"#, 1), (r#""dp_rank":1,"#, 2)]), [None, None]),
        ] {
            assert_eq!([tokens(&ranks[0], &reported), tokens(&ranks[1], &reported)], expected, "{case}");
            let sum = reported.iter().map(|rank| rank.load.total_tokens).sum();
            assert_eq!(tokens(&whole, &reported), Some(sum), "{case}");
        }
    }

    #[test]
    fn an_engine_that_contradicts_itself_is_told_with_both_its_words() {
        let numbers = |of: &[u32]| of.iter().copied().map(Some).collect::<Vec<_>>();
        for (dp_size, nodes, reported, part) in [
            (4, None, numbers(&[0, 1]), "dp_size 4, and reports the loads of 2 ranks (0, 1)"),
            (2, None, numbers(&[0, 1, 2]), "of 3 ranks (0, 1, 2)"),
            (2, None, numbers(&[0, 7]), "(0, 7)"),
            (2, None, numbers(&[1, 1]), "(1, 1)"),
            (2, None, vec![Some(0), None], "of 2 ranks (0)"),
            (1, None, numbers(&[0, 1]), "dp_size 1"),
            (8, Some(2), numbers(&[6, 7, 8, 9]), "(6, 7, 8, 9)"),
            (8, None, numbers(&[4, 5, 6, 7]), "of 4 ranks"),
            (2, None, numbers(&[u32::MAX - 1, u32::MAX]), "of 2 ranks"),
            (1025, None, numbers(&[0]), "1024 ranks are the most"),
        ] {
            let problem = layout(dp_size, nodes, Some(&reported)).expect_err(part);
            assert!(problem.contains(part), "no {part:?} in {problem}");
        }
        assert!(listed(&(0..100).collect::<Vec<_>>()).ends_with("15, …)"));
    }
}
