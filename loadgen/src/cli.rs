//! The command line of `loadgen`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::scenario::Mode;

const EXIT_CODES: &str = "Exit codes: 0 done and all asserts hold, 1 an assert failed, 2 usage or input error, \
4 a live run is invalid because this program was the bottleneck, 5 a target did not start or died, 130 interrupted.";

/// Replays shared-prefix workloads and traces against every routing policy, in virtual time and live.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, after_help = EXIT_CODES)]
#[command(args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Option<Options>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario (the word `run` may be left out)
    Run(Options),
}

/// `loadgen [run] SCENARIO …`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Options {
    /// The scenario file
    #[arg(value_name = "SCENARIO")]
    pub scenario: PathBuf,
    /// Where to run it; overrides the file
    #[arg(long, value_name = "virtual|live|both", hide_possible_values = true)]
    pub mode: Option<Mode>,
    /// The policies to run, "*" for every policy that needs no header; overrides the file
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Option<Vec<String>>,
    /// How many seeds to run, counted up from the file's seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seeds: Option<u32>,
    /// A key of the file and its new value, for example `--set fleet.workers=4`; may be repeated
    #[arg(long, value_name = "PATH=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// The trace to replay; overrides the file
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// Where results go (by default reports/NAME-OF-THE-SCENARIO/)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print errors only
    #[arg(long)]
    pub quiet: bool,
}

/// Reads a command line, whose first argument is the name of the program.
///
/// # Errors
/// The code to exit with, after the help (0) or the usage error (2) has been printed.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Options, ExitCode> {
    read(args).map_err(|error| {
        // Nothing is left to be done when the terminal is gone.
        let _ = error.print();
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

fn read(args: impl IntoIterator<Item = OsString>) -> Result<Options, clap::Error> {
    let cli = Cli::try_parse_from(args)?;
    match (cli.command, cli.run) {
        (Some(Command::Run(options)), _) | (None, Some(options)) => Ok(options),
        (None, None) => {
            let message = "which scenario? Give a file, for example `loadgen scenarios/multi_prefix.toml`\n";
            Err(clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, message))
        }
    }
}

impl ValueEnum for Mode {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.label()))
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, value)) if !path.trim().is_empty() => {
            Ok((path.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write PATH=VALUE, for example fleet.workers=4".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, clap::Error> {
        super::read(["loadgen"].into_iter().chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn the_word_run_may_be_left_out() {
        let rest =
            "s.toml --mode both --policy a,b --seeds 5 --set a.b=1 --set c=x=y --trace t --out o --quiet";
        let args = read(rest).unwrap();
        assert_eq!(args, read(&format!("run {rest}")).unwrap());
        assert_eq!(args.scenario, PathBuf::from("s.toml"));
        assert_eq!((args.mode, args.seeds, args.quiet), (Some(Mode::Both), Some(5), true));
        assert_eq!(args.policy.unwrap(), ["a", "b"]);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(args.set, [pair("a.b", "1"), pair("c", "x=y")]);
        assert_eq!((args.trace, args.out), (Some("t".into()), Some("o".into())));
    }

    #[test]
    fn flags_may_stand_before_the_scenario() {
        assert_eq!(read("--seeds 2 s.toml").unwrap(), read("s.toml --seeds 2").unwrap());
        assert_eq!(read("s.toml --policy *").unwrap().policy.unwrap(), ["*"]);
    }

    #[test]
    fn usage_errors_exit_with_2() {
        for line in [
            "",
            "run",
            "s.toml t.toml",
            "s.toml --seeds 0",
            "s.toml --mode fast",
            "s.toml --set x",
            "s.toml --set =1",
            "s.toml --nonsense",
        ] {
            let error = read(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
        }
        assert_eq!(read("--help").unwrap_err().exit_code(), 0);
    }
}
