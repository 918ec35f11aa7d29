use clap::Parser;
use protocol::kv_events::Shape;
use simworker_core::cache::{Eviction, WritePolicy};
use simworker_core::{
    EngineConfig, EngineRole, LoadBalance, PRESETS, Pace, PrefillInterval, PriorityConfig, QueueConfig,
    Schedule, link,
};

use super::Args;
use super::words::defaults;
use crate::config::{Compat, Health, HostConfig, Http2Config, Mode, Roles, WireConfig};

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
fn flags_of_the_queue_reach_the_engine() {
    let engine = resolve(
        "--schedule-policy lof --enable-priority-scheduling --schedule-low-priority-values-first \
         --priority-scheduling-preemption-threshold 3 --random-seed 7 --waiting-timeout 2s --running-timeout 1m \
         --load-snapshot-publish-interval 1 --decode-log-interval 7 --enable-mixed-chunk --prefill-max-requests 4 --prefill-decode-interval 5 \
         --prefill-decode-interval-min-bs 2 --abort-on-priority-when-disabled",
    )
    .worker
    .engine;
    let queue = QueueConfig {
        seed: 7,
        priority: Some(PriorityConfig { low_values_first: true, preempts_above: Some(3) }),
        refuses_priorities: true,
        waiting_timeout_ns: Some(2_000_000_000),
        running_timeout_ns: Some(60_000_000_000),
    };
    assert_eq!((engine.schedule, engine.queue), (Schedule::Lof, queue));
    assert_eq!((engine.mixed_chunk, engine.prefill_max_requests), (true, Some(4)));
    assert_eq!((engine.load_report_steps, engine.decode_log_interval), (1, 7));
    assert_eq!(engine.prefill_interval, PrefillInterval { steps: 5, min_batch: 2 });
    let priority = resolve("--enable-priority-scheduling --disable-priority-preemption").worker.engine.queue;
    assert_eq!(priority.priority.unwrap().preempts_above, None);
    assert_eq!(resolve("--schedule-low-priority-values-first").worker.engine.queue.priority, None);
}

#[test]
fn the_host_has_a_multiple_of_the_device_or_gigabytes() {
    let tier = |flags: &str| resolve(&format!("--kv-tokens 5000 {flags}")).worker.engine.host_tier;
    assert_eq!(tier("--hicache-ratio 3"), None, "it must be switched on");
    let on = |flags: &str| tier(&format!("--enable-hierarchical-cache {flags}")).unwrap();
    assert_eq!((on("").tokens, on("").write), (10_000, WritePolicy::Through));
    assert_eq!((on("--hicache-ratio 0.5").tokens, on("").load_back_threshold), (2_500, 10));
    assert_eq!(on("--hicache-size 10 --hicache-ratio 3").tokens, 76_293, "10 GB of 131,072 bytes each");
    let four = on("--preset h100-tp4-llama3-70b --hicache-size 10 --hicache-bandwidth 50");
    assert_eq!((four.tokens, four.bytes_per_second), (122_070, 200e9), "four GPUs with 10 GB each");
    assert_eq!(on("--hicache-write-policy write_back").write, WritePolicy::Back);
}

#[test]
fn older_workers_write_older_events() {
    let shape = |flags: &str| {
        let flags = format!("--kv-events-config {{\"publisher\":\"zmq\"}} {flags}");
        resolve(&flags).worker.kv_events.unwrap().shape
    };
    assert_eq!((shape(""), shape("--compat older")), (Shape::Map, Shape::Array));
    assert_eq!(resolve("--kv-events-config {}").worker.kv_events, None);
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
        ("--radix-eviction-policy tlru", "slru"),
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

#[test]
fn what_clients_see_is_sglangs_by_default_and_can_be_had_otherwise() {
    let plain = resolve("").worker.wire;
    let expected = WireConfig { health: Health::Generation, enable_metrics: false, ..WireConfig::mock() };
    assert_eq!(plain, expected);
    let flags = "--compat older --health-at-once --enable-metrics --api-key k --admin-api-key a --enable-http2 \
        --http2-max-concurrent-streams 8 --allow-auto-truncate --is-embedding --tool-call-parser llama3 \
        --stream-response-default-include-usage --default-priority-value -3 --tokenizer-path t --load-format dummy --tp 4";
    let expected = WireConfig {
        compat: Compat::Older,
        health: Health::AtOnce,
        enable_metrics: true,
        api_key: Some("k".into()),
        admin_api_key: Some("a".into()),
        http2: Some(Http2Config { max_concurrent_streams: 8 }),
        allow_auto_truncate: true,
        is_embedding: true,
        stream_include_usage: true,
        default_priority: Some(-3),
        tokenizer_path: Some("t".into()),
        load_format: "dummy".into(),
        tp_size: Some(4),
        reasoning_parser: None,
        tool_call_parser: Some("llama3".into()),
    };
    assert_eq!(resolve(flags).worker.wire, expected);
    assert_eq!(resolve("--instant").worker.wire.health, Health::AtOnce, "there is no engine to ask");
    assert!(parse("--http2-max-concurrent-streams 0").is_err());
    assert!(parse("--compat ancient").unwrap_err().to_string().contains("older"));
}

#[test]
fn calibrate_is_a_command_of_its_own() {
    assert!(parse("calibrate --url http://127.0.0.1:1 --limit 10s").unwrap().command.is_some());
    assert!(parse("calibrate").unwrap_err().to_string().contains("--url"));
    assert!(
        parse("calibrate --url http://x:1 --limit 2h").unwrap_err().to_string().contains("between 1s and 1h")
    );
}

#[test]
fn what_is_added_to_the_engines_times() {
    let live = resolve("--token-overhead 75us --jitter 0.1 --jitter-seed 4").worker.live;
    assert_eq!((live.token_overhead_ns, live.jitter, live.jitter_seed), (75_000, 0.1, 4));
    let live = resolve("").worker.live;
    assert_eq!((live.token_overhead_ns, live.jitter, live.tells_lag), (0, 0.0, true));
}
