//! Flags of `sglang.launch_server` that mean nothing to an emulated engine. They are accepted and ignored, so that a
//! command line for the real engine starts a mock of it; flags that would change what a client sees are not here.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// One flag.
struct Foreign {
    flag: &'static str,
    aliases: &'static [&'static str],
    takes_value: bool,
}

const fn value(flag: &'static str, aliases: &'static [&'static str]) -> Foreign {
    Foreign { flag, aliases, takes_value: true }
}

const fn switch(flag: &'static str) -> Foreign {
    Foreign { flag, aliases: &[], takes_value: false }
}

const FOREIGN: &[Foreign] = &[
    value("tokenizer-path", &[]),
    value("tokenizer-mode", &[]),
    value("tokenizer-worker-num", &[]),
    value("load-format", &[]),
    value("revision", &[]),
    value("dtype", &[]),
    value("quantization", &[]),
    value("kv-cache-dtype", &[]),
    value("device", &[]),
    value("base-gpu-id", &[]),
    value("tp-size", &["tensor-parallel-size", "tp"]),
    value("pp-size", &["pipeline-parallel-size"]),
    value("nnodes", &[]),
    value("node-rank", &[]),
    value("dist-init-addr", &["nccl-init-addr"]),
    value("mem-fraction-static", &[]),
    value("cuda-graph-max-bs", &[]),
    value("attention-backend", &[]),
    value("sampling-backend", &[]),
    value("grammar-backend", &[]),
    value("watchdog-timeout", &[]),
    value("disaggregation-transfer-backend", &[]),
    value("disaggregation-ib-device", &[]),
    value("log-level", &[]),
    value("log-level-http", &[]),
    value("log-requests-level", &[]),
    value("decode-log-interval", &[]),
    value("chat-template", &[]),
    switch("trust-remote-code"),
    switch("disable-cuda-graph"),
    switch("disable-custom-all-reduce"),
    switch("enable-p2p-check"),
    switch("enable-torch-compile"),
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

/// One line about those that were given, if any were.
pub(super) fn warning(matches: &ArgMatches) -> Option<String> {
    let given = |foreign: &&Foreign| matches.value_source(foreign.flag) == Some(ValueSource::CommandLine);
    let names: Vec<String> =
        FOREIGN.iter().filter(given).map(|foreign| format!("--{}", foreign.flag)).collect();
    (!names.is_empty())
        .then(|| format!("ignored, as they mean nothing to an emulated engine: {}", names.join(", ")))
}
