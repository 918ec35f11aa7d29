//! `[[target]]`: other routers, which live runs put beside our policies.
//!
//! A target is a command that is started for every run, with the addresses of cold workers filled in, or a router that
//! runs already. A running one keeps what it has learnt from run to run, and has to know the workers by itself: they
//! listen on the ports that are named here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use http::uri::Uri;
use router_core::POLICIES;

use super::document::{Node, Value};
use super::error::{ScenarioError, suggest};
use super::section::{Field, Section};
use super::{Fleet, resolve};

/// The keys of `[[target]]`.
pub(super) const KEYS: &[&str] =
    &["name", "command", "url", "worker_port", "ready", "ready_timeout", "settle", "env", "policy_name"];

/// What may stand in braces in a command.
const PLACEHOLDERS: [&str; 8] =
    ["port", "metrics_port", "workers", "worker_urls", "prefill", "bootstrap", "decode", "seed"];

const READY_TIMEOUT_NS: u64 = 60_000_000_000;
const SETTLE_NS: u64 = 1_000_000_000;

/// Another router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What it is called in tables and files; no policy has this name.
    pub name: String,
    /// How it chooses, in words for people; may be empty.
    pub policy_name: String,
    /// Where it comes from.
    pub source: Source,
    /// The path that answers 200 when it is up.
    pub ready: String,
    /// How long it may take until then, in nanoseconds.
    pub ready_timeout_ns: u64,
    /// How long it is left alone when it is ready, in nanoseconds: it may still get to know its workers.
    pub settle_ns: u64,
}

/// Where a target comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It is started for every run and ended after it.
    Command(Command),
    /// It runs, and goes on running.
    Running {
        /// Where it listens, without a slash at its end.
        url: String,
        /// The port of the first worker; the next ones follow.
        worker_port: u16,
    },
}

/// A command line with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    words: Vec<Word>,
    /// Variables of its environment.
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Once(String),
    /// Words that stand there once for every worker of a list.
    Each(List, Vec<String>),
}

/// The workers of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Regular,
    Prefill,
    Decode,
}

/// What placeholders stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Where the router is to listen.
    pub port: u16,
    /// A second free port, for those that want one.
    pub metrics_port: u16,
    /// URLs of workers that do everything.
    pub regular: Vec<String>,
    /// URLs of workers that prefill, with the ports of their bootstrap servers.
    pub prefill: Vec<(String, Option<u16>)>,
    /// URLs of workers that decode.
    pub decode: Vec<String>,
    /// The seed of the run.
    pub seed: u64,
}

impl Target {
    /// What is told of it: its name, and how it chooses.
    #[must_use]
    pub fn label(&self) -> String {
        if self.policy_name.is_empty() {
            return self.name.clone();
        }
        format!("{} ({})", self.name, self.policy_name)
    }
}

impl Command {
    /// The program and its arguments.
    #[must_use]
    pub fn filled(&self, at: &Addresses) -> Vec<String> {
        let mut filled = Vec::new();
        for word in &self.words {
            match word {
                Word::Once(word) => match word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
                    Some(name) => filled.extend(at.values(name)),
                    None => filled.push(replaced(word, |name| at.text(name))),
                },
                Word::Each(list, words) => {
                    for place in 0..at.count(*list) {
                        let of_one = |name: &str| at.of_one(*list, place, name);
                        filled.extend(words.iter().map(|word| replaced(word, of_one)));
                    }
                }
            }
        }
        filled
    }

    /// Whether one of these placeholders stands in it.
    fn names(&self, placeholders: &[&str]) -> bool {
        let mut words = self.words.iter().flat_map(|word| match word {
            Word::Once(word) => std::slice::from_ref(word),
            Word::Each(_, words) => words,
        });
        words.any(|word| placeholders_of(word).any(|name| placeholders.contains(&name)))
    }
}

impl Addresses {
    fn count(&self, list: List) -> usize {
        match list {
            List::Regular => self.regular.len(),
            List::Prefill => self.prefill.len(),
            List::Decode => self.decode.len(),
        }
    }

    /// What a placeholder stands for; several arguments where it stands alone.
    fn values(&self, name: &str) -> Vec<String> {
        let port = |port: &Option<u16>| port.map_or_else(|| "none".to_owned(), |port| port.to_string());
        match name {
            "port" => vec![self.port.to_string()],
            "metrics_port" => vec![self.metrics_port.to_string()],
            "seed" => vec![self.seed.to_string()],
            "workers" => self.regular.clone(),
            "worker_urls" => vec![self.regular.join(",")],
            "prefill" => self.prefill.iter().map(|(url, _)| url.clone()).collect(),
            "bootstrap" => self.prefill.iter().map(|(_, at)| port(at)).collect(),
            "decode" => self.decode.clone(),
            _ => Vec::new(),
        }
    }

    fn text(&self, name: &str) -> String {
        self.values(name).join(" ")
    }

    /// The same where the words stand once for every worker of a list.
    fn of_one(&self, list: List, place: usize, name: &str) -> String {
        match List::of(name) {
            Some(of) if of == list => self.values(name).swap_remove(place),
            _ => self.text(name),
        }
    }
}

impl List {
    fn of(placeholder: &str) -> Option<Self> {
        match placeholder {
            "workers" => Some(Self::Regular),
            "prefill" | "bootstrap" => Some(Self::Prefill),
            "decode" => Some(Self::Decode),
            _ => None,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running { url, .. } => f.write_str(url),
            Self::Command(command) => {
                let words = command.words.iter().flat_map(|word| match word {
                    Word::Once(word) => std::slice::from_ref(word),
                    Word::Each(_, words) => words,
                });
                f.write_str(&words.map(String::as_str).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// The names in braces: small letters and underscores.
fn placeholders_of(word: &str) -> impl Iterator<Item = &str> {
    let plain = |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    word.split('{').skip(1).filter_map(move |rest| rest.split_once('}').map(|(name, _)| name).filter(plain))
}

fn replaced(word: &str, value: impl Fn(&str) -> String) -> String {
    let mut text = word.to_owned();
    for name in PLACEHOLDERS {
        let placeholder = format!("{{{name}}}");
        if text.contains(&placeholder) {
            text = text.replace(&placeholder, &value(name));
        }
    }
    text
}

/// Reads all `[[target]]`.
pub(super) fn read_all(field: &Field<'_>) -> Result<Vec<Arc<Target>>, ScenarioError> {
    let mut targets: Vec<Arc<Target>> = Vec::new();
    for item in field.list()? {
        let target = read(item.node)?;
        if targets.iter().any(|known| known.name == target.name) {
            let problem = format!("\"{}\" stands here twice", target.name);
            return Err(item.error(problem, "give every target a name of its own"));
        }
        targets.push(Arc::new(target));
    }
    Ok(targets)
}

fn read(node: &Node) -> Result<Target, ScenarioError> {
    let section = Section::open(node, "target", KEYS)?;
    let name_field = section.need("name")?;
    let name = resolve::name(&name_field)?;
    if POLICIES.iter().any(|row| row.name == name) {
        let problem = format!("\"{name}\" is a policy of our own router");
        return Err(name_field.error(problem, "give the target another name"));
    }
    let source = match (section.get("command"), section.get("url")) {
        (Some(command), None) => Source::Command(read_command(&section, &command)?),
        (None, Some(url)) => running(&section, &url)?,
        (Some(_), Some(_)) => {
            return Err(section.error("url", "stands beside command", "keep one of them"));
        }
        (None, None) => {
            let remedy = "add how it is started, command = [\"program\", \"--port\", \"{port}\", …], or \
                          the url of one that runs";
            return Err(section.error("command", "is missing", remedy));
        }
    };
    let ready = section.get("ready").map_or(Ok("/health"), |field| field.text())?.to_owned();
    if !ready.starts_with('/') || ready.contains(char::is_whitespace) {
        return Err(section.error("ready", format!("\"{ready}\" is no path"), "begin it with /"));
    }
    let span = |key, default_ns| section.get(key).map_or(Ok(default_ns), |f| f.short_duration_ns());
    Ok(Target {
        name,
        policy_name: section.get("policy_name").map_or(Ok(""), |field| field.text())?.to_owned(),
        source,
        ready,
        ready_timeout_ns: span("ready_timeout", READY_TIMEOUT_NS)?,
        settle_ns: span("settle", SETTLE_NS)?,
    })
}

fn running(section: &Section<'_>, url: &Field<'_>) -> Result<Source, ScenarioError> {
    let text = url.text()?.trim_end_matches('/');
    let plain = text.parse::<Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some() && matches!(uri.path(), "" | "/")
    });
    if !plain {
        let problem = format!("\"{text}\" is no address of a router");
        return Err(url.error(problem, "write http://HOST:PORT"));
    }
    if section.get("env").is_some() {
        return Err(section.error("env", "is for a command", "remove it"));
    }
    let Some(port) = section.get("worker_port") else {
        let remedy = "the router must know our workers: name the port on which the first one is to listen; the \
                      next ones follow";
        return Err(section.error("worker_port", "is missing", remedy));
    };
    Ok(Source::Running { url: text.to_owned(), worker_port: port.whole(1..=u16::MAX)? })
}

fn read_command(section: &Section<'_>, field: &Field<'_>) -> Result<Command, ScenarioError> {
    if section.get("worker_port").is_some() {
        let remedy = "remove it: a command is told where the workers are, by {workers}";
        return Err(section.error("worker_port", "is for a router that runs", remedy));
    }
    let words: Vec<Word> = field.list()?.iter().map(word).collect::<Result<_, _>>()?;
    let mut env = BTreeMap::new();
    if let Some(table) = section.get("env") {
        for (key, value) in Section::unchecked(table.node, "target.env")?.fields() {
            env.insert(key.to_owned(), value.text()?.to_owned());
        }
    }
    let command = Command { words, env };
    if !matches!(command.words.first(), Some(Word::Once(program)) if !program.is_empty()) {
        return Err(field.error("has no program", "begin it with the program, command = [\"program\", …]"));
    }
    if !command.names(&["port"]) {
        return Err(field.error("has no {port}", "say where the router is to listen, by {port}"));
    }
    Ok(command)
}

fn word(field: &Field<'_>) -> Result<Word, ScenarioError> {
    let Value::List(_) = field.node.value else {
        let word = field.text()?;
        check_placeholders(field, word)?;
        return Ok(Word::Once(word.to_owned()));
    };
    let mut list = None;
    let mut words = Vec::new();
    for field in field.list()? {
        let word = field.text()?;
        check_placeholders(&field, word)?;
        for of in placeholders_of(word).filter_map(List::of) {
            if *list.get_or_insert(of) != of {
                return Err(field.error("is about workers of two roles", "give each role a list of its own"));
            }
        }
        words.push(word.to_owned());
    }
    match list {
        Some(list) => Ok(Word::Each(list, words)),
        None => {
            let remedy = "a list within the command stands there once for every worker: name one by {workers}, \
                          {prefill}, {bootstrap} or {decode}";
            Err(field.error("names no worker", remedy))
        }
    }
}

fn check_placeholders(field: &Field<'_>, word: &str) -> Result<(), ScenarioError> {
    match placeholders_of(word).find(|name| !PLACEHOLDERS.contains(name)) {
        None => Ok(()),
        Some(unknown) => {
            Err(field.error(format!("{{{unknown}}} is no placeholder"), suggest(unknown, PLACEHOLDERS)))
        }
    }
}

/// Refuses targets that could not know all workers of `fleet`.
pub(super) fn check(targets: &[Arc<Target>], fleet: &Fleet, field: &Field<'_>) -> Result<(), ScenarioError> {
    let split = fleet.roles.prefill > 0;
    let regular = fleet.workers > fleet.roles.prefill + fleet.roles.decode;
    for target in targets {
        let missing = match &target.source {
            Source::Command(command) => {
                let wanted: [(bool, &[&str]); 3] =
                    [(regular, &["workers", "worker_urls"]), (split, &["prefill"]), (split, &["decode"])];
                wanted
                    .iter()
                    .find(|(there, names)| *there && !command.names(names))
                    .map(|(_, names)| names[0])
            }
            Source::Running { .. } if split => {
                let problem =
                    format!("target \"{}\" runs already, and the fleet has prefill workers", target.name);
                let remedy =
                    "start it by a command: the ports of bootstrap servers are not known before a run";
                return Err(field.error(problem, remedy));
            }
            Source::Running { worker_port, .. } => {
                if u32::from(*worker_port) + fleet.workers > u32::from(u16::MAX) {
                    let problem = format!("target \"{}\" has no ports for all workers", target.name);
                    return Err(field.error(problem, "name a lower worker_port"));
                }
                None
            }
        };
        if let Some(missing) = missing {
            let problem = format!("target \"{}\" is not told of some workers of the fleet", target.name);
            return Err(field.error(problem, format!("name them in its command, by {{{missing}}}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::load_text;
    use super::*;
    use crate::run::World;

    const BASE: &str = r#"
schema = 1
name = "t"
mode = "both"
[workload]
kind = "shared_prefix"
groups = 2
prompts_per_group = 2
system_tokens = 64
question_tokens = 16
output_tokens = 4
[arrival]
kind = "burst"
over = "1s"
[fleet]
workers = 2
[router]
policies = ["round_robin", "cache_aware"]
"#;

    fn target(lines: &str) -> Result<super::super::Scenario, ScenarioError> {
        load_text(&format!("{BASE}[[target]]\n{lines}\n"), &[])
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
        let scenario =
            target(&format!("name = \"x\"\ncommand = {command}")).unwrap_or_else(|e| panic!("{e}"));
        let Source::Command(command) = &scenario.targets[0].source else { panic!() };
        command.filled(&addresses())
    }

    #[test]
    fn a_list_that_stands_alone_becomes_several_arguments() {
        let words = filled(r#"["r", "--port", "{port}", "--urls", "{workers}", "--seed={seed}"]"#);
        assert_eq!(words, ["r", "--port", "8000", "--urls", "http://a", "http://b", "--seed=5"]);
        let words =
            filled(r#"["sh", "-c", "r {port} {workers} ${HOME}", "{worker_urls}", "m={metrics_port}"]"#);
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
        let sweep = "[sweep]\n\"fleet.workers\" = [1, 2]\n\"router.options.cache_aware.cache_threshold\" = [0.1, 0.2]";
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
            ("a typo", format!("{good}\nredy = \"/\""), &["s.toml:22", "`ready`"][..]),
            ("twice", format!("{good}\n[[target]]\n{good}"), &["twice"][..]),
        ] {
            let error = target(&lines).expect_err(case).to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{case}: {error}");
        }
    }
}
