//! `router check`: reads everything that a start reads, the files that are named too, and prints what it comes to.

use std::fmt::Write as _;
use std::process::ExitCode;

use router_core::{OptionSpec, OptionValue, Role};
use toml::Value as Toml;

use super::policy::is_policy;
use super::sections::{self, POLICY, SECTIONS, Shape, WORKER_TABLES};
use super::source::Value;
use super::stop::Stop;
use super::{Parsed, ROUTER, files};
use crate::config::{BootstrapPort, Config, StaticWorker};
use crate::log;

/// Where the remark about its source stands, behind a line that is not too long.
const COLUMN: usize = 48;

/// Prints the configuration as a file that could be given to `--config`, the keys apart, with the source of each value.
pub(super) fn main(arguments: Vec<std::ffi::OsString>) -> ExitCode {
    let parsed = match super::parse_router_args(arguments.into_iter()) {
        Ok(parsed) => parsed,
        Err(stop) => return super::end(ROUTER, &stop),
    };
    for warning in &parsed.warnings {
        log::write(format!("{ROUTER}: warning: {warning}\n").as_bytes());
    }
    let problems = files::problems(&parsed.config);
    if !problems.is_empty() {
        return super::end(ROUTER, &Stop::Wrong(problems.join(&format!("\n{ROUTER}: "))));
    }
    super::show(&report(&parsed))
}

/// The text of the report.
pub(super) fn report(parsed: &Parsed) -> String {
    let config = &parsed.config;
    let mut out = String::new();
    for (_, section) in SECTIONS {
        let _ = writeln!(out, "[{section}]");
        let own = |value: &&Value| value.section == *section && is_of_use(value, config);
        for value in config.source.values.0.iter().filter(own) {
            match text(value, config) {
                Some(text) => line(&mut out, &text, &value.source),
                None => out.push_str(&format!("# {} is not set\n", value.key)),
            }
        }
        out.push('\n');
    }
    let tables = config.workers.len() - parsed.worker_places.len();
    for (worker, place) in config.workers[tables..].iter().zip(&parsed.worker_places) {
        line(&mut out, &format!("[[{WORKER_TABLES}]]"), &place.to_string());
        table(&mut out, worker);
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

/// Whether it is an option of a policy that is in use, if it is one of some policy.
fn is_of_use(value: &Value, config: &Config) -> bool {
    let own = || options(config).any(|(spec, _)| spec.key == value.id);
    value.section != POLICY || is_policy(&value.id) || own()
}

/// The options of the policies; what was said of one is the same for all that have it.
fn options(config: &Config) -> impl Iterator<Item = (&'static OptionSpec, &OptionValue)> + '_ {
    Role::ALL.into_iter().flat_map(move |role| config.policies.get(role).options())
}

/// A line of a file with a remark.
pub(super) fn line(out: &mut String, text: &str, source: &str) {
    let _ = writeln!(out, "{text:COLUMN$}  # {source}");
}

/// `key = value`, or a remark where it must not be seen; `None`: there is no value.
fn text(value: &Value, config: &Config) -> Option<String> {
    let Value { key, id, shape, .. } = value;
    let option = options(config).find(|(spec, _)| value.section == POLICY && spec.key == id);
    let default = option.map(|(_, value)| vec![value.as_argument()]);
    let texts = value.texts.clone().or(default)?;
    Some(match sections::is_secret(id) {
        true => format!("# {key} = (set)"),
        false => format!("{key} = {}", literal(*shape, &texts)),
    })
}

fn literal(shape: Shape, texts: &[String]) -> String {
    let quoted = |text: &str| Toml::String(text.to_owned()).to_string();
    match (shape, texts) {
        (Shape::Bool, [text]) => text.clone(),
        (Shape::Number, [text]) => figure(text),
        (Shape::Text, [text]) => quoted(text),
        (_, texts) => {
            let words: Vec<&str> = texts.iter().flat_map(|text| text.split_whitespace()).collect();
            let are_numbers = words.iter().all(|word| word.parse::<f64>().is_ok_and(f64::is_finite));
            let item = |word: &&str| if are_numbers { figure(word) } else { quoted(word) };
            format!("[{}]", words.iter().map(item).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A number as TOML has it: flags take more forms.
fn figure(text: &str) -> String {
    match (text.parse::<i128>(), text.parse::<f64>()) {
        (Ok(whole), _) => whole.to_string(),
        (_, Ok(number)) => format!("{number:?}"),
        _ => Toml::String(text.to_owned()).to_string(),
    }
}

fn table(out: &mut String, worker: &StaticWorker) {
    let quoted = |text: &str| Toml::String(text.to_owned()).to_string();
    let _ = writeln!(out, "url = {}", quoted(&worker.address.url));
    if worker.api_key.is_some() {
        out.push_str("# api_key = (set)\n");
    }
    if let Some(role) = worker.role {
        let _ = writeln!(out, "role = {}", quoted(role.label()));
    }
    if let BootstrapPort::Given(port) = worker.bootstrap_port {
        let _ = writeln!(out, "bootstrap_port = {port}");
    }
    if let Some(model) = &worker.model {
        let _ = writeln!(out, "model_id = {}", quoted(model));
    }
    let _ = writeln!(out, "priority = {}\ncost = {:?}", worker.priority, worker.cost);
    let _ = writeln!(out, "disable_health_check = {}", !worker.health_check);
    if !worker.labels.is_empty() {
        let labels = worker.labels.iter().map(|(key, value)| (key.clone(), Toml::String(value.clone())));
        let _ = writeln!(out, "labels = {}", Toml::Table(labels.collect()));
    }
}
