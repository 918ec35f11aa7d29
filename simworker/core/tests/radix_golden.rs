//! Replays traces of prefix-cache operations and compares every number.
//!
//! Three sources: vectors recorded from SGLang's own cache (`../shared/golden` beside the workspace, when there),
//! files named in `RADIX_GOLDEN` (colon-separated), and a short fixture of ours whose numbers come from a naive
//! model. The same model checks the cache on random scripts; `RADIX_SEED` replays one of them and
//! `RADIX_FIXTURE=write` renews the fixture.

#[path = "radix_golden/compare.rs"]
mod compare;
#[path = "radix_golden/driver.rs"]
mod driver;
#[path = "mirror/mod.rs"]
mod mirror;
#[path = "radix_golden/naive.rs"]
mod naive;
#[path = "radix_golden/script.rs"]
mod script;
#[path = "radix_golden/subject.rs"]
mod subject;

use driver::Driver;
use mirror::Mirror;
use naive::Naive;
use script::{Script, Setting};
use serde_json::Value;
use simworker_core::cache::{Eviction, KvCache, WritePolicy};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Random scripts per setting; each has its own seed.
const SEEDS: u64 = 12;
const LINES_PER_SCRIPT: usize = 150;
const LINES_PER_FIXTURE_SECTION: usize = 40;

/// Page sizes and policies in all pairs, with pools so small that eviction, retraction and refusal are common.
fn settings() -> impl Iterator<Item = Setting> {
    let pools = [(1, 400), (2, 700), (16, 1_600), (64, 4_800)];
    pools.into_iter().flat_map(move |(page_size, capacity)| {
        Eviction::ALL.map(|policy| Setting { page_size, capacity, chunk: capacity / 4, policy, tier: None })
    })
}

/// The same with hosts too small for all and large enough for much.
fn tiered_settings() -> impl Iterator<Item = Setting> {
    settings().filter(|setting| [1, 16].contains(&setting.page_size)).flat_map(|setting| {
        WritePolicy::ALL.into_iter().zip([4, 1, 2]).flat_map(move |(write, share)| {
            [setting.capacity * 2, setting.capacity * share / 4]
                .map(|host| Setting { tier: Some((host, write)), ..setting })
        })
    })
}

/// Tells what was and was not run, past the capture of test output: a silent skip looks like a pass.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Replays a file and returns how many lines it had. Every number of every line must come out the same.
fn replay(path: &Path) -> usize {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (mut driver, mut mirror): (Driver<KvCache>, _) = (Driver::default(), Mirror::default());
    let mut lines = 0;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if let Err(why) = replay_line(&mut driver, &mut mirror, line) {
            panic!("{}:{}: {why}", path.display(), index + 1);
        }
        lines += 1;
    }
    assert!(lines > 0, "{}: no lines", path.display());
    say(&format!("{}: {lines} lines match", path.display()));
    lines
}

fn replay_line(driver: &mut Driver<KvCache>, mirror: &mut Mirror, line: &str) -> Result<(), String> {
    let line: Value = serde_json::from_str(line).map_err(|e| format!("not JSON: {e}"))?;
    let answer = driver.answer(&line).map_err(|why| format!("op {}: {why}", line["op"]))?;
    compare::lines(&line, &answer)?;
    follow(mirror, driver.subject())
}

/// Shows the mirror what has happened since the last time, then compares it with the cache.
fn follow(mirror: &mut Mirror, cache: &mut KvCache) -> Result<(), String> {
    let page = cache.page_size() as usize;
    mirror.apply(cache.take_events(), page)?;
    mirror.compare(cache.contents(), page)
}

#[test]
fn recorded_vectors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        say(&format!("SKIPPED: no recorded vectors at {}", folder.display()));
        return;
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    if files.is_empty() {
        say(&format!("SKIPPED: no *.jsonl in {}", folder.display()));
    }
    for file in files {
        replay(&file);
    }
}

#[test]
fn vectors_named_in_the_environment() {
    let named = std::env::var("RADIX_GOLDEN").unwrap_or_default();
    let files: Vec<&str> = named.split(':').filter(|name| !name.is_empty()).collect();
    if files.is_empty() {
        say("SKIPPED: RADIX_GOLDEN names no files");
    }
    for file in files {
        replay(Path::new(file));
    }
}

#[test]
fn fixture() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/radix_small.jsonl");
    let mut text = String::new();
    let recorded = |setting: &Setting| Eviction::ALL[..4].contains(&setting.policy);
    for (seed, setting) in settings().filter(recorded).step_by(3).enumerate() {
        let mut script = Script::new(setting, seed as u64);
        let mut model: Driver<Naive> = Driver::default();
        for _ in 0..LINES_PER_FIXTURE_SECTION {
            let answer = model.answer(&script.next_line()).unwrap();
            script.learn(&answer);
            text.push_str(&format!("{answer}\n"));
        }
    }
    if std::env::var("RADIX_FIXTURE").is_ok_and(|what| what == "write") {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(replay(&path) > 100, "the fixture is too short to prove anything");
    let stored = std::fs::read_to_string(&path).unwrap();
    assert!(stored == text, "the model disagrees with the fixture; RADIX_FIXTURE=write renews it");
}

#[test]
fn random_scripts_match_the_naive_model() {
    if let Some(seen) = run_all(settings(), SEEDS) {
        seen.assert_complete();
    }
}

#[test]
fn random_scripts_on_two_tiers_match_the_naive_model() {
    if let Some(seen) = run_all(tiered_settings(), 1) {
        for situation in ["admitted loaded", "rejected loaded", "host evicts", "host drops", "retract evicts"]
        {
            assert!(seen.has(situation), "the scripts never came to {situation}");
        }
    }
}

/// Runs scripts for all settings. Tells what they came to if all seeds were run.
fn run_all(settings: impl Iterator<Item = Setting>, seeds: u64) -> Option<script::Coverage> {
    let one =
        std::env::var("RADIX_SEED").ok().map(|seed| seed.parse::<u64>().expect("RADIX_SEED is a number"));
    let seeds = one.map_or(0..seeds, |seed| seed..seed + 1);
    let mut seen = script::Coverage::default();
    for (setting, seed) in settings.flat_map(|setting| seeds.clone().map(move |seed| (setting, seed))) {
        if let Err(why) = run_both(setting, seed, &mut seen) {
            panic!("{setting:?}, RADIX_SEED={seed}: {why}");
        }
    }
    one.is_none().then_some(seen)
}

fn run_both(setting: Setting, seed: u64, seen: &mut script::Coverage) -> Result<(), String> {
    let mut script = Script::new(setting, seed);
    let mut model: Driver<Naive> = Driver::default();
    let mut real: Driver<KvCache> = Driver::default();
    let mut mirror = Mirror::default();
    for number in 0..LINES_PER_SCRIPT {
        let line = script.next_line();
        let expected = model.answer(&line).map_err(|why| format!("model, line {number}, {line}: {why}"))?;
        let got = real.answer(&line).map_err(|why| format!("cache, line {number}, {line}: {why}"))?;
        compare::lines(&expected, &got).map_err(|why| format!("line {number}: {why}"))?;
        real.subject().check().map_err(|why| format!("line {number}, {line}: {why}"))?;
        follow(&mut mirror, real.subject()).map_err(|why| format!("line {number}, {line}: {why}"))?;
        script.learn(&expected);
        seen.note(&expected);
    }
    seen.note_host(real.subject().host_totals());
    Ok(())
}
