//! Options of SGLang's gateway that have no effect there either, or whose matter does not arise here: accepted with the
//! gateway's values, so that its command lines go on working, and answered with a warning.

use clap::builder::ValueParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};

use super::readers::whole;
use super::sections::flag;

/// Where `--help` lists them.
pub(super) const HEADING: &str = "Taken from the SGLang gateway's command lines, without effect";

/// One such option.
pub(super) struct Ignored {
    /// Its name; the flag is this with dashes.
    pub(super) id: &'static str,
    takes: Takes,
    /// What happens instead.
    pub(super) instead: &'static str,
    /// Whether that is what was asked for.
    is_granted: bool,
}

enum Takes {
    Nothing,
    Text,
    /// A whole number of this or more.
    AtLeast(i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
}

/// The ones that were given.
pub(super) struct IgnoredArgs(Vec<&'static Ignored>);

const TOKENIZER: &str = "the workers turn text into tokens, with templates and tokenizers of their own";
const CACHE: &str = "nothing is turned into tokens here that could be cached";
const PARSER: &str = "the workers parse what their models say; give them the parser";
const STORE: &str = "responses are kept by the workers, and here is no store for them";
const EVICTION: &str =
    "the prefix index stays within its bounds at all times, and idle keys go when they are due";

const TOOL_PARSERS: &[&str] = &[
    "qwen_coder",
    "passthrough",
    "qwen",
    "json",
    "step3",
    "llama",
    "glm45_moe",
    "glm47_moe",
    "minimax_m2",
    "pythonic",
    "deepseek",
    "kimik2",
    "mistral",
];

const fn row(id: &'static str, takes: Takes, instead: &'static str) -> Ignored {
    Ignored { id, takes, instead, is_granted: false }
}

pub(super) const IGNORED: &[Ignored] = &[
    row(
        "cb_window_duration_secs",
        Takes::AtLeast(1),
        "failures are counted in a row, not within a time, as they are in the gateway",
    ),
    row(
        "worker_startup_check_interval",
        Takes::AtLeast(1),
        "a worker that starts is probed after pauses of a second or so; the gateway uses this for how often it asks workers \
         for their load, which is --load-poll-interval-secs here",
    ),
    row("eviction_interval_secs", Takes::AtLeast(1), EVICTION),
    row("eviction_interval", Takes::AtLeast(1), EVICTION),
    row(
        "enable_igw",
        Takes::Nothing,
        "several models are served without it, each by the workers that have it, and --worker-urls still count",
    ),
    Ignored {
        is_granted: true,
        ..row(
            "backend",
            Takes::OneOf(&["sglang"]),
            "workers are SGLang servers, which are spoken to over HTTP",
        )
    },
    row("model_path", Takes::Text, TOKENIZER),
    row("tokenizer_path", Takes::Text, TOKENIZER),
    row("chat_template", Takes::Text, TOKENIZER),
    row("tokenizer_cache_enable_l0", Takes::Nothing, CACHE),
    row("tokenizer_cache_l0_max_entries", Takes::AtLeast(0), CACHE),
    row("tokenizer_cache_enable_l1", Takes::Nothing, CACHE),
    row("tokenizer_cache_l1_max_memory", Takes::AtLeast(0), CACHE),
    row("reasoning_parser", Takes::Text, PARSER),
    row("tool_call_parser", Takes::OneOf(TOOL_PARSERS), PARSER),
    row("mcp_config_path", Takes::Text, "no tools are called here"),
    row("history_backend", Takes::OneOf(&["memory", "none"]), STORE),
    row("oracle_wallet_path", Takes::Text, STORE),
    row("oracle_tns_alias", Takes::Text, STORE),
    row("oracle_connect_descriptor", Takes::Text, STORE),
    row("oracle_dsn", Takes::Text, STORE),
    row("oracle_username", Takes::Text, STORE),
    row("oracle_user", Takes::Text, STORE),
    row("oracle_password", Takes::Text, STORE),
    row("oracle_pool_min", Takes::AtLeast(0), STORE),
    row("oracle_pool_max", Takes::AtLeast(0), STORE),
    row("oracle_pool_timeout_secs", Takes::AtLeast(0), STORE),
    row("postgres_db_url", Takes::Text, STORE),
    row("postgres_pool_max", Takes::AtLeast(0), STORE),
    row("postgres_pool_max_size", Takes::AtLeast(0), STORE),
    row("redis_url", Takes::Text, STORE),
    row("redis_pool_max", Takes::AtLeast(0), STORE),
    row("redis_pool_max_size", Takes::AtLeast(0), STORE),
    row("redis_retention_days", Takes::AtLeast(-1), STORE),
    row(
        "disable_audit_logging",
        Takes::Nothing,
        "admin calls are logged only where --control-plane-audit-enabled asks for it",
    ),
];

/// The row of a flag, with its dashes.
pub(super) fn find(given: &str) -> Option<&'static Ignored> {
    IGNORED.iter().find(|row| flag(row.id) == given)
}

// === impl Ignored ===

impl Ignored {
    fn arg(&self) -> Arg {
        let arg = Arg::new(self.id).long(flag(self.id).split_off(2)).help_heading(HEADING).help(self.help());
        match self.takes {
            Takes::Nothing => arg.action(ArgAction::SetTrue),
            Takes::Text => arg.value_name("TEXT").allow_hyphen_values(true),
            Takes::AtLeast(least) => arg.value_name("N").value_parser(whole(least..=i64::MAX)),
            Takes::OneOf(words) => arg.value_name("WORD").value_parser(one_of(words, self.instead)),
        }
    }

    /// What happens instead, said once of several flags.
    fn help(&self) -> String {
        let first = IGNORED.iter().find(|row| row.instead == self.instead).unwrap_or(self);
        match self.takes {
            _ if first.id != self.id => format!("As {}", flag(first.id)),
            Takes::OneOf(words) => format!("{}: {}", words.join(", "), self.instead),
            _ => super::policy::capitalised(self.instead),
        }
    }
}

fn one_of(words: &'static [&'static str], instead: &'static str) -> ValueParser {
    ValueParser::new(move |text: &str| match words.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("takes {}: {instead}", words.join(", "))),
    })
}

// === impl IgnoredArgs ===

impl IgnoredArgs {
    /// What is said of each.
    pub(super) fn warn(&self, warnings: &mut Vec<String>) {
        let told = self.0.iter().filter(|row| !row.is_granted);
        warnings.extend(told.map(|row| format!("{} has no effect: {}", flag(row.id), row.instead)));
    }
}

impl clap::Args for IgnoredArgs {
    fn augment_args(command: Command) -> Command {
        command.args(IGNORED.iter().map(Ignored::arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for IgnoredArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |row: &&Ignored| matches.value_source(row.id) == Some(ValueSource::CommandLine);
        Ok(Self(IGNORED.iter().filter(is_given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
