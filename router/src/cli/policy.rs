//! The policies on the command line: names, options and help all come from the policy table.

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use router_core::{OptionSpec, POLICIES, Policies, PolicyConfig, Role};

use super::given::{Layer, Origin};
use super::sections::{POLICY, flag};
use super::stop::Stop;
use crate::config::StaticWorker;

/// The policy when none is named: the gateway's.
pub(super) const DEFAULT_POLICY: &str = "cache_aware";

const HEADING: &str = "Policy options";

/// An option that some policies have.
struct SharedOption {
    spec: &'static OptionSpec,
    policies: Vec<&'static str>,
}

/// The flags that name policies, by the role of the workers; those of other roles than the first follow the first.
const FLAGS: [(Role, &str); 3] =
    [(Role::Regular, POLICY), (Role::Prefill, "prefill_policy"), (Role::Decode, "decode_policy")];

/// Whether a flag names a policy.
pub(super) fn is_policy(id: &str) -> bool {
    FLAGS.iter().any(|(_, known)| *known == id)
}

/// What was given.
pub(super) struct PolicyArgs {
    name: String,
    /// Of prefill and of decode workers, where it was said.
    others: [Option<String>; 2],
    /// Whether the command line names one.
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
    /// The policies that were asked for. An option that only other policies have is a warning, so that one command line can
    /// be tried with several policies; but in a file it is a mistake. The environment is silent about it, as it is often
    /// that of several routers.
    ///
    /// # Errors
    /// One line that names the flag, its value and what is allowed.
    pub(super) fn resolve(&self, layer: &Layer, warnings: &mut Vec<String>) -> Result<Policies, Stop> {
        for (option, _) in &self.options {
            self.check_use(option, layer, warnings)?;
        }
        let mut policies = Policies::all(self.policy(&self.name, POLICY)?);
        for ((role, id), name) in FLAGS[1..].iter().zip(&self.others) {
            let Some(name) = name else { continue };
            let policy = self.policy(name, id)?;
            policies = policies.with(*role, policy).map_err(|unfit| Stop::wrong(&flag(id), unfit))?;
        }
        Ok(policies)
    }

    /// A policy with those of the options that it has.
    fn policy(&self, name: &str, named_by: &str) -> Result<PolicyConfig, Stop> {
        let mut config = PolicyConfig::new(name).map_err(|error| Stop::wrong(&flag(named_by), error))?;
        for (option, text) in self.options.iter().filter(|(option, _)| option.policies.contains(&name)) {
            let key = option.spec.key;
            config.set_text(key, text).map_err(|error| Stop::wrong(&flag(key), error))?;
        }
        Ok(config)
    }

    /// Whether some policy that is in use has the option.
    fn check_use(
        &self,
        option: &SharedOption,
        layer: &Layer,
        warnings: &mut Vec<String>,
    ) -> Result<(), Stop> {
        let names = [Some(&self.name), self.others[0].as_ref(), self.others[1].as_ref()];
        let used = FLAGS.iter().zip(names).filter_map(|((_, id), name)| Some((flag(id), name?)));
        let used: Vec<_> = used.collect();
        if used.iter().any(|(_, name)| option.policies.contains(&name.as_str())) {
            return Ok(());
        }
        let flag = flag(option.spec.key);
        let used = used.iter().map(|(flag, name)| format!("{flag} {name}")).collect::<Vec<_>>().join(", ");
        let problem = format!("no effect under {used} (it is for {})", option.policies.join(", "));
        match layer.origin(option.spec.key) {
            None => warnings.push(format!("{flag} has {problem}")),
            Some(Origin::Environment(_)) => {}
            // A flag that names another policy must not make a mistake of the file's options.
            Some(place) if self.is_typed => warnings.push(format!("{place}: {flag} has {problem}")),
            Some(_) => return Err(Stop::wrong(&flag, problem)),
        }
        Ok(())
    }

    /// Whether the policies fit these workers.
    ///
    /// # Errors
    /// The policy for all cannot choose the workers of a role.
    pub(super) fn check_workers(
        &self,
        policies: &Policies,
        workers: &[StaticWorker],
        warnings: &mut Vec<String>,
    ) -> Result<(), Stop> {
        let given = [true, self.others[0].is_some(), self.others[1].is_some()];
        for ((role, id), is_given) in FLAGS.into_iter().zip(given) {
            let count = workers.iter().filter(|worker| worker.role.unwrap_or(Role::Regular) == role).count();
            let policy = policies.get(role);
            let named = flag(if is_given { id } else { POLICY });
            if count > 0 && !is_given && policy.name() != self.name {
                let (name, role) = (&self.name, role.label());
                let problem = format!("is needed beside --policy {name}, which cannot choose {role} workers");
                return Err(Stop::wrong(&flag(id), problem));
            }
            if (1..policy.row().fewest_workers).contains(&count) {
                let kind = if role == Role::Regular { String::new() } else { format!("{} ", role.label()) };
                let name = policy.name();
                warnings.push(format!("{named} {name} has no choice with a single {kind}worker"));
            }
            if is_given && role != Role::Regular && count == 0 {
                let role = role.label();
                warnings.push(format!("{named} is for {role} workers, and none is named so far"));
            }
        }
        Ok(())
    }
}

impl clap::Args for PolicyArgs {
    fn augment_args(command: Command) -> Command {
        let values: Vec<_> =
            POLICIES.iter().map(|row| PossibleValue::new(row.name).help(row.summary)).collect();
        let named = |id: &'static str, help: &'static str| {
            Arg::new(id)
                .long(flag(id).split_off(2))
                .value_name("POLICY")
                .help(help)
                .help_heading(HEADING)
                .value_parser(PossibleValuesParser::new(values.clone()))
        };
        let policy = named(POLICY, "How a worker is chosen").default_value(DEFAULT_POLICY);
        let [_, (_, prefill), (_, decode)] = FLAGS;
        let prefill =
            named(prefill, "How a prefill worker is chosen [default: --policy]").hide_possible_values(true);
        let decode = named(decode, "How a decode worker is chosen; not bucket [default: --policy]")
            .hide_possible_values(true);
        command.args([policy, prefill, decode]).args(SharedOption::all().iter().map(SharedOption::arg))
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
            is_typed: FLAGS.iter().any(|(_, id)| matches.value_source(id) == Some(ValueSource::CommandLine)),
            name: text(POLICY).unwrap_or_else(|| DEFAULT_POLICY.to_owned()),
            others: [FLAGS[1].1, FLAGS[2].1].map(text),
            options: SharedOption::all().into_iter().filter_map(given).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
