//! One worker takes another one's place.

use serde_json::json;

use super::traffic::assert_all_served;
use super::{BODY, Engine, Traffic, add, add_as, add_ready, is_gone, listed, remove, router, state};
use crate::common::wait_until;

fn plain() -> Vec<String> {
    vec![String::from_utf8(BODY.to_vec()).expect("text")]
}

// sgl-project/sglang#38524
#[test]
fn the_last_worker_serves_until_its_successor_does() {
    let (old, new) = (Engine::start(), Engine::unwell());
    let router = router(&["--disable-retries"]);
    let former = add_ready(&router, &old.url());
    let traffic = Traffic::start(&router, 4, &plain());
    traffic.go_on(20);
    let latter = add(&router, &new.url());
    remove(&router, &former);
    wait_until("the successor to be asked again and again", || {
        traffic.go_on(20);
        new.asked("/health") > 3
    });
    assert_eq!((state(&router, &former), state(&router, &latter)), ("draining".into(), "probing".into()));
    assert_eq!(new.requests(), 0);
    new.get_well();
    wait_until("the former one to be gone", || is_gone(&router, &former));
    let served = old.requests();
    traffic.go_on(50);
    assert_eq!(old.requests(), served);
    assert_all_served(&traffic.stop());
    assert_eq!(listed(&router), [new.url()]);

    // Nobody is about to come: it was meant.
    remove(&router, &latter);
    wait_until("the last one to be gone", || is_gone(&router, &latter));
    router.post("/generate", BODY).assert_refused(503, "no_workers");
    assert_eq!(listed(&router), [] as [String; 0]);
}

// sgl-project/sglang#38524
#[test]
fn workers_of_another_model_are_no_successors() {
    let (old, new, other) = (Engine::start(), Engine::unwell(), Engine::start());
    let router = router(&["--disable-retries"]);
    let of = |engine: &Engine, model: &str| add_as(&router, &json!({"url": engine.url(), "model_id": model}));
    let former = of(&old, "a");
    for id in [&former, &of(&other, "b")] {
        wait_until("the worker to be ready", || state(&router, id) == "ready");
    }
    let traffic = Traffic::start(&router, 2, &[r#"{"model":"a","text":"hello"}"#.to_owned()]);
    of(&new, "a");
    remove(&router, &former);
    wait_until("the successor to be asked again and again", || {
        traffic.go_on(10);
        new.asked("/health") > 3
    });
    assert_eq!(state(&router, &former), "draining");
    new.get_well();
    wait_until("the former one to be gone", || is_gone(&router, &former));
    traffic.go_on(10);
    assert_all_served(&traffic.stop());
    assert_eq!(other.requests(), 0);
}

#[test]
fn nobody_waits_for_a_successor_that_was_sent_away_or_serves_another_model() {
    let (old, new, other) = (Engine::start(), Engine::unwell(), Engine::unwell());
    let router = router(&[]);
    let of = |engine: &Engine, model: &str| add_as(&router, &json!({"url": engine.url(), "model_id": model}));
    let former = of(&old, "a");
    wait_until("the worker to be ready", || state(&router, &former) == "ready");
    let latter = of(&new, "a");
    of(&other, "b");
    remove(&router, &former);
    for _ in 0..20 {
        assert_eq!(router.post("/generate", BODY).status(), 200, "it is waited for");
    }
    assert_eq!(state(&router, &former), "draining");
    remove(&router, &latter);
    wait_until("both to be gone", || listed(&router) == [other.url()]);
    router.post("/generate", BODY).assert_refused(503, "no_available_workers");
}
