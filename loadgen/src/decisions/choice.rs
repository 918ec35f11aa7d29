//! What a core chose, in the words of a recording.

use router::record::line::RoleName;
use router_core::prompt::CHARS_PER_TOKEN;
use router_core::{Assignment, NoPlan, Plan, PlanProposal};

use super::tally::Choice;

/// The legs of a plan with their roles, in the order of a recording.
pub(super) fn legs(plan: &Plan) -> Vec<(RoleName, Assignment)> {
    let answering = if plan.prefill.is_some() { RoleName::Decode } else { RoleName::Regular };
    let prefill = plan.prefill.iter().map(|leg| (RoleName::Prefill, *leg));
    prefill.chain([(answering, plan.decode)]).collect()
}

pub(super) fn choice(planned: &Result<Plan, NoPlan>) -> Choice {
    match planned {
        Err(no) => refusal(no),
        Ok(plan) => {
            let legs = legs(plan);
            let computing = legs.first().and_then(|(_, leg)| leg.predicted_cached_tokens);
            let reasons: Vec<_> = legs.iter().map(|(_, leg)| leg.reason.as_str()).collect();
            Choice {
                legs: legs.iter().map(|(role, leg)| (*role, leg.worker.0)).collect(),
                reason: reasons.join(" + "),
                predicted: computing.unwrap_or(0),
            }
        }
    }
}

fn refusal(no: &NoPlan) -> Choice {
    Choice { legs: Vec::new(), reason: format!("{}: {}", no.leg.label(), no.why), predicted: 0 }
}

/// What would be chosen for a prompt of `tokens`.
pub(super) fn proposal(proposed: &Result<PlanProposal, NoPlan>, tokens: u64) -> Choice {
    let PlanProposal { prefill, decode } = match proposed {
        Ok(proposal) => proposal,
        Err(no) => return refusal(no),
    };
    let answering = if prefill.is_some() { RoleName::Decode } else { RoleName::Regular };
    let legs: Vec<_> =
        prefill.iter().map(|leg| (RoleName::Prefill, leg)).chain([(answering, decode)]).collect();
    let reasons: Vec<_> = legs.iter().map(|(_, leg)| leg.reason.as_str()).collect();
    let matched = legs.first().map_or(0, |(_, leg)| leg.matched_chars);
    Choice {
        legs: legs.iter().map(|(role, leg)| (*role, leg.worker.0)).collect(),
        reason: reasons.join(" + "),
        predicted: (matched / CHARS_PER_TOKEN).min(tokens.saturating_sub(1)),
    }
}
