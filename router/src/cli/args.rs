//! The whole command line, and how it becomes a [`Config`]. Each group of flags is a file beside this one: what can be
//! typed, with its defaults and ranges, and a `resolve` that makes of it what the router runs with.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};

use super::SUBCOMMANDS;
use super::breaker::BreakerArgs;
use super::disaggregation::{self, PairArgs, Rule};
use super::file::File;
use super::file_workers::FileWorker;
use super::given::{Environment, Layer, Origin};
use super::health::HealthArgs;
use super::ignored::IgnoredArgs;
use super::limits::LimitArgs;
use super::observe::{self, LogLevel, ObserveArgs, RUST_LOG};
use super::policy::PolicyArgs;
use super::process::ProcessArgs;
use super::retries::RetryArgs;
use super::security::SecurityArgs;
use super::source::{Source, Values};
use super::stop::Stop;
use super::timeouts::TimeoutArgs;
use super::traffic::{self, TrafficArgs};
use super::workers::{self, WorkerArgs};
use crate::config::{Config, ConnectionLimits, Settings};

/// A streaming reverse proxy for SGLang workers.
#[derive(Parser)]
#[command(name = "router", version, max_term_width = 120, after_help = EXIT_CODES)]
#[command(disable_help_subcommand = true)]
struct Args {
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    workers: WorkerArgs,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    policy: PolicyArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    retries: RetryArgs,
    #[command(flatten)]
    breaker: BreakerArgs,
    #[command(flatten)]
    health: HealthArgs,
    #[command(flatten)]
    timeouts: TimeoutArgs,
    #[command(flatten)]
    security: SecurityArgs,
    #[command(flatten)]
    observe: ObserveArgs,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    ignored: IgnoredArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  It was told to end, and ended
  2  The command line or the configuration file is wrong
  5  It cannot start: an address is taken, or the system refuses";

/// What the command line, the environment and the file say.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) config: Config,
    pub(crate) log_level: LogLevel,
    /// To be logged.
    pub(crate) warnings: Vec<String>,
    /// Of the last workers of the configuration, where each was written.
    pub(super) worker_places: Vec<Origin>,
}

/// Reads a command line; the first argument is the name of the program.
///
/// # Errors
/// [`Stop`].
pub(super) fn parse(
    args: impl Iterator<Item = OsString>,
    environment: Environment<'_>,
) -> Result<Parsed, Stop> {
    let arguments: Vec<OsString> = args.collect();
    // Each reading takes a copy: one that was read with cannot be changed any more.
    let command = command();
    // By itself first: what is wrong with the command line is not to be blamed on a file, and a file is named in it.
    let typed = command.clone().try_get_matches_from(&arguments);
    let typed = typed.map_err(|error| Stop::of_line(error, &arguments))?;
    if let Some(name) = typed.subcommand_name() {
        return Err(Stop::Wrong(format!("'{name}' comes before all flags: router {name} …")));
    }
    let file = typed.get_one::<PathBuf>("config").map(|path| File::read(path, &command)).transpose()?;
    let File { mut layer, mut workers, mark } = file.unwrap_or_default();
    let variables = Layer::of_environment(environment)?;
    variables.check(&mut command.clone())?;
    layer.0.extend(variables.0);
    let matches = layer.apply(command.clone()).try_get_matches_from(&arguments)?;
    layer.retain_used(&matches);
    // What is typed takes the place of what the file says of the workers of that role.
    let is_typed = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
    workers.retain(|row| !is_typed(workers::id_of(row.worker.role)));
    let values = Values::new(&command, &matches, &layer);
    let mut parsed = resolve(&matches, &layer, workers).map_err(|stop| layer.locate(stop))?;
    parsed.warnings.extend(observe::filter(parsed.log_level, environment(RUST_LOG)).err());
    let source = Source { arguments, values, file: mark };
    Ok(Parsed { config: Config { source, ..parsed.config }, ..parsed })
}

fn resolve(matches: &ArgMatches, layer: &Layer, file: Vec<FileWorker>) -> Result<Parsed, Stop> {
    let args = Args::from_arg_matches(matches)?;
    let mut warnings = Vec::new();
    let policies = args.policy.resolve(layer, &mut warnings)?;
    let worker_places = file.iter().map(|worker| worker.place.clone()).collect();
    let pairs = args.pairs.resolve()?;
    let fleet = args.workers.resolve(pairs.workers, file, &mut warnings)?;
    pairs.rule.check(&fleet.workers, &mut warnings)?;
    disaggregation::warn_unused(pairs.decode_dispatch_limit, pairs.preference, &fleet.workers, &mut warnings);
    args.policy.check_workers(&policies, &fleet.workers, &mut warnings)?;
    args.ignored.warn(&mut warnings);
    let is_given =
        |id: &str| layer.origin(id).is_some() || matches.value_source(id) == Some(ValueSource::CommandLine);
    args.retries.warn(is_given, &mut warnings);
    if is_given("dp_rank_field") && !fleet.dp_aware {
        warnings.push("--dp-rank-field has no effect without --dp-aware".to_owned());
    }
    let clients = args.traffic.resolve()?;
    if let Some(own) = fleet.workers.iter().find(|worker| worker.address.is_at(clients.listen)) {
        let problem = format!(
            "`{}` is where the router itself listens, by --host and --port; give the engine's port, or the router \
             another --port",
            own.address.url
        );
        return Err(Stop::wrong(workers::flag_of(own.role), problem));
    }
    let limits = args.limits.resolve()?;
    let security = args.security.resolve()?;
    let observe = args.observe.resolve()?;
    let times = args.timeouts.resolve();
    let settings = Settings {
        max_payload_size: limits.max_payload_size,
        timeouts: times.timeouts,
        api_key: security.api_key,
        worker_key: security.worker_key,
        added_worker_key: security.added_worker_key,
        recovery_secs: args.health.recovery_secs(),
        decision_headers: observe.decision_headers,
        request_id_headers: observe.request_id_headers,
        extra_endpoints: clients.extra_endpoints,
        access_log: observe.access_log,
        retry: args.retries.resolve()?,
        admission: limits.admission,
        duration_buckets: observe.duration_buckets,
        admin_keys: security.admin_keys,
        audit: security.audit,
        cors: security.cors,
        warm_up: fleet.warm_up,
        drain_timeout: fleet.drain_timeout,
        expects_pairs: pairs.rule == Rule::Both,
        dp_rank_field: fleet.dp_rank_field,
    };
    let process = args.process;
    let admin = security.admin_listen.map(|address| ("--admin-port", address));
    let listeners: Vec<_> = [("--port", clients.listen)]
        .into_iter()
        .chain(admin)
        .chain([("--prometheus-port", observe.metrics_listen)])
        .collect();
    traffic::differ(&listeners)?;
    workers::are_others(&fleet.workers, &listeners)?;
    let shutdown = process.shutdown(layer.is_given(matches, "shutdown_pause_secs"))?;
    let config = Config {
        listen: clients.listen,
        metrics_listen: observe.metrics_listen,
        admin_listen: security.admin_listen,
        connections: ConnectionLimits {
            max_connections: limits.max_connections,
            max_header_bytes: limits.max_header_bytes,
            header_timeout: times.header,
            idle_timeout: times.idle,
        },
        server_tls: security.server_tls,
        upstream_tls: security.upstream_tls,
        workers: fleet.workers,
        startup_timeout: fleet.startup_timeout,
        policies,
        pair: pairs.preference,
        decode_dispatch_limit: pairs.decode_dispatch_limit,
        dp_aware: fleet.dp_aware,
        seed: process.seed(),
        threads: process.threads(),
        settings,
        load_poll_interval: fleet.load_poll_interval,
        info_interval: fleet.info_interval,
        health: args.health.resolve(),
        breaker: args.breaker.resolve(),
        shutdown,
        exit_with_stdin: process.exit_with_stdin,
        log_dir: observe.log_dir,
        recorder: observe.recorder,
        config_file: process.config,
        source: Source::default(),
    };
    Ok(Parsed { config, log_level: observe.log_level, warnings, worker_places })
}

/// Every flag. A negative number is a value, so that it is refused by the flag that it was given to.
pub(super) fn command() -> clap::Command {
    let subcommands = SUBCOMMANDS.iter().map(|row| clap::Command::new(row.name).about(row.about));
    Args::command().subcommands(subcommands).mut_args(|arg| {
        let takes_values = arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_values)
    })
}
