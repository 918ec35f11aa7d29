//! `docs/CONFIG.md` is made of the flags and of the policy table. `UPDATE_CONFIG_DOC=1 cargo test -p router --lib doc`
//! writes it anew, for review.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command};
use router_core::POLICIES;

use super::file::File;
use super::file_workers::KEYS;
use super::given::ENVIRONMENT;
use super::ignored::IGNORED;
use super::policy::DEFAULT_POLICY;
use super::sections::{self, POLICY, SECTIONS};
use super::{absent, args};

const INTRODUCTION: &str = "\
# Configuration

Every setting is a flag, and every flag but `--config` is a key of a TOML file that is named with `--config FILE`. Where a
setting comes from several places, the flag wins over the environment, and that over the file. `router check` takes the same
flags as a start, tells what is wrong with them and with the file, and prints what they come to, each value with its source;
`router policies` lists the policies.

## The file

```toml
[traffic]
port = 30000

[policy]
name = \"cache_aware\"
cache_threshold = 0.5

[security]
api_key = \"…\"

[[workers]]
url = \"http://10.0.0.1:30000\"

[[workers]]
url = \"http://10.0.0.2:30000\"
priority = 80
labels = { zone = \"b\" }

[[workers]]
url = \"http://10.0.0.3:30000\"
role = \"prefill\"
bootstrap_port = 8998

[[workers]]
url = \"http://10.0.0.4:30000\"
role = \"decode\"
```

A key is its flag's name with `_` for `-`. It stands in the section of its group, or above all sections; the policy's name
and options stand only in `[policy]`. A value is what its flag takes: numbers and `true` or `false` without quotes, texts in
quotes, and a list where a flag takes several values. A flag without a value is `true` or `false`. What is not known, not
allowed or of no effect is an error with its line, and so is an option of another policy than the file names.

Each `[[workers]]` is one worker. They come after those of `worker_urls` in the section `[fleet]`, and of `prefill` and
`decode` in the section `[disaggregation]`. On the command line `--prefill` takes the place of all prefill workers of the
file, `--decode` of all decode workers, and `--worker-urls` of all others.

Prefill and decode workers of which nothing else is to be said stand in lists, a prefill worker with its bootstrap port behind
its URL, or without one, and then it is asked:

```toml
[policy]
name = \"cache_aware\"
decode_policy = \"power_of_two\"

[disaggregation]
pd_disaggregation = true
prefill = [\"http://10.0.0.3:30000 8998\", \"http://10.0.0.4:30000\"]
decode = [\"http://10.0.0.5:30000\", \"http://10.0.0.6:30000\"]
decode_dispatch_limit = 64
```

Decode engines of SGLang keep no prefix cache unless they are started with `--disaggregation-decode-enable-radix-cache`: a
`decode_policy` that goes by the load is the better choice then. The router warns where that is overlooked.

What may be said of a worker in `[[workers]]`:
";

#[test]
fn the_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/CONFIG.md");
    let text = document();
    if std::env::var_os("UPDATE_CONFIG_DOC").is_some() {
        std::fs::write(&path, &text).expect("docs/CONFIG.md can be written");
    }
    let shipped = std::fs::read_to_string(&path).unwrap_or_default();
    let first = shipped.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        shipped == text,
        "run this test once with UPDATE_CONFIG_DOC=1 and look at the difference, first in {first:?}"
    );
}

#[test]
fn the_example_of_the_document_is_a_file() {
    let examples = INTRODUCTION.split("```").filter_map(|block| block.strip_prefix("toml\n"));
    let examples: Vec<_> = examples.map(|example| example.replace('…', "k")).collect();
    let parse = |example: &String| File::parse("example", example, &args::command());
    let files = examples.iter().map(|example| parse(example).unwrap_or_else(|stop| panic!("{stop:?}")));
    let tables: Vec<_> = files.map(|file| file.workers.len()).collect();
    assert_eq!(tables, [4, 0]);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("router.toml");
    std::fs::write(&path, &examples[1]).expect("a file");
    let line = ["router".into(), "--config".into(), path.into_os_string()].into_iter();
    let pairs = args::parse(line, &|_| None).unwrap_or_else(|stop| panic!("{stop:?}"));
    assert_eq!((pairs.config.workers.len(), pairs.warnings), (4, Vec::new()));
}

#[test]
fn every_flag_belongs_to_a_group() {
    for arg in args::command().get_arguments() {
        let id = arg.get_id().as_str();
        let is_apart = id == "config" || IGNORED.iter().any(|row| row.id == id);
        assert!(sections::section(arg).is_some() != is_apart, "{id}");
    }
}

fn document() -> String {
    let mut command = args::command();
    command = command.disable_help_flag(true).disable_version_flag(true);
    let mut out = INTRODUCTION.to_owned();
    out.push_str("\n| key | default | |\n|---|---|---|\n");
    for key in KEYS {
        let cell = if key.default.is_empty() { String::new() } else { format!(" {}", key.default) };
        let _ = writeln!(out, "| `{}` |{cell} | {} |", key.name, key.help);
    }
    environment(&mut out);
    for (heading, section) in SECTIONS {
        let _ = write!(out, "\n## {heading}: `[{section}]`\n\n");
        if *section == POLICY {
            policies(&mut out);
        } else {
            flags(&mut out, &command, heading);
        }
    }
    gateway(&mut out);
    out
}

fn environment(out: &mut String) {
    out.push_str("\n## Environment\n\n| variable | flag |\n|---|---|\n");
    for (name, id) in ENVIRONMENT {
        let _ = writeln!(out, "| `{name}` | `{}` |", sections::flag(id));
    }
    out.push_str(
        "\nWhere a flag takes several values, they stand in the variable with blanks between.\n\n`RUST_LOG`, when it is set, is a filter of log lines that takes the place of `--log-level`.\n",
    );
}

fn flags(out: &mut String, command: &Command, heading: &str) {
    out.push_str("| flag | default | |\n|---|---|---|\n");
    for arg in command.get_arguments().filter(|arg| arg.get_help_heading() == Some(heading)) {
        let values: String =
            arg.get_value_names().unwrap_or_default().iter().map(|name| format!(" {name}")).collect();
        let values = if arg.get_action().takes_values() { values } else { String::new() };
        let (help, default) = help_and_default(arg);
        let _ = writeln!(out, "| `{}{values}` | {default} | {help} |", sections::flag(arg.get_id().as_str()));
    }
}

/// The help may tell a default in words.
fn help_and_default(arg: &Arg) -> (String, String) {
    let help = arg.get_help().map(|help| help.to_string().replace('|', "\\|")).unwrap_or_default();
    let words: Vec<_> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let is_named = arg.get_action().takes_values() && words.len() > 2;
    let choice = if is_named { format!(": {}", words.join(", ")) } else { String::new() };
    if let Some((help, told)) = help.rsplit_once(" [default: ") {
        return (format!("{help}{choice}"), told.trim_end_matches(']').to_owned());
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = if defaults.is_empty() || !arg.get_action().takes_values() {
        "off".to_owned()
    } else {
        format!("`{}`", defaults.join(" "))
    };
    (help + &choice, default)
}

fn policies(out: &mut String) {
    let _ = writeln!(
        out,
        "`--policy NAME`, in the file `name` in `[policy]`; `{DEFAULT_POLICY}` if there is none. `--prefill-policy NAME` and \
         `--decode-policy NAME`, in the file `prefill_policy` and `decode_policy` in `[policy]`, are for the workers of these \
         roles; by default they are the same. `bucket` cannot choose decode workers. An option counts for all policies that \
         have it."
    );
    for row in POLICIES {
        let _ = write!(out, "\n### `{}`\n\n{}\n", row.name, row.summary);
        if !row.options.is_empty() {
            out.push_str("\n| flag | default | |\n|---|---|---|\n");
        }
        for spec in row.options {
            let (flag, default) = (sections::flag(spec.key), spec.default.as_argument());
            let _ = writeln!(
                out,
                "| `{flag} VALUE` | `{default}` | {}; {} |",
                super::policy::capitalised(spec.help),
                spec.kind
            );
        }
    }
}

fn gateway(out: &mut String) {
    out.push_str(
        "\n## Flags of the SGLang gateway\n\nThese are accepted on the command line, with a warning:\n\n",
    );
    out.push_str("| flags | what happens instead |\n|---|---|\n");
    grouped(out, IGNORED.iter().map(|row| (sections::flag(row.id), row.instead)));
    out.push_str(
        "\nThese would change what the router does, and are refused:\n\n| flags | instead |\n|---|---|\n",
    );
    grouped(out, absent::all().map(|(name, remedy)| (format!("--{name}"), remedy)));
}

/// A line for neighbours of which the same is said.
fn grouped(out: &mut String, rows: impl Iterator<Item = (String, &'static str)>) {
    let mut lines: Vec<(Vec<String>, &str)> = Vec::new();
    for (flag, said) in rows {
        let flag = format!("`{flag}`");
        match lines.last_mut().filter(|(_, last)| *last == said) {
            Some((flags, _)) => flags.push(flag),
            None => lines.push((vec![flag], said)),
        }
    }
    for (flags, said) in lines {
        let _ = writeln!(out, "| {} | {said} |", flags.join(", "));
    }
}
