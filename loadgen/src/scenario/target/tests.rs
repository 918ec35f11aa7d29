use super::super::testing::{load_text, small};
use super::super::{Scenario, ScenarioError};
use super::*;
use crate::run::World;

const REST: &str = r#"[arrival]
kind = "burst"
over = "1s"
[fleet]
workers = 2
[router]
policies = ["round_robin", "cache_aware"]
"#;

fn target(lines: &str) -> Result<Scenario, ScenarioError> {
    load_text(&small("mode = \"both\"\n", &format!("{REST}[[target]]\n{lines}\n")), &[])
}

fn addresses() -> Addresses {
    let urls = |names: &[&str]| names.iter().map(|name| format!("http://{name}")).collect();
    Addresses {
        port: 8000,
        metrics_port: 9000,
        regular: urls(&["a", "b"]),
        prefill: vec![("http://p".into(), Some(7)), ("http://q".into(), None)],
        decode: urls(&["d"]),
        seed: 5,
    }
}

fn filled(command: &str) -> Vec<String> {
    let scenario = target(&format!("name = \"x\"\ncommand = {command}")).unwrap_or_else(|e| panic!("{e}"));
    let Source::Command(command) = &scenario.targets[0].source else { panic!() };
    command.filled(&addresses())
}

#[test]
fn a_list_that_stands_alone_becomes_several_arguments() {
    let words = filled(r#"["r", "--port", "{port}", "--urls", "{workers}", "--seed={seed}"]"#);
    assert_eq!(words, ["r", "--port", "8000", "--urls", "http://a", "http://b", "--seed=5"]);
    let words = filled(r#"["sh", "-c", "r {port} {workers} ${HOME}", "{worker_urls}", "m={metrics_port}"]"#);
    assert_eq!(words, ["sh", "-c", "r 8000 http://a http://b ${HOME}", "http://a,http://b", "m=9000"]);
}

#[test]
fn a_list_within_the_command_stands_there_for_every_worker() {
    let words = filled(
        r#"["r", "{port}", ["--prefill", "{prefill}", "{bootstrap}"], ["--decode={decode}"], ["-w", "{workers}"]]"#,
    );
    let expected = [
        "r",
        "8000",
        "--prefill",
        "http://p",
        "7",
        "--prefill",
        "http://q",
        "none",
        "--decode=http://d",
        "-w",
        "http://a",
        "-w",
        "http://b",
    ];
    assert_eq!(words, expected);
}

#[test]
fn targets_run_live_only_and_after_the_policies() {
    let scenario = target("name = \"x\"\ncommand = [\"r\", \"{port}\", \"{workers}\"]").unwrap();
    let of = |world| -> Vec<String> {
        let cells = scenario.cells().into_iter().filter(|cell| cell.world == world);
        cells.map(|cell| cell.router().to_owned()).collect()
    };
    assert_eq!(of(World::Virtual), ["round_robin", "cache_aware"]);
    assert_eq!(of(World::Live), ["round_robin", "cache_aware", "x"]);
}

#[test]
fn a_sweep_of_the_work_multiplies_targets_and_one_of_an_option_does_not() {
    let sweep =
        "[sweep]\n\"fleet.workers\" = [1, 2]\n\"router.options.cache_aware.cache_threshold\" = [0.1, 0.2]";
    let lines = format!("name = \"x\"\ncommand = [\"r\", \"{{port}}\", \"{{workers}}\"]\n{sweep}");
    let cells = target(&lines).unwrap().cells();
    let mine: Vec<u32> =
        cells.iter().filter(|c| c.target.is_some()).map(|c| c.scenario.fleet.workers).collect();
    assert_eq!(mine, [1, 2]);
}

#[test]
fn mistakes_name_place_key_and_remedy() {
    let good = "name = \"x\"\ncommand = [\"r\", \"{port}\", \"{workers}\"]";
    for (case, lines, words) in [
        ("no name", "command = [\"r\"]".to_owned(), &["s.toml:19", "target.name"][..]),
        ("a policy's", good.replace("\"x\"", "\"random\""), &["s.toml:20", "policy of our own"][..]),
        ("nothing to run", "name = \"x\"".to_owned(), &["target.command", "missing"][..]),
        ("both", format!("{good}\nurl = \"http://h:1\""), &["s.toml:22", "one of them"][..]),
        ("unknown", good.replace("{workers}", "{wrokers}"), &["s.toml:21", "{wrokers}", "`workers`"][..]),
        ("no port", good.replace("{port}", "1"), &["{port}"][..]),
        ("unknown workers", good.replace("{workers}", "w"), &["not told", "{workers}"][..]),
        ("no program", "name = \"x\"\ncommand = []".to_owned(), &["no program"][..]),
        ("no worker", good.replace("\"{workers}\"", "[\"-w\", \"x\"]"), &["names no worker"][..]),
        ("no address", "name = \"x\"\nurl = \"h:1\"".to_owned(), &["http://HOST:PORT"][..]),
        (
            "no ports",
            "name = \"x\"\nurl = \"http://h:1\"".to_owned(),
            &["worker_port", "must know our workers"][..],
        ),
        ("no path", format!("{good}\nready = \"up\""), &["target.ready", "begin it with /"][..]),
        (
            "the port of a command's workers",
            format!("{good}\nworker_port = 9"),
            &["target.worker_port", "{workers}"][..],
        ),
        (
            "an environment of what runs",
            "name = \"x\"\nurl = \"http://h:1\"\nworker_port = 9\nenv = { A = \"b\" }".to_owned(),
            &["target.env", "for a command"][..],
        ),
        (
            "not enough ports",
            "name = \"x\"\nurl = \"http://h:1\"\nworker_port = 65534".to_owned(),
            &["no ports for all workers", "lower worker_port"][..],
        ),
        (
            "two roles in one list",
            good.replace("\"{workers}\"", "\"{workers}\", [\"{prefill}\", \"{decode}\"]"),
            &["workers of two roles"][..],
        ),
        ("a typo", format!("{good}\nredy = \"/\""), &["s.toml:22", "`ready`"][..]),
        ("twice", format!("{good}\n[[target]]\n{good}"), &["twice"][..]),
    ] {
        let error = target(&lines).map(drop).expect_err(case).to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{case}: {error}");
    }
}

#[test]
fn a_target_must_know_the_workers_of_every_role() {
    let of = |target: &str| {
        let rest = REST.replace("workers = 2", "workers = 3\nprefill = 1\nregular = 1");
        load_text(&small("mode = \"live\"\n", &format!("{rest}[[target]]\nname = \"x\"\n{target}\n")), &[])
    };
    let words = ["{port}", "{workers}", "{prefill}", "{decode}"];
    let command = |left_out: &str| {
        let words: Vec<&str> = words.into_iter().filter(|word| *word != left_out).collect();
        format!("command = {:?}", [&["r"][..], &words].concat())
    };
    of(&command("")).unwrap();
    for left_out in &words[1..] {
        let error = of(&command(left_out)).map(drop).expect_err(left_out).to_string();
        assert!(error.contains("not told of some workers") && error.contains(left_out), "{error}");
    }
    let error = of("url = \"http://h:1\"\nworker_port = 9").unwrap_err().to_string();
    assert!(error.contains("start it by a command"), "{error}");
}

/// What is claimed about a target, or in comparison with one.
fn claim(lines: &str, set: &[(&str, &str)]) -> Result<Scenario, ScenarioError> {
    load_text(&claimed("hit_rate", lines), set)
}

fn claimed(metric: &str, lines: &str) -> String {
    let target = "[[target]]\nname = \"smg\"\ncommand = [\"r\", \"{port}\", \"{workers}\"]";
    let assert = format!("[[assert]]\nop = \">=\"\nvalue = 0.5\nmetric = \"{metric}\"");
    small("mode = \"both\"\n", &format!("{REST}{target}\n{assert}\n{lines}\n"))
}

#[test]
fn claims_may_be_about_targets_and_compare_with_them() {
    let one = |lines: &str| claim(lines, &[]).unwrap_or_else(|e| panic!("{e}")).asserts.remove(0);
    let about = one("policy = \"smg\"");
    assert_eq!((about.policy(), about.mode()), ("smg", Some(World::Live)));
    let versus = one("policy = \"cache_aware\"\nversus = \"smg\"");
    assert_eq!((versus.versus(), versus.mode()), (Some("smg"), Some(World::Live)));
    assert_eq!(one("policy = \"smg\"\nmode = \"both\"").mode(), Some(World::Live));
    let across =
        one("policy = \"cache_aware\"\nversus = \"smg\"\nmode = \"virtual\"\nversus_mode = \"live\"");
    assert_eq!(across.mode(), Some(World::Virtual));
    assert_eq!(one("policy = \"cache_aware\"").mode(), None, "the others hold in every world");
    let narrowed =
        claim("policy = \"smg\"\nversus = \"cache_aware\"", &[("router.policies", "[\"round_robin\"]")]);
    assert!(narrowed.unwrap().asserts.is_empty(), "cache_aware was not asked for");
}

#[test]
fn claims_about_unknown_or_impossible_targets_say_so() {
    let first = claimed("hit_rate", "").trim_end().lines().count() + 1;
    for (lines, below, words) in [
        (
            "policy = \"smgg\"",
            0,
            &["assert.policy", "neither a policy nor the name of a [[target]]", "`smg`"][..],
        ),
        ("policy = \"smg\"\nversus = \"sm\"", 1, &["assert.versus", "[[target]]", "`smg`"][..]),
        ("policy = \"smg\"\nmode = \"virtual\"", 1, &["assert.mode", "runs live only"][..]),
        (
            "policy = \"cache_aware\"\nversus = \"smg\"\nmode = \"virtual\"",
            2,
            &["assert.mode", "\"smg\"", "runs live only"][..],
        ),
        (
            "policy = \"smg\"\nmode = \"live\"\nversus_mode = \"virtual\"",
            2,
            &["assert.versus_mode", "runs live only"][..],
        ),
    ] {
        let error = claim(lines, &[]).unwrap_err().to_string();
        let line = first + below;
        assert!(error.contains(&format!("s.toml:{line}")), "{line}: {error}");
        words.iter().for_each(|word| assert!(error.contains(word), "{word}: {error}"));
    }
    let error = load_text(&claimed("predicted_hit_rate", "policy = \"smg\""), &[]).unwrap_err().to_string();
    assert!(error.contains("\"smg\" predicts no hits"), "{error}");
}
