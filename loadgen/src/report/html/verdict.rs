//! The banner: what came out, in sentences.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::assertion::{AssertOutcome, Verdict};
use super::super::best::{RULE, baseline, best, best_among};
use super::super::format::{figure, grouped, trimmed};
use super::super::variant::Variant;
use super::template::fill;
use super::view::View;
use crate::run::World;

#[derive(Serialize)]
struct Banner<'a> {
    state: &'static str,
    mark: &'static str,
    headline: String,
    findings: Vec<Finding>,
    failures: String,
    outcomes: Vec<Claim<'a>>,
    rule: Option<&'static str>,
}

#[derive(Serialize)]
struct Finding {
    world: &'static str,
    policy: String,
    text: String,
}

#[derive(Serialize)]
struct Claim<'a> {
    state: &'static str,
    word: &'static str,
    claim: &'a str,
    finding: &'a str,
}

pub(super) fn section(view: &View<'_>) -> Result<Value, Error> {
    let outcomes = view.experiment.outcomes();
    let findings: Vec<Finding> = view.worlds().into_iter().filter_map(|world| finding(view, world)).collect();
    let (state, mark, headline) = headline(outcomes);
    let banner = Banner {
        state,
        mark,
        headline,
        rule: findings.iter().any(|f| !f.policy.is_empty()).then_some(RULE),
        findings,
        failures: failures(view),
        outcomes: outcomes.iter().map(claim).collect(),
    };
    fill("verdict.html", include_str!("../templates/verdict.html"), banner)
}

fn headline(outcomes: &[AssertOutcome]) -> (&'static str, &'static str, String) {
    let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    let (held, failed) = (count(Verdict::Held), count(Verdict::Failed));
    match (held, failed) {
        (_, 1..) => {
            let verb = if failed == 1 { "fails" } else { "fail" };
            ("bad", "✗", format!("{failed} of {} asserts {verb}", held + failed))
        }
        (1, 0) => ("good", "✓", "The assert holds".to_owned()),
        (2.., 0) => ("good", "✓", format!("All {held} asserts hold")),
        (0, 0) => ("plain", "•", "No asserts were checked".to_owned()),
    }
}

fn claim(outcome: &AssertOutcome) -> Claim<'_> {
    let (state, word) = match outcome.verdict {
        Verdict::Held => ("good", "holds"),
        Verdict::Failed => ("bad", "fails"),
        Verdict::NotChecked => ("plain", "not checked"),
    };
    Claim { state, word, claim: &outcome.claim, finding: &outcome.finding }
}

/// Which policy is best in a world, and by how much.
fn finding(view: &View<'_>, world: World) -> Option<Finding> {
    let variants = &view.variants;
    let Some(place) = best(variants, world) else {
        let only = view.of_world(world).next()?;
        let text = match view.of_world(world).count() {
            1 => format!("only {} was run, so there is nothing to compare.", view.label(only)),
            _ => "no request succeeded.".to_owned(),
        };
        return Some(Finding { world: world.label(), policy: String::new(), text });
    };
    let champion = &variants[place];
    let against = baseline(variants, champion).filter(|v| v.policy != champion.policy);
    let others = || (0..variants.len()).filter(|p| variants[*p].world == world && *p != place).collect();
    let text = match against {
        Some(reference) => comparison(view, champion, reference, ""),
        None => comparison(view, champion, &variants[best_among(variants, others())?], ", the runner-up"),
    };
    Some(Finding { world: world.label(), policy: view.label(champion), text })
}

fn comparison(view: &View<'_>, champion: &Variant<'_>, reference: &Variant<'_>, role: &str) -> String {
    let pair = |name: &str| Some((champion.median(name)?, reference.median(name)?));
    let mut parts = Vec::new();
    if let Some((ours, theirs)) = pair("input_tok_s").filter(|p| p.1 > 0.0) {
        parts.push(format!(
            "{:.2}× the input throughput of {}{role} ({} against {} tok/s)",
            ours / theirs,
            view.label(reference),
            grouped(ours),
            grouped(theirs)
        ));
    }
    for (what, name, unit) in [
        ("hit rate", "hit_rate", "share"),
        ("TTFT p50", "ttft_ms.p50", "ms"),
        ("TTFT p99", "ttft_ms.p99", "ms"),
    ] {
        if let Some((ours, theirs)) = pair(name) {
            let rounded =
                |v: f64| if unit == "share" { format!("{:.1} %", v * 100.0) } else { figure(v, unit) };
            parts.push(format!("{what} {} against {}", rounded(ours), rounded(theirs)));
        }
    }
    format!("{}.", parts.join("; "))
}

fn failures(view: &View<'_>) -> String {
    let totals = view.variants.iter().map(Variant::requests_and_failed);
    let (requests, failed) = totals.fold((0, 0), |(r, f), (a, b)| (r + a, f + b));
    match (requests, failed) {
        (0, _) => "No request was made.".to_owned(),
        (_, 0) => format!("All {} requests succeeded.", grouped(requests as f64)),
        _ => {
            let percent = trimmed(failed as f64 / requests as f64 * 100.0, 2);
            let percent = if percent == "0" { "under 0.01".to_owned() } else { percent };
            let (failed, requests) = (grouped(failed as f64), grouped(requests as f64));
            format!("{failed} of {requests} requests failed ({percent} %).")
        }
    }
}
