//! Recordings in several files, without their beginning, and without their end.

use super::*;

/// A recording that was rotated until there were `parts` files before the last: all its files in their order.
fn rotated(directory: &Path, policy: &str, parts: u64) -> Vec<PathBuf> {
    let path = directory.join("router.trace");
    let aside = directory.join("router.trace.1");
    let host = host();
    let args = ["--policy", policy, "--record-trace-max-bytes", "1048576"];
    let router = Router::start(&host, &[&args[..], &["--record-trace", path.to_str().unwrap()]].concat());
    let mut kept: Vec<PathBuf> = Vec::new();
    let mut rounds = 0..;
    while (kept.len() as u64) < parts {
        router.load(rounds.next().unwrap());
        if aside.exists() && part(&aside) == kept.len() as u64 {
            // As somebody would who keeps them all. A file may be rotated between these steps only if it fills at once.
            let copy = directory.join(format!("kept.{}", kept.len()));
            std::fs::copy(&aside, &copy).unwrap();
            assert_eq!(part(&copy), kept.len() as u64);
            kept.push(copy);
        }
    }
    router.load(rounds.next().unwrap());
    router.end();
    assert_eq!(part(&path), parts, "the last one is not full");
    kept.push(path);
    kept
}

/// Which file of the recording it is.
fn part(path: &Path) -> u64 {
    let mut line = String::new();
    BufReader::new(std::fs::File::open(path).unwrap()).read_line(&mut line).unwrap();
    let header: Value = serde_json::from_str(&line).unwrap();
    header["part"].as_u64().unwrap()
}

#[test]
fn rotated_files_are_one_recording() {
    let directory = tempfile::tempdir().unwrap();
    let files = rotated(directory.path(), "cache_aware", 2);
    // In any order.
    let set = [files[2].as_path(), files[0].as_path(), files[1].as_path()];
    let (code, text, found) = replay_all(&set, &[]);
    println!("{text}");
    assert_eq!(
        (code, &found["whole"], &found["missing_parts"]),
        (Some(0), &true.into(), &0.into()),
        "{text}"
    );
    assert!(found["identical_share"].as_f64().unwrap() >= 0.99, "{text}");
    let decisions = |paths: &[&Path]| replay_all(paths, &[]).2["decisions"].as_u64().unwrap();
    let all = found["decisions"].as_u64().unwrap();
    let [one, two] = [&files[..1], &files[..2]]
        .map(|files| decisions(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>()));
    assert!(0 < one && one < two && two < all, "{one}, {two} of {all}");
    // Of the two that the router keeps, either.
    let aside = directory.path().join("router.trace.1");
    assert_eq!(decisions(&[&aside]), decisions(&[&files[2]]));
    both_are_one_trace(&files[2], &aside);
    for (set, says) in
        [(&[&files[0], &files[2]][..], "part 1 is missing"), (&[&files[1], &aside], "are both part 1")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_loadgen")).arg("replay").args(set).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says) && text.contains("router.trace"), "{text}");
    }
    let other = tempfile::tempdir().unwrap();
    let apart = record(other.path(), "random", &[]);
    let output =
        Command::new(env!("CARGO_BIN_EXE_loadgen")).arg("replay").args([&files[0], &apart]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && text.contains("different starts"), "{text}");
}

/// Whichever is given, a trace has the requests of both, and neither is written over.
fn both_are_one_trace(now: &Path, aside: &Path) {
    let run = |args: &[&str], paths: &[&Path]| {
        Command::new(env!("CARGO_BIN_EXE_loadgen")).args(args).args(paths).output().unwrap()
    };
    let all = [aside, now].map(kinds).concat();
    let looks: std::collections::BTreeSet<u64> =
        all.iter().filter(|(e, _)| e == "look").map(|(_, line)| line["n"].as_u64().unwrap()).collect();
    let is_row = |(e, line): &&(String, Value)| {
        e == "request" && line["status"] == 200 && looks.contains(&line["n"].as_u64().unwrap())
    };
    let expected = all.iter().filter(is_row).count();
    let json = now.with_extension("info.json");
    for (given, other) in [(now, aside), (aside, now)] {
        let output = run(&["trace", "info"], &[given, Path::new("--json"), &json]);
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(
            told.contains(&format!("read with     {}: both are one recording", other.display())),
            "{told}"
        );
        let info: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(info["rows"], expected, "{told}");
        assert_eq!(info["other_file"], other.to_str().unwrap());
        let copy = now.with_extension("mooncake");
        let output = run(&["trace", "convert", "--to", "mooncake"], &[given, &copy]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.contains("are read together"), "{said}");
        assert_eq!(std::fs::read_to_string(&copy).unwrap().lines().count(), expected);
        let refused = |args: &[&str], paths: [&Path; 2]| {
            let output = run(args, &paths);
            assert_eq!(
                output.status.code(),
                Some(2),
                "{args:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        refused(&["trace", "convert", "--to", "mooncake"], [given, other]);
        refused(&["trace", "info", "--json"], [other, given]);
        refused(&["replay", "--json"], [other, given]);
    }
}

#[test]
fn a_recording_from_the_middle_says_from_where_on_it_is_exact() {
    let directory = tempfile::tempdir().unwrap();
    for policy in ["cache_aware", "random", "manual"] {
        let files = rotated(directory.path(), policy, 1);
        let alone = directory.path().join(format!("{policy}.alone"));
        std::fs::copy(&files[1], &alone).unwrap();
        let (code, text, found) = replay(&alone, &[]);
        println!("{policy}\n{text}");
        assert_eq!(
            (code, &found["whole"], &found["missing_parts"]),
            (Some(0), &false.into(), &1.into()),
            "{policy}: {text}"
        );
        assert!(text.contains("begins in the middle, 1 of its files came before"), "{policy}: {text}");
        let settled = &found["settled"];
        let number = |key: &str| settled[key].as_f64().unwrap_or_else(|| panic!("{policy}: {text}"));
        assert!(number("identical") >= 0.99 * number("decisions"), "{policy}: {text}");
        assert!(number("decisions") >= (CLIENTS * REQUESTS / 2) as f64, "it settles soon: {policy}: {text}");
        assert!(number("after_look") == 0.0 || policy != "random", "all of it is known: {text}");
        std::fs::remove_file(directory.path().join("router.trace")).unwrap();
        std::fs::remove_file(directory.path().join("router.trace.1")).unwrap();
    }
}

#[test]
fn a_router_that_was_killed_leaves_what_can_be_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("router.trace");
    let host = host();
    let record = ["--policy", "cache_aware", "--record-trace", path.to_str().unwrap()];
    let mut router = Router::start(&host, &record);
    router.load(0);
    std::thread::scope(|scope| {
        scope.spawn(|| router.load(1));
        let written = || router.metric("smg_router_record_lines_total", "");
        let before = written();
        until("something more is written", || written() > before + 100.0);
        router.signal("KILL");
    });
    router.child.wait().unwrap();
    let found = identical(&path, "killed");
    assert!(found["decisions"].as_u64().unwrap() >= (CLIENTS * REQUESTS) as u64);
    // Cut within a line, as a disk does it that ends between two blocks.
    let bytes = std::fs::read(&path).unwrap();
    let end = bytes[..bytes.len() * 2 / 3].iter().rposition(|byte| *byte == b'\n').unwrap();
    for (name, tail) in
        [("half", &bytes[end + 1..end + 20]), ("zeros", &[0; 4096]), ("half a letter", b"{\"\xe6")]
    {
        let cut = directory.path().join(format!("{name}.trace"));
        std::fs::write(&cut, [&bytes[..=end], tail].concat()).unwrap();
        let found = identical(&cut, name);
        assert_eq!(found["cut"], true, "{name}");
        let (_, text, _) = replay(&cut, &[]);
        assert!(text.contains("the last line is cut and was passed over"), "{text}");
        let info =
            Command::new(env!("CARGO_BIN_EXE_loadgen")).args(["trace", "info"]).arg(&cut).output().unwrap();
        assert!(info.status.success(), "{name}: {}", String::from_utf8_lossy(&info.stderr));
    }
    std::fs::write(&path, [&bytes[..=end], b"{\"e\":\n", &bytes[end + 1..]].concat()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_loadgen")).arg("replay").arg(&path).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let line = bytes[..=end].iter().filter(|byte| **byte == b'\n').count() + 1;
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(&format!("router.trace:{line}: ")), "a line in the middle is no cut: {text}");
}

#[test]
fn behind_lines_that_are_missing_it_is_exact_again() {
    let directory = tempfile::tempdir().unwrap();
    // What a policy has learned before and in a gap is lost.
    for (policy, least) in [("random", 0.99), ("round_robin", 0.97), ("cache_aware", 0.8)] {
        let path = record(directory.path(), policy, &[]);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let (from, missing) = (lines.len() / 3, 200);
        let gap = format!("{{\"e\":\"dropped\",\"dropped\":{missing}}}");
        let decisions = |lines: &[&str]| lines.iter().filter(|line| line.contains("\"e\":\"plan\"")).count();
        let lost = decisions(&lines[from..from + missing]);
        assert!(lost > 10, "{policy}: {lost}");
        let left = [&lines[..from], &[gap.as_str()], &lines[from + missing..]].concat();
        std::fs::write(&path, left.join("\n") + "\n").unwrap();
        let (code, told, found) = replay(&path, &[]);
        println!("{policy}\n{told}");
        assert_eq!(
            (code, &found["whole"], &found["dropped"]),
            (Some(0), &false.into(), &missing.into()),
            "{policy}: {told}"
        );
        assert!(told.contains("lines missing in the recording: 200"), "{policy}: {told}");
        let [compared, unknown] = ["decisions", "unknown"].map(|key| found[key].as_u64().unwrap() as usize);
        assert_eq!(compared + unknown, decisions(&left), "{policy}: {told}");
        let share = found["identical_share"].as_f64().unwrap();
        assert!(
            share >= least,
            "a gap of {lost} decisions has no consequences for all others: {policy}: {told}"
        );
    }
}
