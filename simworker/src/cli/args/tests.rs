use clap::Parser;
use simworker_core::cache::Eviction;
use simworker_core::{EngineConfig, EngineRole, LoadBalance, PRESETS, Pace, Schedule, link};

use super::Args;
use super::words::defaults;
use crate::config::{HostConfig, Mode, Roles};

fn parse(flags: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(std::iter::once("simworker").chain(flags.split_whitespace()))
}

fn resolve(flags: &str) -> HostConfig {
    parse(flags).unwrap().resolve().unwrap()
}

#[test]
fn flags_become_a_configuration() {
    let config = resolve(
        "--workers 3 --kv-tokens 5000 --page-size 16 --schedule-policy lpm --chunked-prefill-size -1 --speed 50 \
         --radix-eviction-policy slru --share-chunks-first --request-overhead 0.5s --preset h200-llama3-8b",
    );
    assert_eq!((config.workers, config.speed), (3, 50.0));
    let engine = config.worker.engine;
    assert_eq!((engine.kv_tokens, engine.page_size, engine.chunked_prefill), (5000, 16, None));
    assert_eq!((engine.schedule, engine.pace, engine.max_running), (Schedule::Lpm, Pace::Step, 2048));
    assert_eq!((engine.eviction, engine.share_chunks_first), (Eviction::Slru, true));
    assert_eq!(config.worker.preset.name, "h200-llama3-8b");
    assert_eq!(config.worker.request_overhead_ns, 500_000_000);
}

#[test]
fn an_interval_is_typed_in_milliseconds() {
    let mode = |flags| resolve(flags).mode;
    assert_eq!(mode("--instant --instant-interval-ms 2.5"), Mode::Instant { interval_ns: 2_500_000 });
    assert_eq!(mode("--instant"), Mode::Instant { interval_ns: 0 });
    assert_eq!(mode(""), Mode::Engine);
}

#[test]
fn without_flags_the_engine_has_its_own_defaults() {
    let expected = EngineConfig { pace: Pace::Step, overlap: true, ..defaults() };
    assert_eq!(resolve("").worker.engine, expected);
    assert_eq!(resolve("").worker.request_overhead_ns, 3_000_000);
}

#[test]
fn the_model_is_named_by_its_path_unless_it_has_a_name() {
    let names = |flags| {
        let worker = resolve(flags).worker;
        (worker.model_path, worker.served_model_name)
    };
    let of = |path: &str, name: &str| (path.to_owned(), name.to_owned());
    let preset = PRESETS[0].model.name;
    assert_eq!(names(""), of(preset, preset));
    assert_eq!(names("--model-path org/model"), of("org/model", "org/model"));
    assert_eq!(names("--model a --served-model-name b"), of("a", "b"));
}

#[test]
fn wrong_flags_name_themselves() {
    let cases = [
        ("--workers 0", "--workers"),
        ("--preset h900", "a100-80g-llama3-8b"),
        ("--schedule-policy sjf", "--schedule-policy"),
        ("--radix-eviction-policy fifo", "slru"),
        ("--speed 0", "--speed"),
        ("--request-overhead 3", "write a number and a unit"),
        ("--request-overhead 2h", "between 0s and 1h"),
        ("--stream-interval 0", "--stream-interval"),
        ("--dp-size 0", "--dp-size"),
        ("--load-balance-method shortest_queue", "use total_requests"),
        ("--load-balance-method minimum_tokens", "use total_tokens"),
        ("--load-balance-method decode_round_robin", "use round_robin"),
        ("--load-balance-method best", "follow_bootstrap_room"),
        ("--disaggregation-mode both", "decode"),
        ("--prefill-workers 0", "--prefill-workers"),
        ("--prefill-workers 1 --disaggregation-mode decode", "--disaggregation-mode"),
        ("--kv-link pigeons", "roce-200g"),
        ("--wrokers 2", "--wrokers"),
    ];
    for (flags, word) in cases {
        let message = parse(flags).expect_err(flags).to_string();
        assert!(message.contains(word), "{flags}: {message}");
    }
}

#[test]
fn roles_ranks_and_links() {
    let config = resolve(
        "--workers 8 --prefill-workers 3 --disaggregation-bootstrap-port 9000 --dp-size 4 --kv-link 25gbe \
         --num-reserved-decode-tokens 7 --disaggregation-decode-enable-radix-cache --enable-dp-attention",
    );
    assert_eq!(config.roles, Roles::Split { prefill: 3 });
    let worker = config.worker;
    assert_eq!((worker.dp_size, worker.dp_attention, worker.load_balance), (4, true, None));
    assert_eq!(worker.bootstrap_port, 9000);
    let handoff = worker.engine.handoff;
    assert_eq!(handoff.link, link("25gbe").unwrap());
    assert_eq!((handoff.num_reserved_decode_tokens, handoff.decode_radix_cache), (7, true));

    let config = resolve("--disaggregation-mode prefill --load-balance-method total_tokens");
    assert_eq!((config.roles, config.worker.engine.role), (Roles::Same, EngineRole::Prefill));
    assert_eq!(config.worker.load_balance, Some(LoadBalance::TotalTokens));
    assert_eq!(config.worker.bootstrap_port, 8998);
    let balance = |flags| resolve(flags).worker.dp().balance;
    assert_eq!(balance("--disaggregation-mode prefill"), LoadBalance::FollowBootstrapRoom);
    assert_eq!(balance("--disaggregation-mode decode"), LoadBalance::RoundRobin);
    assert_eq!(balance("--data-parallel-size 2"), LoadBalance::RoundRobin);
}

#[test]
fn there_must_be_workers_and_ports_for_both_roles() {
    let refused = |flags| parse(flags).unwrap().resolve().expect_err(flags);
    assert!(refused("--workers 4 --prefill-workers 4").contains("no decode workers"));
    let ports = "--workers 3 --prefill-workers 2 --disaggregation-bootstrap-port 65535";
    assert!(refused(ports).contains("--disaggregation-bootstrap-port"));
    assert!(
        parse("--workers 3 --disaggregation-mode decode --disaggregation-bootstrap-port 65535")
            .unwrap()
            .resolve()
            .is_ok()
    );
}

#[test]
fn ports_must_fit() {
    assert!(parse("--port 65535 --workers 2").unwrap().resolve().is_err());
    assert!(parse("--port 65534 --workers 2").unwrap().resolve().is_ok());
    assert!(parse("--port 0 --workers 2").unwrap().resolve().is_ok());
}
