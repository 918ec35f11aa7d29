//! The policies on the command line: names, options and help all come from the policy table.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command};
use router_core::{OptionSpec, POLICIES, PolicyConfig};

/// The policy when none is named: the gateway's.
const DEFAULT_POLICY: &str = "cache_aware";

const HEADING: &str = "Policy options";

/// Adds `--policy` and one flag for every option that some policy has.
pub(super) fn add_flags(command: Command) -> Command {
    let values = POLICIES.iter().map(|row| PossibleValue::new(row.name).help(row.summary));
    let policy = Arg::new("policy")
        .long("policy")
        .value_name("POLICY")
        .help("How a worker is chosen")
        .help_heading(HEADING)
        .value_parser(PossibleValuesParser::new(values))
        .default_value(DEFAULT_POLICY);
    let flags = distinct_options().into_iter().map(|(spec, policies)| {
        Arg::new(spec.key)
            .long(flag(spec.key))
            .value_name("VALUE")
            .help(option_help(spec, &policies))
            .help_heading(HEADING)
            .allow_hyphen_values(true)
    });
    command.arg(policy).args(flags)
}

/// What an option does, for which policies, and what it takes.
fn option_help(spec: &OptionSpec, policies: &[&str]) -> String {
    let (policies, default) = (policies.join(", "), spec.default.as_argument());
    format!("{} [{policies}: {}; default: {default}]", capitalised(spec.help), spec.kind)
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The policy that was asked for. An option that only other policies have is a warning, so that one command line can
/// be tried with several policies.
///
/// # Errors
/// One line that names the flag, its value and what is allowed.
pub(super) fn read(matches: &ArgMatches, warnings: &mut Vec<String>) -> Result<PolicyConfig, String> {
    let name = matches.get_one::<String>("policy").map_or(DEFAULT_POLICY, String::as_str);
    let mut config = PolicyConfig::new(name).map_err(|error| format!("--policy: {error}"))?;
    for (spec, policies) in distinct_options() {
        let Some(text) = matches.get_one::<String>(spec.key) else { continue };
        if config.row().options.iter().any(|own| own.key == spec.key) {
            config.set_text(spec.key, text).map_err(|error| format!("--{}: {error}", flag(spec.key)))?;
        } else {
            let flag = flag(spec.key);
            warnings.push(format!(
                "--{flag} has no effect under --policy {name} (it is for {})",
                policies.join(", ")
            ));
        }
    }
    Ok(config)
}

/// Every option once, by its first appearance, with the policies that have it.
fn distinct_options() -> Vec<(&'static OptionSpec, Vec<&'static str>)> {
    let mut options: Vec<(&'static OptionSpec, Vec<&'static str>)> = Vec::new();
    for row in POLICIES {
        for spec in row.options {
            match options.iter_mut().find(|(seen, _)| seen.key == spec.key) {
                Some((_, policies)) => policies.push(row.name),
                None => options.push((spec, vec![row.name])),
            }
        }
    }
    options
}

/// The flag of an option, without the leading dashes.
fn flag(key: &str) -> String {
    key.replace('_', "-")
}
