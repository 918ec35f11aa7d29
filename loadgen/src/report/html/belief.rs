//! What the router believed of a request's cached tokens against what the engine found: requests counted in a square.
//!
//! Where sessions go on, a prompt holds the replies to earlier turns. The router's index is made of prompts, so it learns
//! of a reply with the prompt that repeats it, when the engine has long kept it: that part of the difference is told apart.

use std::collections::BTreeMap;

use minijinja::{Error, Value};
use protocol::record::RequestRecord;
use serde::Serialize;

use super::super::format::{grouped, percent};
use super::super::variant::Variant;
use super::template::{escape, fill, markup};
use super::view::View;
use crate::run::{Run, World};

/// Bins of each share.
const BINS: usize = 20;
/// Steps of shade above nothing.
const LEVELS: usize = 8;
/// A smaller share of replies is not worth a word.
const LEAST_REPLIES: f64 = 0.001;

#[derive(Serialize)]
struct Facts {
    worlds: Vec<Maps>,
}

#[derive(Serialize)]
struct Maps {
    world: &'static str,
    note: String,
    /// Whether replies of earlier turns are found that the router could not know.
    replies: bool,
    maps: Vec<Map>,
}

#[derive(Serialize)]
struct Map {
    name: String,
    caption: String,
    #[serde(skip)]
    replies: bool,
    chart: Value,
}

/// The requests of a run about which the router believed something.
#[derive(Debug, PartialEq)]
struct Beliefs {
    /// `counts[predicted][found]`.
    counts: Vec<[u64; BINS]>,
    requests: u64,
    /// Of all prompt tokens: promised and not found, found and not promised.
    over: f64,
    under: f64,
    /// What of the latter is no more than the replies to earlier turns.
    replies: f64,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let of_world = |world: World| {
        let maps: Vec<Map> = view.shown(world).into_iter().filter_map(|variant| map(view, variant)).collect();
        let replies = maps.iter().any(|map| map.replies);
        Maps { world: world.label(), note: view.caveat(world), replies, maps }
    };
    let worlds: Vec<Maps> =
        view.worlds().into_iter().map(of_world).filter(|maps| !maps.maps.is_empty()).collect();
    if worlds.is_empty() {
        return Ok(None);
    }
    fill("belief.html", include_str!("../templates/belief.html"), Facts { worlds }).map(Some)
}

fn map(view: &View<'_>, variant: &Variant<'_>) -> Option<Map> {
    let beliefs = Beliefs::of(view.typical(variant))?;
    let name = view.name(variant);
    let replies = beliefs.replies >= LEAST_REPLIES;
    let of_these = match replies {
        true => format!(" ({} % replies to earlier turns)", percent(beliefs.replies)),
        false => String::new(),
    };
    let caption = format!(
        "{} requests; {} % of their prompt tokens were promised and not found, {} % found and not promised{of_these}",
        grouped(beliefs.requests as f64),
        percent(beliefs.over),
        percent(beliefs.under)
    );
    let title = format!("{name}: predicted and actual hit rate of each request");
    Some(Map { chart: markup(beliefs.svg(&title, &caption)), name, caption, replies })
}

impl Beliefs {
    fn of(run: &Run) -> Option<Self> {
        let counts = vec![[0; BINS]; BINS];
        let mut beliefs = Self { counts, requests: 0, over: 0.0, under: 0.0, replies: 0.0 };
        let mut tokens = 0;
        let mut unseen = Unseen::default();
        for record in run.records.iter().filter(|r| r.succeeded()) {
            beliefs.replies += unseen.found(record) as f64;
            let Some((predicted, found)) = shares(record) else { continue };
            let bin = |share: f64| ((share * BINS as f64) as usize).min(BINS - 1);
            beliefs.counts[bin(predicted)][bin(found)] += 1;
            beliefs.requests += 1;
            tokens += record.prompt_tokens;
            let length = record.prompt_tokens as f64;
            beliefs.over += (predicted - found).max(0.0) * length;
            beliefs.under += (found - predicted).max(0.0) * length;
        }
        beliefs.over /= tokens.max(1) as f64;
        beliefs.under /= tokens.max(1) as f64;
        beliefs.replies /= tokens.max(1) as f64;
        (beliefs.requests > 0).then_some(beliefs)
    }

    /// Shades by the logarithm of the count: most requests are alike, and the few others are what matters.
    fn svg(&self, title: &str, description: &str) -> String {
        let most = self.counts.iter().flatten().max().copied().unwrap_or(1).max(1) as f64;
        let mut paths = vec![String::new(); LEVELS];
        for (x, column) in self.counts.iter().enumerate() {
            for (y, count) in column.iter().enumerate().filter(|(_, count)| **count > 0) {
                let share = (1.0 + *count as f64).ln() / (1.0 + most).ln();
                let level = ((share * LEVELS as f64).ceil() as usize).clamp(1, LEVELS) - 1;
                paths[level].push_str(&format!("M{x} {}h1v1h-1z", BINS - 1 - y));
            }
        }
        let drawn = paths.iter().enumerate().filter(|(_, path)| !path.is_empty());
        let shades: String =
            drawn.map(|(level, path)| format!("<path class=\"h{}\" d=\"{path}\"/>", level + 1)).collect();
        format!(
            "<svg class=\"heat\" viewBox=\"0 0 {BINS} {BINS}\" preserveAspectRatio=\"none\" role=\"img\">\
             <title>{}</title><desc>{}</desc>{shades}<path class=\"diagonal\" d=\"M0 {BINS}L{BINS} 0\"/></svg>",
            escape(title),
            escape(description)
        )
    }
}

/// The tokens of replies, by session, that no prompt has repeated yet.
#[derive(Debug, Default)]
struct Unseen {
    tokens: BTreeMap<u64, u64>,
}

impl Unseen {
    /// What a request found and the router had not promised, as far as it can be replies. Requests of a session come in their
    /// order.
    fn found(&mut self, record: &RequestRecord) -> u64 {
        let Some(session) = record.session else { return 0 };
        let unseen = self.tokens.entry(session).or_default();
        let known = std::mem::replace(unseen, record.output_tokens);
        let predicted = record.predicted_cached_tokens.unwrap_or(u64::MAX);
        record.cached_tokens.saturating_sub(predicted).min(known)
    }
}

/// Predicted and found share of a prompt.
fn shares(record: &RequestRecord) -> Option<(f64, f64)> {
    let length = record.prompt_tokens.max(1) as f64;
    let share = |tokens: u64| (tokens as f64 / length).min(1.0);
    Some((share(record.predicted_cached_tokens?), share(record.cached_tokens)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::{record, run};

    #[test]
    fn requests_are_where_promise_and_finding_meet() {
        let records = vec![
            record(0).tokens(100, 50, 1).predicted(50).build(),
            record(1).tokens(100, 0, 1).predicted(100).build(),
            record(2).tokens(200, 100, 1).predicted(0).build(),
            record(3).tokens(100, 10, 1).build(),
        ];
        let beliefs = Beliefs::of(&run("cache_aware", records)).unwrap();
        assert_eq!((beliefs.requests, beliefs.over, beliefs.under), (3, 0.25, 0.25));
        assert_eq!((beliefs.counts[10][10], beliefs.counts[19][0], beliefs.counts[0][10]), (1, 1, 1));
        let svg = beliefs.svg("t", "d");
        assert!(svg.contains("M10 9h1v1h-1z") && svg.contains("M19 19h1v1h-1z"), "{svg}");
        assert!(Beliefs::of(&run("random", vec![record(0).build()])).is_none());
    }

    #[test]
    fn replies_that_no_prompt_has_repeated_are_told_apart() {
        let turn = |seq, session, turn| record(seq).turn(session, turn);
        let records = vec![
            turn(0, 7, 0).tokens(100, 0, 30).predicted(0).build(),
            turn(1, 8, 0).tokens(100, 60, 40).predicted(60).build(),
            // 29 of the 30 tokens of the reply, and 11 of another prompt.
            turn(2, 7, 1).tokens(200, 129, 50).predicted(100).build(),
            turn(3, 8, 1).tokens(200, 151, 5).predicted(100).build(),
            turn(4, 7, 2).tokens(400, 100, 5).predicted(250).build(),
        ];
        let beliefs = Beliefs::of(&run("cache_aware", records)).unwrap();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        close(beliefs.under, 80.0 / 1000.0);
        close(beliefs.replies, (29.0 + 40.0) / 1000.0);
        close(beliefs.over, 150.0 / 1000.0);
        let alone = vec![record(0).tokens(100, 50, 30).predicted(0).build()];
        close(Beliefs::of(&run("cache_aware", alone)).unwrap().replies, 0.0);
    }
}
