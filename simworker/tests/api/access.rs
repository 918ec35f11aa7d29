//! API keys, in both modes and under control.

use serde_json::json;
use simworker::config::{Mode, WorkerConfig};

use crate::client::Worker;

fn locked(config: &mut WorkerConfig) {
    config.wire.api_key = Some("secret".into());
    config.wire.admin_api_key = Some("admin".into());
}

#[test]
fn a_worker_with_a_key_wants_it_on_all_but_open_routes() {
    let workers = [
        Worker::with(locked),
        Worker::instant_with(locked),
        Worker::watched_with(50.0, Mode::Engine, &[], locked),
        Worker::watched_with(50.0, Mode::Instant { interval_ns: 0 }, &[], locked),
    ];
    let body = json!({"text": "x", "sampling_params": {"max_new_tokens": 1}});
    for worker in workers {
        for path in ["/health", "/health_generate", "/ready", "/metrics"] {
            assert_eq!(worker.get(path).status, 200, "{path}");
        }
        for path in ["/ping", "/v1/models", "/server_info", "/v1/loads", "/nothing"] {
            let refused = worker.get(path);
            assert_eq!((refused.status, &*refused.body), (401, r#"{"error":"Unauthorized"}"#), "{path}");
        }
        assert_eq!(worker.get_with("/v1/models", "authorization: bearer secret").status, 200);
        assert_eq!(worker.get_with("/v1/models", "authorization: Bearer wrong").status, 401);
        assert_eq!(worker.post("/generate", &body).status, 401);
        assert_eq!(worker.post_with("/generate", "authorization: Bearer secret", &body).status, 200);
        assert_eq!(worker.post_with("/flush_cache", "authorization: Bearer secret", &body).status, 401);
        assert_eq!(worker.post_with("/flush_cache", "authorization: Bearer admin", &json!({})).status, 200);
    }
}
