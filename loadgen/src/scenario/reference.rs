//! The list of all keys in `scenarios/README.md` is complete and tells the defaults as they are.

use super::testing::load_text;
use super::{arrival, faults, fleet, resolve, router, slo, target, workload, *};
use crate::run::Params;

/// The block of TOML that lists every key.
fn reference() -> &'static str {
    let readme = include_str!("../../../scenarios/README.md");
    readme.split("```toml\n").nth(1).unwrap().split("```").next().unwrap()
}

/// The lines of the table under `heading`, without the heading.
fn table(heading: &str) -> Vec<&'static str> {
    let mut lines = reference().lines().skip_while(|line| !line.starts_with(heading));
    assert!(lines.next().is_some(), "{heading}");
    lines.take_while(|line| !line.starts_with('[')).collect()
}

/// The reference without what it calls optional: keys that are not required, and whole tables.
fn least() -> String {
    let mut wanted = true;
    let mut text = String::new();
    for line in reference().lines() {
        if line.starts_with('[') {
            wanted = !line.contains("# optional");
        }
        if wanted && (line.starts_with('[') || line.contains("# required")) && !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// `text`, in which the table under `heading` is of another kind: that which is commented out in the reference.
fn of_kind(text: &str, heading: &str, kind: &str, keep: impl Fn(&str) -> bool) -> String {
    let kind = format!("# kind = \"{kind}\"");
    let other = table(heading).into_iter().skip_while(|line| !line.starts_with(&kind));
    let mut own: Vec<&str> = other.map_while(|line| line.strip_prefix("# ")).collect();
    let next = own.iter().skip(1).position(|line| line.starts_with("kind")).map_or(own.len(), |at| at + 1);
    own.truncate(next);
    assert!(!own.is_empty(), "{kind}");
    let (before, rest) = text.split_once(heading).unwrap();
    let after = rest.find("\n[").map_or("", |at| &rest[at..]);
    let kept: Vec<&str> = own.into_iter().filter(|line| line.starts_with("kind") || keep(line)).collect();
    format!("{before}{heading}\n{}\n{after}", kept.join("\n"))
}

/// As [`load_text`], where the small trace is.
fn load_beside_the_trace(text: &str) -> Scenario {
    let text = text.replace(
        "mooncake_small.jsonl",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/mooncake_small.jsonl"),
    );
    load_text(&text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn every_key_is_listed() {
    let names = |heading: &str| -> Vec<&str> {
        let lines = table(heading).into_iter().map(|line| line.trim_start_matches("# "));
        lines.filter_map(|line| Some(line.split_once(" = ")?.0)).collect()
    };
    let kinds =
        |kinds: &[section::Kind]| -> Vec<&str> { kinds.iter().flat_map(|kind| kind.1).copied().collect() };
    for (heading, keys) in [
        ("[workload]", kinds(workload::KINDS)),
        ("[arrival]", kinds(arrival::KINDS)),
        ("[fleet]", fleet::KEYS.to_vec()),
        ("[router]", router::KEYS.iter().copied().filter(|key| *key != "options").collect()),
        ("[faults]", faults::KEYS.to_vec()),
        ("[live]", router::LIVE.to_vec()),
        ("[slo]", slo::KEYS.to_vec()),
        ("[[assert]]", slo::ASSERT_KEYS.to_vec()),
        ("[[target]]", target::KEYS.to_vec()),
    ] {
        let listed = names(heading);
        for key in keys {
            assert!(listed.contains(&key), "{heading} {key}");
        }
    }
    for key in resolve::KEYS {
        let starts = [format!("{key} = "), format!("[{key}]"), format!("[[{key}]]")];
        assert!(reference().lines().any(|line| starts.iter().any(|s| line.starts_with(s))), "{key}");
    }
    for (heading, kinds) in [("[workload]", workload::KINDS), ("[arrival]", arrival::KINDS)] {
        for (kind, _) in kinds {
            assert!(
                table(heading).iter().any(|l| l.contains(&format!("kind = \"{kind}\""))),
                "{heading} {kind}"
            );
        }
    }
    for line in reference().lines().filter(|line| line.contains(" = ")) {
        assert!(
            line.contains("  # ") || line.starts_with("\"router") || line.starts_with("cache_t"),
            "{line}"
        );
    }
}

#[test]
fn the_reference_is_a_scenario() {
    let scenario = load_text(reference(), &[("mode", "both")]).unwrap();
    let cells = scenario.cells();
    // In both worlds one cell for the policy without swept options, two for cache_aware; live, one for the target.
    assert_eq!(cells.len(), 2 * (1 + 2) + 1);
    assert_eq!(cells[0].params, Params::new());
    assert_eq!(cells[1].params, Params::from([("cache_threshold".to_owned(), 0.1.into())]));
    assert!(cells.iter().all(|cell| cell.scenario.fleet == scenario.fleet), "[live] shows the defaults");
    assert_eq!(scenario.slo.map(|slo| (slo.ttft_ns, slo.tpot_ns)), Some((2_000_000_000, 50_000_000)));
    assert_eq!(scenario.asserts.len(), 1);
}

#[test]
fn every_default_is_the_default() {
    let full = load_text(reference(), &[]).unwrap();
    let least = load_text(&least(), &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(least.workload, full.workload);
    assert_eq!(least.arrival, full.arrival);
    assert_eq!(least.fleet, full.fleet);
    assert_eq!(least.routing, full.routing);
    assert_eq!((&least.faults, full.faults.any()), (&full.faults, false));
    assert_eq!(least.description, full.description);
    assert_eq!((least.seed, least.repeats, least.mode), (full.seed, full.repeats, full.mode));
    assert!(least.slo.is_none() && least.asserts.is_empty());
    assert_eq!(least.cells().len(), 2);
}

#[test]
fn the_other_kinds_are_scenarios_with_the_same_defaults() {
    for (kind, expected) in [
        ("poisson", Arrival::Poisson { rate: 40.0 }),
        ("constant", Arrival::Constant { rate: 40.0 }),
        ("closed", Arrival::Closed { concurrency: 64 }),
    ] {
        let text = of_kind(&least(), "[arrival]", kind, |_| true);
        assert_eq!(load_text(&text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}")).arrival, expected);
    }
    for (kind, expected) in [
        ("gamma", Arrival::Gamma { rate: 40.0, burstiness: 0.25 }),
        ("ramp", Arrival::Ramp { from: 0.0, to: 40.0, over_ns: 60_000_000_000 }),
    ] {
        let text = of_kind(&least(), "[arrival]", kind, |_| true);
        assert_eq!(load_text(&text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}")).arrival, expected);
    }
    let of_trace = |keep: fn(&str) -> bool| {
        let text = of_kind(&least(), "[workload]", "trace", keep);
        load_beside_the_trace(&of_kind(&text, "[arrival]", "trace", |_| true))
    };
    let (full, least) = (of_trace(|_| true), of_trace(|line| line.contains("# required")));
    assert_eq!((full.arrival, least.arrival), (Arrival::Trace, Arrival::Trace));
    assert_eq!(full.workload, least.workload);
    for kind in ["independent", "prefix_tree", "chat", "agentic", "mix"] {
        let read = |keep: fn(&str) -> bool| {
            let text = of_kind(&self::least(), "[workload]", kind, keep);
            load_text(&text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
        };
        let full = read(|line| !line.contains("# no default"));
        assert_eq!(full.workload, read(|line| line.contains("# required")).workload, "{kind}");
    }
}
