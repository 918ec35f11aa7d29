//! Flags of `sglang.launch_server` that have no effect on an emulated engine. They are accepted, so that a command line for
//! the real engine starts a mock of it, and named on standard error: those that mean nothing here, and those that would
//! change times, KV or prompts there, with what decides about these here.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// One flag.
struct Foreign {
    flag: &'static str,
    aliases: &'static [&'static str],
    takes_value: bool,
    /// What decides in its place, where the real engine would be another one with it.
    instead: Option<&'static str>,
}

const fn value(flag: &'static str, aliases: &'static [&'static str]) -> Foreign {
    Foreign { flag, aliases, takes_value: true, instead: None }
}

const fn switch(flag: &'static str) -> Foreign {
    Foreign { flag, aliases: &[], takes_value: false, instead: None }
}

impl Foreign {
    const fn instead(self, what: &'static str) -> Self {
        Self { instead: Some(what), ..self }
    }
}

const KV: &str = "KV has the size that --preset or --kv-tokens says";
const TIMES: &str = "times are those of --preset";
const TEMPLATE: &str = "chats are rendered with a plain template of the mock's own";

const FOREIGN: &[Foreign] = &[
    value("tokenizer-mode", &[]),
    value("tokenizer-worker-num", &[]),
    value("revision", &[]),
    value("dtype", &[]).instead(TIMES),
    value("quantization", &[]).instead(TIMES),
    value("kv-cache-dtype", &[]).instead(KV),
    value("device", &[]),
    value("base-gpu-id", &[]),
    value("pp-size", &["pipeline-parallel-size"]).instead(TIMES),
    value("nnodes", &[]),
    value("node-rank", &[]),
    value("dist-init-addr", &["nccl-init-addr"]),
    value("mem-fraction-static", &[]).instead(KV),
    value("cuda-graph-max-bs", &[]).instead(TIMES),
    value("attention-backend", &[]).instead(TIMES),
    value("sampling-backend", &[]),
    value("grammar-backend", &[]),
    value("watchdog-timeout", &[]),
    value("disaggregation-transfer-backend", &[]),
    value("disaggregation-ib-device", &[]),
    value("log-level", &[]),
    value("log-level-http", &[]),
    value("log-requests-level", &[]),
    value("chat-template", &[]).instead(TEMPLATE),
    switch("trust-remote-code"),
    switch("disable-cuda-graph").instead(TIMES),
    switch("disable-custom-all-reduce"),
    switch("enable-p2p-check"),
    switch("enable-torch-compile").instead(TIMES),
    switch("skip-server-warmup"),
    switch("log-requests"),
];

/// The command, with these flags known to it.
pub(super) fn accept(command: Command) -> Command {
    command.args(FOREIGN.iter().map(|foreign| {
        let arg = Arg::new(foreign.flag).long(foreign.flag).aliases(foreign.aliases).hide(true);
        match foreign.takes_value {
            true => arg.num_args(1).allow_negative_numbers(true),
            false => arg.action(ArgAction::SetTrue),
        }
    }))
}

/// Lines about those that were given: one for those that mean nothing, and one for each that is not emulated.
pub(super) fn notices(matches: &ArgMatches) -> Vec<String> {
    let given = |foreign: &&Foreign| matches.value_source(foreign.flag) == Some(ValueSource::CommandLine);
    let (others, ignored): (Vec<&Foreign>, Vec<&Foreign>) =
        FOREIGN.iter().filter(given).partition(|foreign| foreign.instead.is_some());
    let names: Vec<String> = ignored.iter().map(|foreign| format!("--{}", foreign.flag)).collect();
    let ignored = (!names.is_empty())
        .then(|| format!("ignored, as they mean nothing to an emulated engine: {}", names.join(", ")));
    let other = |foreign: &Foreign| Some(format!("--{} is not emulated: {}", foreign.flag, foreign.instead?));
    ignored.into_iter().chain(others.into_iter().filter_map(other)).collect()
}
