//! The policies on the command line: names, options and help all come from the policy table.

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use router_core::{OptionSpec, POLICIES, PolicyConfig};

use super::given::{Layer, Origin};
use super::sections::flag;
use super::stop::Stop;

/// The policy when none is named: the gateway's.
pub(super) const DEFAULT_POLICY: &str = "cache_aware";

const HEADING: &str = "Policy options";

/// An option that some policies have.
struct SharedOption {
    spec: &'static OptionSpec,
    policies: Vec<&'static str>,
}

/// What was given.
pub(super) struct PolicyArgs {
    name: String,
    /// Whether the command line names it.
    is_typed: bool,
    options: Vec<(SharedOption, String)>,
}

// === impl SharedOption ===

impl SharedOption {
    /// Every option once, by its first appearance.
    fn all() -> Vec<Self> {
        let mut options: Vec<Self> = Vec::new();
        for row in POLICIES {
            for spec in row.options {
                match options.iter_mut().find(|option| option.spec.key == spec.key) {
                    Some(option) => option.policies.push(row.name),
                    None => options.push(Self { spec, policies: vec![row.name] }),
                }
            }
        }
        options
    }

    fn arg(&self) -> Arg {
        Arg::new(self.spec.key)
            .long(flag(self.spec.key).split_off(2))
            .value_name("VALUE")
            .help(self.help())
            .help_heading(HEADING)
            .allow_hyphen_values(true)
            .value_parser(reader(self.spec))
    }

    /// What it does, for which policies, and what it takes.
    fn help(&self) -> String {
        let Self { spec, policies } = self;
        let (policies, default) = (policies.join(", "), spec.default.as_argument());
        format!("{} [{policies}: {}; default: {default}]", capitalised(spec.help), spec.kind)
    }
}

/// Takes the text of a value that the option takes.
fn reader(spec: &'static OptionSpec) -> ValueParser {
    ValueParser::new(move |text: &str| match spec.accept(&spec.parse(text)) {
        Some(_) => Ok(text.to_owned()),
        None => Err(format!("not {}", spec.kind)),
    })
}

pub(super) fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

// === impl PolicyArgs ===

impl PolicyArgs {
    /// The policy that was asked for. An option that only other policies have is a warning, so that one command line can
    /// be tried with several policies; but in a file it is a mistake. The environment is silent about it, as it is often
    /// that of several routers.
    ///
    /// # Errors
    /// One line that names the flag, its value and what is allowed.
    pub(super) fn resolve(&self, layer: &Layer, warnings: &mut Vec<String>) -> Result<PolicyConfig, Stop> {
        let name = &self.name;
        let mut config = PolicyConfig::new(name).map_err(|error| Stop::wrong("--policy", error))?;
        for (option, text) in &self.options {
            let flag = flag(option.spec.key);
            if option.policies.contains(&name.as_str()) {
                config.set_text(option.spec.key, text).map_err(|error| Stop::wrong(&flag, error))?;
                continue;
            }
            let problem =
                format!("no effect under --policy {name} (it is for {})", option.policies.join(", "));
            match layer.origin(option.spec.key) {
                None => warnings.push(format!("{flag} has {problem}")),
                Some(Origin::Environment(_)) => {}
                // A flag that names another policy must not make a mistake of the file's options.
                Some(place) if self.is_typed => warnings.push(format!("{place}: {flag} has {problem}")),
                Some(_) => return Err(Stop::wrong(&flag, problem)),
            }
        }
        Ok(config)
    }
}

impl clap::Args for PolicyArgs {
    fn augment_args(command: Command) -> Command {
        let values = POLICIES.iter().map(|row| PossibleValue::new(row.name).help(row.summary));
        let policy = Arg::new("policy")
            .long("policy")
            .value_name("POLICY")
            .help("How a worker is chosen")
            .help_heading(HEADING)
            .value_parser(PossibleValuesParser::new(values))
            .default_value(DEFAULT_POLICY);
        command.arg(policy).args(SharedOption::all().iter().map(SharedOption::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PolicyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let text = |id| matches.get_one::<String>(id).cloned();
        let given = |option: SharedOption| text(option.spec.key).map(|text| (option, text));
        Ok(Self {
            is_typed: matches.value_source("policy") == Some(ValueSource::CommandLine),
            name: text("policy").unwrap_or_else(|| DEFAULT_POLICY.to_owned()),
            options: SharedOption::all().into_iter().filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
