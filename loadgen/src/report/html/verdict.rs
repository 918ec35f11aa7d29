//! The banner: what came out, in sentences.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::assertion::{AssertOutcome, Verdict};
use super::super::best::{self, RULE, baseline_policy, best, best_among};
use super::super::experiment::Conclusion;
use super::super::format::{figure, grouped, trimmed};
use super::super::margin;
use super::super::sides::meetings;
use super::super::stats::Spread;
use super::super::variant::{Variant, contests};
use super::template::fill;
use super::view::View;
use crate::run::World;

/// Most amounts of work whose best policy, or whose better fleet, is told.
const MOST_FINDINGS: usize = 6;
/// Most warnings that are not folded; what is said of void runs never is.
const MOST_WARNINGS: usize = 4;
/// Most failed asserts that are shown.
const MOST_BROKEN: usize = 40;

#[derive(Serialize)]
struct Banner<'a> {
    state: &'static str,
    mark: &'static str,
    headline: String,
    validity: Validity<'a>,
    findings: Vec<Finding>,
    /// What the answer to a question of their own costs.
    found: Option<&'a Conclusion>,
    failures: String,
    /// Whether the page has samples of failures.
    failed: bool,
    /// The asserts that fail, as many as are shown, and how many more there are.
    broken: Vec<Claim<'a>>,
    untold: usize,
    /// The asserts that do not.
    outcomes: Vec<Claim<'a>>,
    rules: Vec<String>,
}

/// Whether what was measured can be relied upon.
#[derive(Serialize)]
struct Validity<'a> {
    /// One sentence on all runs; empty where the others say it.
    text: String,
    /// What is said against them, each under its word: the first ones, and those that are folded.
    remarks: Vec<(&'static str, &'a str)>,
    more: Vec<(&'static str, &'a str)>,
}

#[derive(Serialize)]
struct Finding {
    world: &'static str,
    /// What it is about; may be empty.
    lead: String,
    text: String,
    #[serde(skip)]
    rule: Rule,
}

/// What a finding goes by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Best,
    Margin,
    None,
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
    let findings: Vec<Finding> = view.worlds().into_iter().flat_map(|world| findings(view, world)).collect();
    let (state, mark, headline) = headline(view);
    let (broken, others): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.failed());
    let banner = Banner {
        state,
        mark,
        headline,
        validity: validity(view),
        rules: rules(&findings),
        findings,
        found: view.experiment.about().conclusion.as_ref().filter(|found| !found.before_after.is_empty()),
        failures: failures(view),
        failed: totals(view).1 > 0 && view.experiment.runs().iter().any(|run| !run.records.is_empty()),
        untold: broken.len().saturating_sub(MOST_BROKEN),
        broken: broken.into_iter().take(MOST_BROKEN).map(claim).collect(),
        outcomes: others.into_iter().map(claim).collect(),
    };
    fill("verdict.html", include_str!("../templates/verdict.html"), banner)
}

fn validity<'v>(view: &'v View<'_>) -> Validity<'v> {
    let all = view.experiment.remarks().into_iter();
    let mut remarks: Vec<(&str, &str)> =
        all.flat_map(|(word, texts)| texts.iter().map(move |text| (word, text.as_str()))).collect();
    let worlds = view.worlds();
    let text = match worlds[..] {
        _ if !remarks.is_empty() || worlds.is_empty() => String::new(),
        [World::Virtual] => {
            "In virtual time no generator can be late, and equal seeds give equal results.".to_owned()
        }
        _ => "No live run was held back by the load generator.".to_owned(),
    };
    let shown = remarks.len().min(view.experiment.invalid().len() + MOST_WARNINGS);
    let more = remarks.split_off(shown);
    Validity { text, remarks, more }
}

fn rules(findings: &[Finding]) -> Vec<String> {
    let is_used = |rule| findings.iter().any(|finding| finding.rule == rule);
    let best = is_used(Rule::Best).then(|| format!("“Best” is the {RULE}."));
    let margin = is_used(Rule::Margin).then(|| margin::RULE.to_owned());
    best.into_iter().chain(margin).collect()
}

fn headline(view: &View<'_>) -> (&'static str, &'static str, String) {
    let outcomes = view.experiment.outcomes();
    match view.experiment.invalid().len() {
        0 => {}
        1 => return ("bad", "✗", "A run is invalid: the load generator was the bottleneck".to_owned()),
        runs => {
            return ("bad", "✗", format!("{runs} runs are invalid: the load generator was the bottleneck"));
        }
    }
    let (requests, failed) = totals(view);
    if requests > 0 && failed == requests {
        return ("bad", "✗", "Every request failed".to_owned());
    }
    let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    let (held, failed) = (count(Verdict::Held), count(Verdict::Failed));
    match (held, failed) {
        (_, 1..) => {
            let verb = if failed == 1 { "fails" } else { "fail" };
            ("bad", "✗", format!("{failed} of {} asserts {verb}", held + failed))
        }
        _ if !view.experiment.disturbed().is_empty() => {
            ("plain", "•", "Something else had the machine: live runs cannot be compared".to_owned())
        }
        (1, 0) => ("good", "✓", "The assert holds".to_owned()),
        (2.., 0) => ("good", "✓", format!("All {held} asserts hold")),
        (0, 0) => {
            let found = view.experiment.about().conclusion.as_ref();
            let text = found.map_or("No asserts were checked", |found| &found.headline);
            ("plain", "•", text.to_owned())
        }
    }
}

fn claim(outcome: &AssertOutcome) -> Claim<'_> {
    let (state, word) = match outcome.verdict {
        Verdict::Held => ("good", "holds"),
        Verdict::Failed => ("bad", "fails"),
        Verdict::NotChecked => ("plain", "not checked"),
        Verdict::NotJudged => ("plain", "not judged"),
    };
    Claim { state, word, claim: &outcome.claim, finding: &outcome.finding }
}

/// What was asked of the runs, if it was a question of their own. Otherwise: which fleet is better at what under every demand that
/// several met; and which policy is best in a world, and by how much, once for every amount of work. As far as they can be read.
fn findings(view: &View<'_>, world: World) -> Vec<Finding> {
    if let Some(found) = &view.experiment.about().conclusion {
        let (lead, text) = (String::new(), found.reasons.clone());
        return vec![Finding { world: world.label(), lead, text, rule: Rule::None }];
    }
    if let Some(why) = view.experiment.undecided(world) {
        let text = format!("nobody is called best, for {why}.");
        return vec![Finding { world: world.label(), lead: String::new(), text, rule: Rule::None }];
    }
    let mut findings: Vec<Finding> = meetings(&view.variants, world)
        .iter()
        .take(MOST_FINDINGS)
        .map(|meeting| Finding {
            world: world.label(),
            lead: if meeting.demand.is_empty() { String::new() } else { format!("At {}:", meeting.demand) },
            text: meeting.verdict(&view.variants),
            rule: Rule::Margin,
        })
        .collect();
    let contests = contests(&view.variants, world);
    let alone = contests.iter().all(|contest| contest.len() == 1);
    if !alone || findings.is_empty() {
        findings.extend(champions(view, world, contests));
    }
    findings
}

fn champions(view: &View<'_>, world: World, contests: Vec<Vec<usize>>) -> Vec<Finding> {
    if contests.len() > 1 && contests.iter().all(|contest| contest.len() == 1) {
        let text = format!(
            "{} settings, no two with the same work and fleet: see the swept settings.",
            contests.len()
        );
        return vec![Finding { world: world.label(), lead: String::new(), text, rule: Rule::None }];
    }
    let all = contests.len();
    let (level, decided): (Vec<_>, Vec<_>) =
        contests.into_iter().partition(|contest| all > 1 && is_level(view, contest));
    let mut findings: Vec<Finding> =
        decided.iter().take(MOST_FINDINGS).map(|contest| finding(view, contest)).collect();
    if !level.is_empty() {
        let text = format!(
            "for {} of {all} workloads and fleets the best setting is no better than the middle one.",
            level.len()
        );
        findings.push(Finding { world: world.label(), lead: String::new(), text, rule: Rule::None });
    }
    findings
}

fn finding(view: &View<'_>, contest: &[usize]) -> Finding {
    let variants = &view.variants;
    let first = &variants[contest[0]];
    let world = first.world.label();
    let Some(place) = best(variants, first) else {
        let text = match contest.len() {
            1 => format!("only {} was run, so there is nothing to compare.", view.label(first)),
            _ => "no request succeeded.".to_owned(),
        };
        return Finding { world, lead: String::new(), text, rule: Rule::None };
    };
    let champion = &variants[place];
    if best::is_level(variants, contest) {
        let text = format!(
            "all {} settings have the same throughput, hit rate and TTFT; {} is as good as any.",
            contest.len(),
            view.label(champion)
        );
        return Finding { world, lead: "No difference:".to_owned(), text, rule: Rule::Best };
    }
    let reference = reference(view, contest, champion);
    Finding {
        world,
        lead: format!("{} is best:", view.label(champion)),
        text: comparison(champion, &reference),
        rule: Rule::Best,
    }
}

/// Whether the best of a contest does not differ, in anything that would be told, from what it is compared with.
fn is_level(view: &View<'_>, contest: &[usize]) -> bool {
    let variants = &view.variants;
    let Some(champion) = best(variants, &variants[contest[0]]).map(|place| &variants[place]) else {
        return false;
    };
    let reference = reference(view, contest, champion);
    let same = |metric: &&str| champion.median(metric) == reference.median(metric);
    ["input_tok_s", "hit_rate", "ttft_ms.p50", "ttft_ms.p99"].iter().all(same)
}

/// What the best is compared with: one variant, or the middle of several.
struct Reference<'v> {
    name: String,
    variants: Vec<&'v Variant<'v>>,
}

impl Reference<'_> {
    fn median(&self, metric: &str) -> Option<f64> {
        Some(Spread::of(self.variants.iter().filter_map(|variant| variant.median(metric)))?.median)
    }
}

/// The best setting of the first policy; when that policy is best, of the best other one; and where a single policy ran,
/// the middle of its settings, for a neighbour in the sweep would tell nothing.
fn reference<'v>(view: &'v View<'_>, contest: &[usize], champion: &Variant<'_>) -> Reference<'v> {
    let variants = &view.variants;
    let others = contest.iter().copied().filter(|place| variants[*place].policy != champion.policy);
    let baseline = baseline_policy(variants, champion.world);
    let of_baseline = others.clone().filter(|place| baseline == Some(variants[*place].policy));
    let first = best_among(variants, of_baseline.collect());
    match first.or_else(|| best_among(variants, others.collect())) {
        Some(place) => {
            let role = if first.is_some() { "" } else { ", the runner-up" };
            let name = format!("{}{role}", view.label(&variants[place]));
            Reference { name, variants: vec![&variants[place]] }
        }
        None => {
            let name = format!("the median of the {} settings", contest.len());
            Reference { name, variants: contest.iter().map(|place| &variants[*place]).collect() }
        }
    }
}

fn comparison(champion: &Variant<'_>, reference: &Reference<'_>) -> String {
    let pair = |name: &str| Some((champion.median(name)?, reference.median(name)?));
    let mut parts = Vec::new();
    if let Some((ours, theirs)) = pair("input_tok_s").filter(|p| p.1 > 0.0) {
        parts.push(format!(
            "{:.2}× the input throughput of {} ({} against {} tok/s)",
            ours / theirs,
            reference.name,
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

/// Requests and failures of all runs.
fn totals(view: &View<'_>) -> (u64, u64) {
    let totals = view.variants.iter().map(Variant::requests_and_failed);
    totals.fold((0, 0), |(r, f), (a, b)| (r + a, f + b))
}

fn failures(view: &View<'_>) -> String {
    let (requests, failed) = totals(view);
    let left = view.variants.iter().map(Variant::left).sum();
    match (requests, failed) {
        (0, _) => "No request was made.".to_owned(),
        (_, 0) if left == 0 => format!("All {} requests succeeded.", grouped(requests as f64)),
        (_, 0) => format!("No request failed{}.", left_words(left)),
        _ => {
            let percent = trimmed(failed as f64 / requests as f64 * 100.0, 2);
            let percent = if percent == "0" { "under 0.01".to_owned() } else { percent };
            let (failed, requests) = (grouped(failed as f64), grouped(requests as f64));
            format!("{failed} of {requests} requests failed ({percent} %){}.", left_words(left))
        }
    }
}

/// Requests that nobody failed, for their clients left.
fn left_words(left: u64) -> String {
    match left {
        0 => String::new(),
        1 => "; one client left before its answer".to_owned(),
        _ => format!("; {} clients left before their answers", grouped(left as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{self, record};
    use super::super::super::{About, BeforeAfter, Conclusion, Experiment};
    use super::super::render;

    #[test]
    fn a_question_of_their_own_decides_which_variant_is_best() {
        let experiment = experiment_of_two(Some(Conclusion {
            headline: "Leave it as it is".into(),
            reasons: "goodput is the same".into(),
            metric: Some("ttft_ms.p90"),
            columns: ["present", "best other"],
            before_after: vec![BeforeAfter {
                name: "TTFT p90 ms",
                before: "41.0".into(),
                after: "39.5".into(),
            }],
            ..Conclusion::default()
        }));
        let page = render(&experiment).unwrap();
        assert!(
            page.contains("</span> Leave it as it is</p>") && page.contains("goodput is the same"),
            "{page}"
        );
        assert!(!page.contains("is best:") && !page.contains("No asserts were checked"));
        let costs = "<th scope=\"row\">TTFT p90 ms</th><td>41.0</td><td>39.5</td>";
        assert!(page.contains("<th>best other</th>") && page.contains(costs), "{page}");
        let best = |page: &str| {
            let row = page.split("<tr class=\"champion\">").nth(1).unwrap();
            row.contains("random") && row.find("random") < row.find("bucket")
        };
        assert!(best(&page), "the first, though the second has the higher throughput");
        let page = render(&experiment_of_two(None)).unwrap();
        assert!(!page.contains("best other"));
        assert!(!best(&page) && page.contains("bucket is best:"));
    }

    /// Two variants, of which the second has the higher throughput.
    fn experiment_of_two(conclusion: Option<Conclusion>) -> Experiment {
        let one = |policy, last_ms| {
            fixture::run(policy, vec![record(0).tokens(100, 0, 1).first_ms(5).last_ms(last_ms).build()])
        };
        let about = About { conclusion, ..About::default() };
        Experiment::new(about, vec![one("random", 20), one("bucket", 10)], None, &[], serde_json::Value::Null)
    }
}
