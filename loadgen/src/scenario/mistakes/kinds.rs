//! Mistakes in the kinds of `[workload]` and `[arrival]` that the good scenario does not have.

use super::super::testing::load_text;
use super::*;

const CHAT: &str = "kind = \"chat\"\nsessions = 4\nturns = 3\nquestion_tokens = 10\noutput_tokens = 5";
const TREE: &str = "kind = \"prefix_tree\"\nrequests = 9\nlevels = [{ fan_out = 2, tokens = 10 }]\nquestion_tokens = 10\n\
                    output_tokens = 5";
const AGENTIC: &str = "kind = \"agentic\"\nsessions = 4\nchildren = 3\nquestion_tokens = 10\noutput_tokens = 5\n\
                       child_tokens = 7";
const MIX: &str = "kind = \"mix\"\nrequests = 6\nparts = [{ kind = \"independent\", requests = 3, prompt_tokens = 5, \
                   output_tokens = 1 }, { weight = 1, kind = \"chat\", sessions = 3, turns = 2, question_tokens = 3, \
                   output_tokens = 3 }]";
const BURST: &str = "kind = \"burst\"\nover = \"1s\"";

/// A scenario with this workload from line 4 and this arrival.
fn load(workload: &str, arrival: &str) -> Result<Scenario, ScenarioError> {
    let text = format!(
        "schema = 1\nname = \"k\"\n[workload]\n{workload}\n[fleet]\nworkers = 2\n[router]\npolicies = [\"random\"]\n\
         [arrival]\n{arrival}\n"
    );
    load_text(&text, &[])
}

#[test]
fn mistakes_in_other_workloads_name_line_key_and_way_out() {
    for workload in [CHAT, TREE, AGENTIC, MIX] {
        load(workload, BURST).unwrap_or_else(|error| panic!("{error}"));
    }
    for (workload, from, to, line, key, says) in [
        (CHAT, "turns = 3", "turns = 0", 6, "workload.turns", "from 1 to 1000"),
        (CHAT, "turns = 3", "turns = 1000\nthink = \"2h\"", 7, "workload.think", "at most 1h"),
        (CHAT, "turns = 3", "turns = 3\nthink = 2", 7, "workload.think", "not a duration"),
        (
            CHAT,
            "turns = 3",
            "turns = 3\nthink = { zipf = { exponent = 1, max = \"3s\" } }",
            7,
            "workload.think.zipf",
            "not for spans of time",
        ),
        (
            CHAT,
            "turns = 3",
            "turns = 3\nthink = { exponential = 2 }",
            7,
            "workload.think.exponential",
            "duration",
        ),
        (
            CHAT,
            "turns = 3",
            "turns = 3\nsystem_prompts = 2",
            7,
            "workload.system_prompts",
            "give system_tokens",
        ),
        (CHAT, "turns = 3", "groups = 3", 6, "workload.groups", "belongs to kind = \"shared_prefix\""),
        (
            CHAT,
            "sessions = 4",
            "sessions = 9_000_000",
            6,
            "workload.turns",
            "sessions × most turns is 27000000",
        ),
        (
            TREE,
            "levels = [{ fan_out = 2, tokens = 10 }]",
            "levels = []",
            6,
            "workload.levels",
            "use 1 to 16 levels",
        ),
        (TREE, "fan_out = 2", "fan_out = 0", 6, "workload.levels.fan_out", "out of range"),
        (TREE, "fan_out = 2", "fanout = 2", 6, "workload.levels.fanout", "did you mean `fan_out`?"),
        (TREE, "tokens = 10 }]", "tokens = 0 }]", 6, "workload.levels.tokens", "out of range"),
        (AGENTIC, "children = 3", "children = 0", 6, "workload.children", "from 1 to 1000"),
        (AGENTIC, "child_tokens = 7", "join_tokens = 7", 3, "workload.child_tokens", "is missing"),
        (MIX, "requests = 6", "requests = 60", 6, "workload.parts", "and its share of 60 is 30"),
        (MIX, "weight = 1", "weight = 0", 6, "workload.parts.weight", "out of range"),
        (
            MIX,
            "kind = \"independent\"",
            "kind = \"trace\"",
            6,
            "workload.parts.kind",
            "\"trace\" is not known",
        ),
        (MIX, "requests = 3", "sessions = 3", 6, "workload.parts.sessions", "belongs to kind = \"chat\""),
    ] {
        assert_eq!(workload.matches(from).count(), 1, "{from}");
        let error = load(&workload.replace(from, to), BURST).expect_err(to).to_string();
        assert!(error.contains(&format!("s.toml:{line}: key `{key}`: ")), "{to:?}: {error}");
        assert!(error.contains(says), "{to:?}: {error}");
    }
}

#[test]
fn mistakes_in_other_arrivals_name_key_and_way_out() {
    for (arrival, key, says) in [
        ("kind = \"gamma\"\nrate = 3", "arrival.burstiness", "is missing"),
        ("kind = \"gamma\"\nrate = 3\nburstiness = 0", "arrival.burstiness", "out of range"),
        ("kind = \"ramp\"\nfrom = 1\nto = 0\nover = \"1s\"", "arrival.to", "out of range"),
        ("kind = \"ramp\"\nfrom = 1\nto = 2\nover = \"0s\"", "arrival.over", "is no span"),
        ("kind = \"ramp\"\nfrom = 1\nto = 2\nover = \"87601h\"", "arrival.over", "10.0 years is too long"),
        ("kind = \"servegen\"\npath = \"none.csv\"", "arrival.path", "none.csv cannot be read"),
        (
            "kind = \"burst\"\nover = \"1s\"\nburstiness = 2",
            "arrival.burstiness",
            "belongs to kind = \"gamma\"",
        ),
        ("kind = \"trace\"", "arrival.kind", "this workload has no recorded times"),
    ] {
        let error = load(CHAT, arrival).expect_err(arrival).to_string();
        assert!(error.contains(&format!("key `{key}`: ")) && error.contains(says), "{arrival:?}: {error}");
    }
}

#[test]
fn files_of_lengths_and_windows_are_found_beside_the_scenario() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let load = |lengths: &str| {
        std::fs::write(at("lengths.csv"), lengths).unwrap();
        std::fs::write(at("windows.csv"), "0,2,1,Gamma,0.5,1\n600,1,1,,0,0\n").unwrap();
        let workload =
            CHAT.replace("question_tokens = 10", "question_tokens = { empirical = \"lengths.csv\" }");
        let text = format!(
            "schema = 1\nname = \"k\"\n[workload]\n{workload}\n[fleet]\nworkers = 2\n[router]\npolicies = [\"random\"]\n\
             [arrival]\nkind = \"servegen\"\npath = \"windows.csv\"\nskip = \"100s\"\n"
        );
        std::fs::write(at("s.toml"), text).unwrap();
        super::super::load(&at("s.toml"), &[], None, None, None)
    };
    let scenario = load("5,1\n7\r\n\n9, 2").unwrap();
    let Workload::Chat(chat) = &scenario.workload else { panic!() };
    assert_eq!(chat.question_tokens, Spread::Empirical([(5, 1.0), (7, 1.0), (9, 2.0)].into()));
    let Arrival::Servegen { windows, .. } = &scenario.arrival else { panic!() };
    assert_eq!(windows.windows[0].length_ns, 500_000_000_000);
    for (lengths, says) in
        [("5,1\n0,1", ":2: \"0,1\" does not fit"), ("5,x", ":1: \"5,x\""), ("", "has no values")]
    {
        let error = load(lengths).unwrap_err().to_string();
        assert!(
            error.contains("key `workload.question_tokens.empirical`: ") && error.contains(says),
            "{error}"
        );
    }
}
