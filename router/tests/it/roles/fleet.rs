//! What is asked of the router as if it were a server, in front of prefill and decode workers.

use serde_json::json;

use super::{engine, in_mode, states};
use crate::common::{Router, wait_until};

#[test]
fn a_fleet_of_pairs_is_asked_like_one_server() {
    let workers = [engine(in_mode("prefill")), engine(in_mode("decode"))];
    let [prefill, decode] = [0, 1].map(|at: usize| workers[at].url());
    let args = ["--pd-disaggregation", "--prefill", &prefill, "--decode", &decode];
    let router = Router::start(&[], &args);
    wait_until("both to be ready", || states(&router) == ["ready", "ready"]);
    let models = router.get("/v1/models").json();
    assert_eq!(models["data"], json!([{"id": "m"}]), "each model once");
    let info = router.get("/server_info").json();
    assert_eq!(info["served_model_name"], "m", "{info}");
    assert_eq!(router.get("/get_server_info").status(), 200);
    for path in ["/health", "/liveness", "/readiness"] {
        assert_eq!(router.get(path).status(), 200, "{path}");
    }
}
