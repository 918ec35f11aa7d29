//! The bootstrap server of a prefill worker: decode workers find it here, and ask it whether it is alive.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::call::START;
use super::life::Life;
use super::registry::{Registration, Registry, RoomRank};
use crate::clock::ScaledClock;
use crate::http::json;

/// What the server knows, and whose process it is in.
#[derive(Debug)]
struct Bootstrap {
    registry: Mutex<(u64, Registry)>,
    life: watch::Receiver<Life>,
    clock: ScaledClock,
}

impl Bootstrap {
    fn boot(&self) -> u64 {
        self.life.borrow().boot
    }

    /// Looks at what is registered. A process that has come back knows nothing.
    fn with<T>(&self, act: impl FnOnce(&mut Registry, u64) -> T) -> T {
        let boot = self.boot();
        let mut registry = self.registry.lock();
        if registry.0 != boot {
            *registry = (boot, Registry::default());
        }
        act(&mut registry.1, self.clock.now_ns())
    }
}

type Shared = Arc<Bootstrap>;

/// The routes of a bootstrap server where nobody has registered.
pub(crate) fn routes(life: watch::Receiver<Life>, clock: ScaledClock) -> Router {
    let registry = Mutex::new((life.borrow().boot, Registry::default()));
    let server = Arc::new(Bootstrap { registry, life, clock });
    Router::new()
        .route("/route", get(route).put(register))
        .route("/register_dp_rank", post(register_room))
        .route("/query_dp_ranks", post(query_rooms))
        .route("/health", get(async || "OK"))
        .layer(map_response_with_state(Arc::clone(&server), tell_start))
        .with_state(server)
}

/// Each answer tells which start of the process it comes from, so that decode workers notice another one.
async fn tell_start(State(server): State<Shared>, mut answer: Response) -> Response {
    answer.headers_mut().insert(START, HeaderValue::from(server.boot()));
    answer
}

/// A status and its reason in words.
type Refused = (StatusCode, String);

async fn register(State(server): State<Shared>, body: Bytes) -> Result<&'static str, Refused> {
    let registration: Registration = parse(&body)?;
    let added = server.with(|registry, _| registry.add(registration));
    added.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
    Ok("OK")
}

/// What must be in the query of `GET /route`; −1 everywhere asks for the worker as a whole.
const RANKS: [&str; 4] = ["prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank"];

async fn route(
    State(server): State<Shared>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Refused> {
    let mut ranks = [0; RANKS.len()];
    for (rank, key) in ranks.iter_mut().zip(RANKS) {
        let text = query.get(key);
        let text =
            text.ok_or_else(|| (StatusCode::BAD_REQUEST, format!("the parameter {key} is missing")))?;
        *rank = text.parse().map_err(|_| (StatusCode::BAD_REQUEST, format!("{key}: a number is needed")))?;
    }
    server.with(|registry, _| find(registry, ranks))
}

fn find(registry: &Registry, ranks: [i64; RANKS.len()]) -> Result<Response, Refused> {
    let unready = || (StatusCode::SERVICE_UNAVAILABLE, "not all ranks have registered yet".to_owned());
    let info = registry.info().ok_or_else(unready)?;
    if ranks == [-1; RANKS.len()] {
        return Ok(json(info));
    }
    // A rank stands for its whole group of GPUs.
    let [dp_rank, others @ ..] = ranks;
    let known = u32::try_from(dp_rank).ok().and_then(|rank| registry.rank(rank));
    let address = known.filter(|_| others == [0; RANKS.len() - 1]);
    address.map(json).ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no rank {ranks:?}")))
}

async fn register_room(State(server): State<Shared>, body: Bytes) -> Result<&'static str, Refused> {
    let room: RoomRank = parse(&body)?;
    server.with(|registry, now_ns| registry.tell(now_ns, room));
    Ok("OK")
}

/// Rooms whose ranks are asked for.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rooms {
    pub(super) bootstrap_rooms: Vec<u64>,
}

async fn query_rooms(State(server): State<Shared>, body: Bytes) -> Result<Response, Refused> {
    let Rooms { bootstrap_rooms } = parse(&body)?;
    Ok(json(&server.with(|registry, now_ns| registry.find(now_ns, &bootstrap_rooms))))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}

/// The body of `POST /register_dp_rank`.
pub(super) fn room_rank(room: u64, rank: u32) -> Vec<u8> {
    super::json_text(&RoomRank { bootstrap_room: room, dp_rank: rank })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;
    use serde_json::json;

    fn server() -> (Shared, watch::Sender<Life>) {
        let first = Life::first(1);
        let (life, lives) = watch::channel(first);
        let registry = Mutex::new((first.boot, Registry::default()));
        (Arc::new(Bootstrap { registry, life: lives, clock: ScaledClock::start(1.0) }), life)
    }

    fn rank(rank: u32, size: u32, page_size: u32) -> Bytes {
        let registration = json!({
            "attn_tp_size": 1, "attn_tp_rank": 0, "attn_cp_size": 1, "attn_cp_rank": 0, "attn_dp_size": 1,
            "attn_dp_rank": 0, "pp_size": 1, "pp_rank": 0, "system_dp_size": size, "system_dp_rank": rank,
            "rank_ip": "10.0.0.1", "rank_port": 7000 + rank, "page_size": page_size, "kv_cache_dtype": "auto",
            "load_balance_method": "round_robin", "prefill_http_port": 30000,
        });
        registration.to_string().into()
    }

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn put(server: &Shared, body: Bytes) -> u16 {
        run(register(State(Arc::clone(server)), body)).into_response().status().as_u16()
    }

    fn get(server: &Shared, ranks: [&str; 4]) -> u16 {
        let query = RANKS.iter().zip(ranks).map(|(key, rank)| ((*key).to_owned(), rank.to_owned())).collect();
        run(route(State(Arc::clone(server)), Query(query))).into_response().status().as_u16()
    }

    const ALL: [&str; 4] = ["-1"; 4];

    #[test]
    fn a_worker_is_not_told_until_all_its_ranks_have_registered() {
        let (server, life) = server();
        assert_eq!(get(&server, ALL), 503);
        assert_eq!([put(&server, rank(0, 2, 1)), get(&server, ALL)], [200, 503]);
        assert_eq!(get(&server, ["0"; 4]), 503);
        assert_eq!([put(&server, rank(1, 2, 1)), get(&server, ALL)], [200, 200]);
        assert_eq!(get(&server, ["1", "0", "0", "0"]), 200);
        for unknown in [["2", "0", "0", "0"], ["-1", "0", "0", "0"], ["0", "0", "1", "0"]] {
            assert_eq!(get(&server, unknown), 404, "{unknown:?}");
        }
        assert_eq!(get(&server, ["x", "0", "0", "0"]), 400);
        life.send_modify(|life| *life = life.next());
        assert_eq!(get(&server, ALL), 503, "a process that has come back knows nobody");
    }

    #[test]
    fn registrations_that_contradict_each_other_are_refused() {
        let (server, _life) = server();
        assert_eq!(put(&server, rank(0, 2, 1)), 200);
        assert_eq!(put(&server, rank(2, 2, 1)), 400, "there is no such rank");
        assert_eq!(put(&server, rank(1, 3, 1)), 400, "another number of ranks");
        assert_eq!(put(&server, rank(1, 2, 16)), 400, "another size of pages");
        assert_eq!(put(&server, Bytes::from_static(b"{}")), 400);
        assert_eq!(get(&server, ALL), 503);
    }
}
