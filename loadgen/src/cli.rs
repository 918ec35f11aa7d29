//! The command line of `loadgen`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::commands::{Command, run};

const EXIT_CODES: &str = "Exit codes: 0 done and all asserts hold, 1 an assert or the gate failed, 2 usage or input error, \
3 the baseline is missing or of another scenario, 4 a live run is invalid because this program was the bottleneck or there are too few repeats, 5 a target did not start or died, 130 interrupted.";

/// Replays shared-prefix workloads and traces against every routing policy, in virtual time and live.
#[derive(Debug, Parser)]
#[command(name = "loadgen", version, after_help = EXIT_CODES)]
#[command(args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Option<run::Options>,
}

/// Reads a command line, whose first argument is the name of the program.
///
/// # Errors
/// The code to exit with, after the help (0) or the usage error (2) has been printed.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, ExitCode> {
    read(args).map_err(|error| {
        // Nothing is left to be done when the terminal is gone.
        let _ = error.print();
        u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
    })
}

fn read(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    let cli = Cli::try_parse_from(args)?;
    match (cli.command, cli.run) {
        (Some(command), _) => Ok(command),
        (None, Some(options)) => Ok(Command::Run(options)),
        (None, None) => {
            let message = "which scenario? Give a file, for example `loadgen scenarios/multi_prefix.toml`\n";
            Err(clap::Error::raw(clap::error::ErrorKind::MissingRequiredArgument, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::scenario::Mode;

    fn read(line: &str) -> Result<run::Options, clap::Error> {
        let words = ["loadgen"].into_iter().chain(line.split_whitespace());
        match super::read(words.map(OsString::from))? {
            Command::Run(options) => Ok(options),
            other => panic!("{other:?} is no run"),
        }
    }

    #[test]
    fn the_word_run_may_be_left_out() {
        let rest =
            "s.toml --mode both --policy a,b --seeds 5 --set a.b=1 --set c=x=y --trace t --out o --quiet";
        let args = read(rest).unwrap();
        assert_eq!(args, read(&format!("run {rest}")).unwrap());
        let (changes, output) = (args.changes, args.output);
        assert_eq!(args.scenario, PathBuf::from("s.toml"));
        assert_eq!((args.mode, changes.seeds, output.quiet), (Some(Mode::Both), Some(5), true));
        assert_eq!(changes.policy.unwrap(), ["a", "b"]);
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(changes.set, [pair("a.b", "1"), pair("c", "x=y")]);
        assert_eq!((changes.trace, output.out), (Some("t".into()), Some("o".into())));
    }

    #[test]
    fn flags_may_stand_before_the_scenario() {
        assert_eq!(read("--seeds 2 s.toml").unwrap(), read("s.toml --seeds 2").unwrap());
        assert_eq!(read("s.toml --policy *").unwrap().changes.policy.unwrap(), ["*"]);
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
