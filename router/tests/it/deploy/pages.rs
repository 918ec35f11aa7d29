//! The pages speak of what there is, and of all of it.

use std::path::Path;

use super::{shipped, text};

/// Where symbols are defined, and where modules are files.
const SOURCES: [&str; 3] = ["router/src", "router/core/src", "protocol/src"];

/// Names of files without their ends, and the texts of all files below a directory.
fn read(directory: &Path, names: &mut Vec<String>, texts: &mut String) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        names.push(path.file_stem().expect("a name").to_str().expect("UTF-8").to_owned());
        if path.is_dir() {
            read(&path, names, texts);
        } else {
            texts.push_str(&std::fs::read_to_string(&path).expect("text"));
        }
    }
}

#[test]
fn symbols_that_a_page_names_exist() {
    let (mut names, mut texts) = (Vec::new(), String::new());
    for source in SOURCES {
        read(&shipped(source), &mut names, &mut texts);
    }
    names.extend(["router_core", "protocol"].map(str::to_owned));
    let defines = |symbol: &str| {
        let kinds = ["fn", "struct", "enum", "trait", "const", "static", "mod"];
        kinds.iter().any(|kind| {
            texts.match_indices(&format!("{kind} {symbol}")).any(|(at, found)| {
                !texts[at + found.len()..]
                    .starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
            })
        })
    };
    let page = text("docs/lifecycle.md");
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(|code| code.contains("::")).collect();
    assert!(named.len() > 40, "{named:?}");
    for path in named {
        for part in path.split("::") {
            let is_there = names.iter().any(|name| name == part) || defines(part);
            assert!(is_there, "docs/lifecycle.md: there is no `{part}` of `{path}`");
        }
    }
}

/// The codes of all refusals, by the one place that gives them.
fn refusal_codes(source: &str) -> Vec<&str> {
    let (_, rows) = source.split_once("const fn row(self)").expect("the rows");
    let (rows, _) = rows.split_once("const fn code(self)").expect("what follows them");
    let rows = rows.split("Row::").skip(1);
    rows.map(|row| {
        let code = row.split(',').nth(1).expect("a code behind the status").trim();
        let literal = match code.strip_prefix("Self::") {
            Some(name) => {
                let (_, value) =
                    source.split_once(&format!("const {name}: &'static str = ")).expect("a constant");
                value
            }
            None => code,
        };
        literal.split('"').nth(1).unwrap_or_else(|| panic!("no code: {row:.60}"))
    })
    .collect()
}

#[test]
fn every_refusal_is_explained() {
    let source = text("router/src/error.rs");
    let codes = refusal_codes(&source);
    assert!(codes.len() >= 30 && codes.contains(&"loop_detected"), "{codes:?}");
    let page = text("docs/lifecycle.md");
    for code in codes {
        assert!(page.contains(&format!("`{code}`")), "docs/lifecycle.md: {code} is not explained");
    }
}

/// The codes of what goes wrong with one of two legs, without the role before them.
fn ends_of_codes(source: &str) -> Vec<String> {
    let parts = source.split("concat!($leg, \"").skip(1);
    parts.map(|part| part.split('"').next().expect("an end").to_owned()).collect()
}

#[test]
fn every_code_of_a_leg_is_in_the_troubleshooting_table() {
    let ends = ends_of_codes(&text("router/src/error/legs.rs"));
    assert!(ends.len() > 14 && ends.iter().any(|end| end == "_given_up"), "{ends:?}");
    let page = text("docs/OPERATIONS.md");
    let (_, table) = page.split_once("### Codes of pairs").expect("the table");
    for leg in ["prefill", "decode"] {
        let lacks = [format!("no_{leg}_workers"), format!("no_available_{leg}_workers")];
        for code in ends.iter().map(|end| format!("{leg}{end}")).chain(lacks) {
            assert!(table.contains(&format!("`{code}`")), "docs/OPERATIONS.md: {code} is not explained");
        }
    }
    let source = text("router/src/error.rs");
    let is_of_pairs =
        |code: &&str| ["prefill_", "decode_", "pair_"].iter().any(|word| code.starts_with(word));
    for code in refusal_codes(&source).into_iter().filter(is_of_pairs) {
        assert!(table.contains(&format!("`{code}`")), "docs/OPERATIONS.md: {code} is not explained");
    }
}

#[test]
fn every_reason_of_a_decision_is_explained() {
    let page = text("docs/OPERATIONS.md");
    for row in router_core::POLICIES {
        for reason in row.reasons {
            assert!(page.contains(&format!("`{reason}`")), "{}: {reason} is not explained", row.name);
        }
    }
}

#[test]
fn files_that_the_unit_names_are_installed() {
    let unit = text("deploy/systemd/router.service");
    let steps = text("docs/OPERATIONS.md");
    let named = unit.lines().filter_map(|line| line.strip_prefix("Documentation=file:"));
    let named: Vec<&str> = named.collect();
    assert!(!named.is_empty());
    for path in named {
        let (directory, file) = path.rsplit_once('/').expect("a directory");
        let step = steps
            .lines()
            .find(|line| line.starts_with("install ") && line.contains(&format!(" {directory} ")));
        let step = step.unwrap_or_else(|| panic!("nothing is installed in {directory}"));
        let from = step.split(' ').find(|word| word.rsplit('/').next() == Some(file));
        assert!(from.is_some_and(|from| shipped(from).exists()), "{path}: {step}");
    }
}
