//! The command line of `router launch`: options of its own, the router's with a prefix, and the workers' command.

use std::ffi::OsString;
use std::time::Duration;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::command::Template;
use crate::cli::{self, Stop, whole};

/// Start workers and the router in front of them in one go, and end them together.
///
/// COMMAND is started once for every worker, with {port} and {index} replaced by the worker's port and its number from 0
/// on. It must listen on 127.0.0.1 or on all addresses. A worker that exits is started again.
#[derive(Parser)]
#[command(
    name = "router launch",
    bin_name = "router launch",
    override_usage = "router launch [OPTIONS] [--router-OPTION [VALUE]]... -- COMMAND [ARGUMENT]...",
    max_term_width = 120,
    after_help = ROUTER_OPTIONS,
    after_long_help = AFTER_HELP
)]
struct Args {
    /// Workers to start
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        visible_aliases = ["data-parallel-size", "dp"],
        value_parser = whole(1_u16..=1024)
    )]
    dp_size: u16,
    /// Port of the first worker; each further one gets the next that is free. 0 takes any free ports
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 31000,
        visible_alias = "router-dp-worker-base-port",
        value_parser = whole(0..=u16::MAX)
    )]
    dp_base_port: u16,
    /// Address that the router listens on [default: 0.0.0.0]
    #[arg(long)]
    host: Option<OsString>,
    /// Port that the router listens on; 0 takes a free one [default: 30000]
    #[arg(long)]
    port: Option<OsString>,
    /// Seconds that workers may take to end after SIGTERM, once the router has ended; then they are killed
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = whole(0_u64..=86_400))]
    worker_grace_period_secs: u64,
    /// What starts a worker
    #[arg(last = true, value_name = "COMMAND", hide = true)]
    command: Vec<OsString>,
}

const ROUTER_OPTIONS: &str = "\
Options of the router: every one that `router --help` lists, with router- before its name, such as --router-policy. Not \
--worker-urls: the workers are those that are started.";

const AFTER_HELP: &str = "\
Options of the router:
  Every one that `router --help` lists, with router- before its name, such as --router-policy. Not --worker-urls: the \
workers are those that are started.

Example:
  router launch --dp-size 4 --router-policy cache_aware -- \\
      python -m sglang.launch_server --model-path MODEL --port {port} --base-gpu-id {index}

The workers' output goes to standard error, each line with [worker INDEX] before it. A worker that exits is started \
again after 1 s, then after 2 s and so on up to 30 s; after a life of 60 s it begins at 1 s again.

Each worker is a process group of its own, and all of it is ended when its first process ends: a script that starts \
the worker as its last step should do so by exec. Should this program be killed, a second process of it ends the \
workers; what they read from standard input, which says nothing, ends too.

SIGTERM or SIGINT: the router finishes what is under way, then the workers get SIGTERM. A second signal ends the \
router at once, a further one the workers. Under systemd give KillMode=mixed, or the workers are told before.

Exit codes:
  0  It was told to end, and ended
  2  The command line is wrong
  5  It cannot start: no such command, an address is taken, or the system refuses";

/// For who expects the options of SGLang's launch_server.
const EXAMPLE: &str =
    "router launch --dp-size 2 -- python -m sglang.launch_server --model-path MODEL --port {port}";

/// What the router's options have before their names.
const PREFIX: &str = "--router-";

const HELP: &str = "--help";

/// Options of ours that begin like the router's.
const OURS: &[&str] = &["--router-dp-worker-base-port"];

/// Options of the router that have their own way here, and which.
const ELSEWHERE: &[(&str, &str)] = &[
    ("--router-host", "give --host"),
    ("--router-port", "give --port"),
    ("--router-worker-urls", "the workers are those that are started; leave it out"),
    ("--router-pd-disaggregation", PAIRS),
    ("--router-prefill", PAIRS),
    ("--router-decode", PAIRS),
];

/// All workers are started by one command, with a port each; a prefill worker has two.
const PAIRS: &str = "all workers that are started do the same; start prefill and decode workers by themselves, and give them \
                     to `router --pd-disaggregation`";

/// What a command line asks for.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) workers: usize,
    /// 0: any free ports.
    pub(super) base_port: u16,
    pub(super) grace: Duration,
    pub(super) command: Template,
    /// The router's options, without the prefix.
    router: Vec<OsString>,
}

impl Launch {
    /// Reads a command line, without the words that lead here.
    ///
    /// # Errors
    /// [`Stop`].
    pub(super) fn parse(args: Vec<OsString>) -> Result<Self, Stop> {
        let (ours, mut router) = split(args)?;
        if router.iter().any(|word| word == HELP) {
            cli::parse_router_args(["router", HELP].map(OsString::from).into_iter())?;
        }
        let args =
            Args::try_parse_from(std::iter::once("router launch".into()).chain(ours)).map_err(refusal)?;
        for (flag, value) in [("--host", &args.host), ("--port", &args.port)] {
            router.extend(value.iter().flat_map(|value| [flag.into(), value.clone()]));
        }
        Ok(Self {
            workers: usize::from(args.dp_size),
            base_port: args.dp_base_port,
            grace: Duration::from_secs(args.worker_grace_period_secs),
            command: Template::new(args.command).map_err(Stop::Wrong)?,
            router,
        })
    }

    /// Stand for the workers' until these are chosen.
    pub(super) fn planned_ports(&self) -> Vec<u16> {
        (1..).take(self.workers).collect()
    }

    /// Reads the router's options, for workers on these ports.
    ///
    /// # Errors
    /// [`Stop`], with the names as they are here.
    pub(super) fn router(&self, ports: &[u16]) -> Result<cli::Parsed, Stop> {
        let urls = ports.iter().map(|port| format!("http://127.0.0.1:{port}").into());
        let args = ["router".into()].into_iter().chain(self.router.iter().cloned());
        let parsed = cli::parse_router_args(args.chain(["--worker-urls".into()]).chain(urls));
        let mut parsed = parsed.map_err(|stop| stop.renamed(with_prefix))?;
        for warning in &mut parsed.warnings {
            *warning = with_prefix(warning);
        }
        Ok(parsed)
    }
}

/// Ours, and the router's without the prefix. A word that is no option belongs to the option before it.
fn split(args: Vec<OsString>) -> Result<(Vec<OsString>, Vec<OsString>), Stop> {
    let (mut ours, mut router) = (Vec::new(), Vec::new());
    let mut is_routers = false;
    let mut args = args.into_iter();
    while let Some(word) = args.next() {
        if word == "--" {
            ours.push(word);
            ours.extend(args);
            break;
        }
        let text = word.to_string_lossy();
        if let Some(name) = text.strip_prefix(PREFIX).filter(|_| !OURS.contains(&bare(&text))) {
            if let Some((flag, remedy)) = ELSEWHERE.iter().find(|(flag, _)| *flag == bare(&text)) {
                return Err(Stop::Wrong(format!("{flag}: {remedy}")));
            }
            is_routers = true;
            router.push(format!("--{name}").into());
            continue;
        }
        is_routers &= !text.starts_with("--");
        if is_routers { router.push(word) } else { ours.push(word) }
    }
    Ok((ours, router))
}

/// Of an option that may have its value behind an equals sign.
fn bare(option: &str) -> &str {
    option.split('=').next().unwrap_or(option)
}

/// The likeliest slips: an option of the router's without its prefix, and a command of the workers' without the `--` before
/// it.
fn refusal(error: clap::Error) -> Stop {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return Stop::from(error);
    };
    let name = bare(word).trim_start_matches("--");
    if cli::has_option(name) {
        let routers = format!("{PREFIX}{name}");
        let elsewhere = ELSEWHERE.iter().find(|(flag, _)| *flag == routers);
        let remedy = elsewhere.map_or(format!("write {routers}"), |(_, remedy)| (*remedy).to_owned());
        return Stop::Wrong(format!("{word}: the router's options begin with {PREFIX} here; {remedy}"));
    }
    let what = if word.starts_with('-') { "there is no such option" } else { "not an option" };
    Stop::Wrong(format!(
        "{word}: {what}; the router's begin with {PREFIX}, and what is the workers' stands in their command, at the end: \
         {EXAMPLE}"
    ))
}

/// What the router says, with its options named as they are here.
pub(super) fn with_prefix(message: &str) -> String {
    let mut words = message.split("--");
    let mut renamed = words.next().unwrap_or_default().to_owned();
    for word in words {
        let end = word.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        let is_option = word.starts_with(|c: char| c.is_ascii_lowercase());
        let is_shared = ["host", "port", "help"].contains(&&word[..end.unwrap_or(word.len())]);
        renamed.push_str(if is_option && !is_shared { PREFIX } else { "--" });
        renamed.push_str(word);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn options_with_the_prefix_are_the_routers() {
        for (given, ours, router) in [
            ("--dp-size 2 -- w", "--dp-size 2 -- w", ""),
            (
                "--router-policy random --dp-size 2 -- w --router-x",
                "--dp-size 2 -- w --router-x",
                "--policy random",
            ),
            ("--router-a=1 --router-b --router-c 1 -2 3 --host h", "--host h", "--a=1 --b --c 1 -2 3"),
            ("--router-dp-worker-base-port 9 --router-a", "--router-dp-worker-base-port 9", "--a"),
            ("--router-dp-worker-base-port=9 x", "--router-dp-worker-base-port=9 x", ""),
            ("stray --router-a -h", "stray", "--a -h"),
        ] {
            let (got_ours, got_router) = split(words(given)).expect(given);
            assert_eq!((got_ours, got_router), (words(ours), words(router)), "{given}");
        }
        for given in ["--router-host h", "--router-port=1", "--router-worker-urls http://w"] {
            assert!(split(words(given)).is_err(), "{given}");
        }
    }

    #[test]
    fn messages_name_options_as_they_were_given() {
        for (said, renamed) in [
            ("--policy: no", "--router-policy: no"),
            ("invalid '--seed <N>', see --help", "invalid '--router-seed <N>', see --help"),
            ("--host: or --port; -- and a--", "--host: or --port; -- and a--"),
            ("--port-x --hosts", "--router-port-x --router-hosts"),
            ("", ""),
        ] {
            assert_eq!(with_prefix(said), renamed);
        }
    }

    #[test]
    fn the_help_is_well_formed() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
