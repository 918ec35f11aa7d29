//! The same in front of simulated workers, which answer as SGLang does.

use simworker::config::{HostConfig, Mode, Roles, WatchConfig, WorkerConfig};
use simworker::host::Host;
use simworker_core::preset;

use super::exposition::assert_valid;
use super::{send, wait_until_ready};
use crate::common::{Router, wait_until};

fn fleet(workers: u32) -> Host {
    let preset = preset("a100-80g-llama3-8b").expect("a preset");
    let worker = WorkerConfig::mock(preset);
    let host = "127.0.0.1".to_owned();
    let watch = WatchConfig { control: None, faults: Vec::new(), seed: 1 };
    let config = HostConfig {
        workers,
        host,
        port: 0,
        speed: 50.0,
        worker,
        roles: Roles::default(),
        mode: Mode::Engine,
        watch,
    };
    Host::start(&config).expect("free ports")
}

#[test]
fn every_question_is_answered_by_workers_as_sglangs_are() {
    let fleet = fleet(2);
    let urls: Vec<String> = fleet.urls().collect();
    let router = Router::start(&urls, &["--policy", "cache_aware"]);
    wait_until_ready(&router, 2);

    let models = router.get("/v1/models").json();
    assert_eq!(
        (&models["data"][0]["id"], models["data"].as_array().map(Vec::len)),
        (&"mock".into(), Some(1))
    );
    assert!(models["data"][0]["max_model_len"].is_u64());

    assert_eq!(router.get("/model_info").json()["model_path"], "org/mock");
    let info = router.get("/get_server_info").json();
    assert!(
        info["max_total_num_tokens"].is_u64() && info["internal_states"][0]["memory_usage"].is_object(),
        "{info}"
    );
    assert_eq!(info["router"]["workers"][1]["info"]["model_path"], "org/mock");

    let body = br#"{"model":"mock","prompt":"one two three","max_tokens":4}"#;
    assert_eq!(router.post("/v1/completions", body).status(), 200);
    let loads = router.get("/v1/loads?include=core").json();
    assert_eq!(loads["loads"].as_array().map(Vec::len), Some(2));
    assert!(loads["loads"][1].get("memory").is_none(), "only what was asked for: {loads}");
    assert_eq!(
        (&loads["loads"][1]["worker"], &loads["loads"][1]["dp_rank"]),
        (&urls[1].clone().into(), &0.into())
    );
    let tokens = router.get("/get_loads").json();
    assert!(
        tokens["workers"].as_array().expect("a list").iter().all(|row| row["load"].as_i64() >= Some(0)),
        "{tokens}"
    );
    assert_valid(&router.get("/v1/loads?format=prometheus"));

    let page = router.get("/engine_metrics");
    assert_valid(&page);
    for url in &urls {
        let series = format!("sglang_num_running_reqs{{worker_addr=\"{url}\",");
        assert!(page.text().contains(&series), "{series} in {}", page.text());
    }
    assert_eq!(router.get("/health_generate").json(), serde_json::json!({"status": "healthy", "workers": 2}));
}

#[test]
fn an_emptied_cache_is_forgotten_on_both_sides() {
    let fleet = fleet(1);
    let urls: Vec<String> = fleet.urls().collect();
    let router = Router::start(&urls, &["--policy", "cache_aware", "--decision-headers"]);
    wait_until_ready(&router, 1);
    let text = "a prompt that is long enough to be remembered ".repeat(40);
    let body = format!(r#"{{"model":"mock","prompt":"{text}","max_tokens":4}}"#);
    let ask = || {
        let answer = router.post("/v1/completions", body.as_bytes());
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let believed = answer
            .header("x-router-predicted-tokens")
            .map_or(0, |text| text.parse::<u64>().expect("a number"));
        let cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
        (believed > 0, cached > 0)
    };
    assert_eq!((ask(), ask()), ((false, false), (true, true)));
    wait_until("the engine to be idle", || {
        send(&router, "POST", "/flush_cache?timeout=5", "").status() == 200
    });
    assert_eq!((ask(), ask()), ((false, false), (true, true)));
}
