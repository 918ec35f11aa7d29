//! What is said about the outcome: on the terminal and at the head of a report.

use std::fmt::Write as _;

use router_core::PolicyConfig;

use super::figures::OVERLOADED;
use super::{Challenger, Confirmation, LEAST_GAIN, Question, Side, Tuned, Verdict};
use crate::report::{self, BeforeAfter, Conclusion};
use crate::statistics::Interval;

/// The flags of `router` that are a policy with the options that were set.
#[must_use]
pub fn flags(policy: &PolicyConfig) -> String {
    let options = policy
        .overrides()
        .map(|(key, value)| format!(" --{} {}", key.replace('_', "-"), value.as_argument()));
    format!("--policy {}{}", policy.name(), options.collect::<String>())
}

/// The outcome as a terminal shows it.
#[must_use]
pub fn told(question: &Question, tuned: &Tuned) -> String {
    let found = &tuned.confirmation;
    let mut out = format!("{}\n", basis(question, tuned));
    let mut say = |line: &str| out.extend([line, "\n"]);
    match (&found.challenger, found.verdict) {
        (Some(best), Verdict::Change) => {
            say(&format!("recommended: {}", flags(&best.side.cell.policy)));
            say(&format!("expected: {}", gain(question, found, best)));
        }
        (best, _) => {
            say(&format!("leave it as it is: {}", reason(question, tuned)));
            say(&format!("present: {}", value(question, &found.present)));
            if let Some(best) = best {
                let setting = report::setting(&best.side.cell.policy);
                say(&format!("best other: {setting}: {}", gain(question, found, best)));
            }
        }
    }
    remarks(question, found).iter().for_each(|remark| say(remark));
    out + "\n" + &table(found)
}

/// What the outcome rests upon.
fn basis(question: &Question, tuned: &Tuned) -> String {
    let present = match tuned.present {
        1 => "the present one".to_owned(),
        policies => format!("the present ones of {policies} policies"),
    };
    let (count, name, unseen) = (tuned.drawn(), question.objective.name(), &tuned.confirmation.unseen);
    format!("{count} settings tried for {name}, beside {present}; confirmed on {unseen}")
}

/// Why it is so, in a few words.
#[must_use]
pub fn reason(question: &Question, tuned: &Tuned) -> String {
    let (found, name) = (&tuned.confirmation, question.objective.name());
    let best = found.challenger.as_ref();
    let is_better = best.and_then(|best| best.interval).is_some_and(|interval| interval.low > 0.0);
    let reason = match found.verdict {
        Verdict::Change => format!("{name} gets better by more than chance"),
        Verdict::Small => format!("the gain is below {} %", LEAST_GAIN * 100.0),
        Verdict::Noise if best.is_some_and(|best| best.gain < 0.0) => {
            "what was best in the search is no better on what it has not seen".to_owned()
        }
        Verdict::Noise => "the gain of the best other setting is within noise".to_owned(),
        Verdict::Unbeaten if is_better => {
            "no other setting was better in the search, though one is on what it has not seen: try more --seeds".to_owned()
        }
        Verdict::Unbeaten => "no other setting was better in the search".to_owned(),
        Verdict::Equal => format!("none of the {} other settings changes {name}", tuned.tried.len() - 1),
    };
    if found.verdict != Verdict::Change && found.present.shares == Some(false) {
        return format!("{reason}; no prompt shares a prefix with another, so caches cannot help");
    }
    reason
}

/// What else has to be known.
fn remarks(question: &Question, found: &Confirmation) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(best) = found.challenger.as_ref().filter(|best| !best.put_back.is_empty()) {
        remarks.push(format!("put back, as it is no better with them: {}", best.put_back.join(", ")));
    }
    if !found.others.is_empty() {
        let values: Vec<String> = found.others.iter().map(|side| value(question, side)).collect();
        remarks.push(format!("the best of other policies: {}", values.join("; ")));
    }
    if let Some(share) = found.advised().figures.waiting_share.filter(|share| *share > OVERLOADED) {
        remarks.push(format!(
            "the fleet is overloaded by this load: {:.0} % of the time to first token of the slowest tenth is waiting; more \
             workers would help more than any setting",
            share * 100.0
        ));
    }
    remarks
}

/// A setting and its figure.
fn value(question: &Question, side: &Side) -> String {
    let objective = question.objective;
    format!("{}: {} {}", report::setting(&side.cell.policy), objective.name(), objective.figure(side.value))
}

/// The gain in words: `hit_rate 40 % -> 44 %: 10.0 % better (95 % interval 8.1 % to 12.0 %)`.
pub(super) fn gain(question: &Question, found: &Confirmation, best: &Challenger) -> String {
    let objective = question.objective;
    let interval = match best.interval {
        Some(Interval { low, high }) => format!("95 % interval {} % to {} %", percent(low), percent(high)),
        None => "no interval: too few observations".to_owned(),
    };
    let word = if best.gain < 0.0 { "worse" } else { "better" };
    format!(
        "{} {} -> {}: {} % {word} ({interval})",
        objective.name(),
        objective.figure(found.present.value),
        objective.figure(best.side.value),
        percent(best.gain.abs()),
    )
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// What the best other setting is called at the head of a column.
fn best_heading(found: &Confirmation) -> &'static str {
    if found.verdict == Verdict::Change { "recommended" } else { "best other" }
}

/// The figures beside the objective, before and after.
fn before_after(found: &Confirmation) -> Vec<BeforeAfter> {
    let after = found.challenger.as_ref().map(|best| best.side.figures.rows());
    let after = |place: usize| after.as_ref().map_or_else(|| "-".to_owned(), |rows| rows[place].1.clone());
    let before = found.present.figures.rows().into_iter().enumerate();
    before.map(|(place, (name, before))| BeforeAfter { name, before, after: after(place) }).collect()
}

fn table(found: &Confirmation) -> String {
    let mut out = format!("{:<12}{:>12}{:>14}\n", "", "present", best_heading(found));
    for BeforeAfter { name, before, after } in before_after(found) {
        let _ = writeln!(out, "{name:<12}{before:>12}{after:>14}");
    }
    out
}

/// The same for the head of a report. What is to be used goes by the objective, whatever the report's own rule says.
#[must_use]
pub fn conclusion(question: &Question, tuned: &Tuned) -> Conclusion {
    let found = &tuned.confirmation;
    let name = question.objective.name();
    let setting = report::setting(&found.advised().cell.policy);
    let gain = found.challenger.as_ref().map(|best| gain(question, found, best));
    let (headline, mut reasons) = match found.verdict {
        Verdict::Change => (format!("Recommended for {name}: {setting}"), Vec::new()),
        _ => {
            let present = value(question, &found.present);
            (format!("For {name}, leave it as it is"), vec![reason(question, tuned), present])
        }
    };
    let best = found.challenger.as_ref().filter(|_| found.verdict != Verdict::Change);
    let best = best.map(|best| format!("best other: {}: ", report::setting(&best.side.cell.policy)));
    reasons.extend(gain.map(|gain| best.unwrap_or_default() + &gain));
    reasons.push(basis(question, tuned));
    reasons.extend(remarks(question, found));
    if found.is_part {
        reasons.push(
            "the table of policies is over all rows of the trace, the verdict over its later half".to_owned(),
        );
    }
    Conclusion {
        headline,
        reasons: reasons.join("; ") + ".",
        chosen: if found.verdict == Verdict::Change { found.present.runs.len() } else { 0 },
        metric: Some(question.objective.metric()),
        columns: ["present", best_heading(found)],
        before_after: before_after(found),
    }
}
