use std::path::Path;

use super::*;
use crate::scenario::testing::{load_text, small};

fn template(rate: &str, ttft: &str, more: &str) -> Template {
    let tables = format!(
        "[arrival]\nkind = \"poisson\"\nrate = {rate}\n[fleet]\nworkers = 1\n[router]\npolicies = [\"random\", \"power_of_two\"]\n\
         [slo]\nttft = \"{ttft}\"\ntpot = \"500ms\"\n{more}"
    );
    Template::of(Path::new("t.toml"), small("", &tables), &[], None, None).unwrap()
}

fn found(template: &Template) -> Vec<Capacity> {
    run(template, Question { attainment: 0.99, seeds: None, quiet: true }).unwrap().1
}

#[test]
fn objectives_that_nothing_meets_are_unreachable_from_wherever_the_search_begins() {
    for rate in ["1e-6", "0.001", "10.0", "1e6"] {
        for of in found(&template(rate, "1ms", "")) {
            assert_eq!((of.verdict, of.highest), (Verdict::Unreachable, None), "{rate}: {of:#?}");
            let cause = of.cause.unwrap();
            assert!(cause.starts_with("even an idle fleet meets them for 0.00 % only (at "), "{cause}");
            assert!(cause.contains("100.00 % of the requests have a TTFT above 1 ms"), "{cause}");
        }
    }
}

#[test]
fn objectives_that_everything_meets_end_at_the_highest_rate() {
    for rate in ["1e-6", "300.0", "1e6"] {
        for of in found(&template(rate, "1h", "")) {
            assert_eq!(
                (of.verdict, of.highest, of.exceeded_at),
                (Verdict::MoreThan, Some(1e6), None),
                "{rate}"
            );
            assert_eq!(of.cause, None);
        }
    }
}

#[test]
fn a_schedule_that_would_be_too_long_ends_the_search() {
    // A thousand requests at the lowest rate would take 32 years.
    let text = template("0.5", "1h", "").source().replace("groups = 2", "groups = 500");
    let template = Template::of(Path::new("t.toml"), text, &[], None, None).unwrap();
    let dial = Dial::of(&template).unwrap().0;
    let mut bisection = Bisection::new(0.5, dial.range.clone());
    while let Some(at) = bisection.next().filter(|at| *at > 2e-6) {
        bisection.tell(at, false, false);
    }
    assert!(bisection.next().is_some());
    let mut searches = [Search { bisection, points: Vec::new() }];
    assert!(possible(&template, &dial, &mut searches).is_empty() && searches[0].bisection.next().is_none());
}

#[test]
fn a_schedule_that_is_over_before_queues_build_up_is_told() {
    let scenario = load_text(template("9.0", "2s", "").source(), &[]).unwrap();
    let caveat = |makespan_s| {
        let mut point = Point::of(5.0, &[Seen::default()], 0.0);
        point.makespan_s = makespan_s;
        let of = Capacity {
            policy: "random".into(),
            verdict: Verdict::MoreThan,
            highest: Some(5.0),
            exceeded_at: None,
            cause: None,
            points: vec![point],
        };
        super::caveat(&scenario, &[of])
    };
    assert_eq!(caveat(20.5), None);
    let told = caveat(19.5).unwrap();
    assert!(told.contains("random was done after 19.5 s"), "{told}");
}
