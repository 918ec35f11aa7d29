//! Many workers.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{BODY, add, listed, router};
use crate::common::{Worker, wait_until};

const WORKERS: usize = 500;
const THREADS: usize = 4;

/// All addresses of the loopback network are one listener.
fn urls(worker: &Worker) -> Vec<String> {
    let port = worker.address.rsplit(':').next().expect("a port");
    (0..WORKERS)
        .map(|number| format!("http://127.0.{}.{}:{port}", 1 + number / 250, 1 + number % 250))
        .collect()
}

#[test]
fn five_hundred_workers_are_registered_listed_and_used() {
    let worker = Worker::probed_at("0.0.0.0:0", |conn, request| {
        // Connections end, as each has a thread here.
        let status = if request.first.starts_with("GET /health ") || request.first.starts_with("POST ") {
            "200 OK"
        } else {
            "404 Not Found"
        };
        conn.answer(status, "Connection: close\r\n", b"{}");
        false
    });
    let urls = urls(&worker);
    let router = router(&["--policy", "round_robin", "--decision-headers"]);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(url) = urls.get(next.fetch_add(1, Ordering::SeqCst)) {
                    add(&router, url);
                }
            });
        }
    });
    let listed: BTreeSet<_> = listed(&router).into_iter().collect();
    assert_eq!(listed, urls.iter().cloned().collect());
    wait_until("all to be ready", || {
        let list = router.get("/workers").json();
        list["workers"].as_array().expect("a list").iter().all(|worker| worker["state"] == "ready")
    });
    let chosen = (0..WORKERS).map(|_| {
        let answer = router.post("/generate", BODY);
        assert_eq!(answer.status(), 200);
        answer.header("x-router-worker").expect("a place").to_owned()
    });
    assert_eq!(chosen.collect::<BTreeSet<_>>().len(), WORKERS, "each gets one");
}
