//! All workers die.

use super::{BODY, Engine, Traffic, add, add_ready, encoded, is_gone, remove};
use crate::common::{Router, wait_until};

/// A death is noticed by the requests that it costs, and by the probes after them.
const ARGS: [&str; 4] = ["--policy", "round_robin", "--cb-timeout-duration-secs", "1"];

// sgl-project/sglang#7028
#[test]
fn after_the_death_of_all_workers_new_ones_can_be_registered() {
    // Beside the dead ones, or in their place.
    for in_their_place in [false, true] {
        let dead: Vec<_> = (0..2).map(|_| Engine::start()).collect();
        let urls: Vec<_> = dead.iter().map(Engine::url).collect();
        let (mut router, log) = Router::start_logged(&urls, &ARGS);
        wait_until("the workers to be ready", || router.get("/readiness").status() == 200);
        let traffic = Traffic::start(&router, 4, &[String::from_utf8(BODY.to_vec()).expect("text")]);
        traffic.go_on(20);
        dead.iter().for_each(|engine| engine.worker.kill());
        wait_until("the deaths to be noticed", || router.get("/readiness").status() == 503);
        traffic.go_on(20);
        router.post("/generate", BODY).assert_refused(503, "no_available_workers");
        if in_their_place {
            for url in &urls {
                remove(&router, &encoded(url));
                wait_until("the dead one to be gone", || is_gone(&router, &encoded(url)));
            }
            router.post("/generate", BODY).assert_refused(503, "no_workers");
        }
        let fresh: Vec<_> = (0..2).map(|_| Engine::start()).collect();
        let ids: Vec<_> = fresh.iter().map(|engine| add_ready(&router, &engine.url())).collect();
        for _ in 0..20 {
            assert_eq!(router.post("/generate", BODY).status(), 200);
        }
        traffic.go_on(20);
        assert!(fresh.iter().all(|engine| engine.requests() > 5), "both serve");
        assert_eq!(ids.len(), 2);
        let answers = traffic.stop();
        let known = |status| [200, 502, 503].contains(&status);
        assert!(answers.iter().all(|answer| known(answer.status())), "in their place: {in_their_place}");
        assert!(answers.iter().any(|answer| answer.status() == 503), "the outage was seen");
        assert_eq!(answers.last().expect("some").status(), 200);
        router.signal("TERM");
        assert!(router.wait().success());
        drop(router);
        assert!(log.into_lines().iter().all(|line| !line.contains("panicked")));
    }
}

// sgl-project/sglang#7028
#[test]
fn a_dead_worker_that_is_registered_again_comes_back_by_itself() {
    let engine = Engine::start();
    let router = Router::start(&[engine.url()], &ARGS);
    wait_until("the worker to be ready", || router.get("/readiness").status() == 200);
    engine.worker.kill();
    wait_until("the death to be noticed", || {
        router.post("/generate", BODY);
        router.get("/readiness").status() == 503
    });
    add(&router, &engine.url());
    let back = Engine::start_at(&engine.worker.address);
    wait_until("it to serve again", || router.post("/generate", BODY).status() == 200);
    assert_eq!(back.requests(), 1);
}
