//! Where the hit rate that was possible got lost: from a cache that forgets nothing to what the engines have reported.

use minijinja::{Error, Value};
use serde::Serialize;

use super::super::format::{grouped, percent};
use super::super::variant::Variant;
use super::template::fill;
use super::view::View;
use crate::run::{Reach, World};

#[derive(Serialize)]
struct Facts {
    worlds: Vec<Falls>,
}

#[derive(Serialize)]
struct Falls {
    world: &'static str,
    note: String,
    falls: Vec<Fall>,
}

#[derive(Serialize)]
struct Fall {
    name: String,
    colour: usize,
    caption: String,
    steps: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    name: &'static str,
    figure: String,
    /// What is lost from the step before, in points; empty for the first, and where nothing is.
    lost: String,
    /// Per mille of the bar: what is left, and where the step before ended.
    end: u32,
    before: u32,
}

pub(super) fn section(view: &View<'_>) -> Result<Option<Value>, Error> {
    let of_world = |world: World| Falls {
        world: world.label(),
        note: view.caveat(world),
        falls: view.shown(world).into_iter().filter_map(|variant| fall(view, variant)).collect(),
    };
    let worlds: Vec<Falls> =
        view.worlds().into_iter().map(of_world).filter(|falls| !falls.falls.is_empty()).collect();
    if worlds.is_empty() {
        return Ok(None);
    }
    fill("waterfall.html", include_str!("../templates/waterfall.html"), Facts { worlds }).map(Some)
}

fn fall(view: &View<'_>, variant: &Variant<'_>) -> Option<Fall> {
    // Where no prompt had anything in common with another, there is nothing to lose.
    let reach = view.typical(variant).reach.filter(|reach| reach.infinite > 0.0)?;
    let of = if reach.cut { "the first " } else { "" };
    Some(Fall {
        name: view.name(variant),
        colour: view.colour(variant),
        caption: format!("of the prompt tokens of {of}{} requests", grouped(reach.requests as f64)),
        steps: steps(reach),
    })
}

fn steps(reach: Reach) -> Vec<Step> {
    let shares = [
        ("one infinite cache", reach.infinite),
        ("one cache of the fleet's size", reach.fleet),
        ("the policy's placement", reach.policy),
        ("delivered", reach.delivered),
    ];
    let mut before = reach.infinite;
    let step = |(name, share): (&'static str, f64)| {
        let lost = before - share;
        let lost = match percent(lost.abs()) {
            none if none == "0.0" => String::new(),
            points if lost > 0.0 => format!("−{points}"),
            points => format!("+{points}"),
        };
        let mille = |share: f64| (share * 1000.0).round().clamp(0.0, 1000.0) as u32;
        let step = Step { name, figure: percent(share), lost, end: mille(share), before: mille(before) };
        before = share;
        step
    };
    shares.into_iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_tells_what_it_loses() {
        let reach =
            Reach { requests: 9, cut: false, infinite: 0.9, fleet: 0.9, policy: 0.5, delivered: 0.51 };
        let lost: Vec<String> = steps(reach).into_iter().map(|step| step.lost).collect();
        assert_eq!(lost, ["", "", "−40.0", "+1.0"]);
        let ends: Vec<(u32, u32)> = steps(reach).iter().map(|step| (step.before, step.end)).collect();
        assert_eq!(ends, [(900, 900), (900, 900), (900, 500), (500, 510)]);
    }
}
