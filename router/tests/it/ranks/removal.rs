//! How engines and single ranks are taken out.

use super::{add, call, encoded, listed, router, shown};
use crate::common::{Message, RankedEngine, Router, wait_until};

fn delete(router: &Router, name: &str) -> Message {
    call(router, "DELETE", &format!("/workers/{}", encoded(name)), "")
}

fn remove(router: &Router, name: &str) {
    let answer = delete(router, name);
    assert_eq!(answer.status(), 202, "{name}: {}", answer.text());
}

// smg-project/smg#2521, #2522, #1106
#[test]
fn case_88_an_engine_goes_by_each_of_its_names_with_all_its_ranks() {
    let router = router(&[], &["--policy", "round_robin"]);
    let stays = RankedEngine::start(0..1);
    add(&router, &stays.url());
    wait_until("it to be ready", || router.get("/readiness").status() == 200);
    for count in [1, 4] {
        let engine = RankedEngine::start(0..count);
        let bare = engine.url().trim_start_matches("http://").to_owned();
        for name in [engine.url(), format!("{}/", engine.url()), bare, "id".to_owned()] {
            let id = add(&router, &engine.url());
            wait_until("the engine", || listed(&router).len() == 1 + count as usize);
            remove(&router, if name == "id" { &id } else { &name });
            wait_until("it to be gone", || listed(&router) == [stays.url()]);
            let before = engine.sent().len();
            (0..4).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
            assert_eq!(engine.sent().len(), before);
        }
    }
}

// smg-project/smg#2521, #2522, #1106
#[test]
fn case_88_a_rank_goes_alone_and_with_the_last_one_the_engine() {
    let engine = RankedEngine::start(0..4);
    let router = router(&[&engine], &["--policy", "round_robin"]);
    let id = shown(&router, &engine.rank_url(2))["id"].as_str().expect("an id").to_owned();
    remove(&router, &id);
    let left = |ranks: &[u32]| ranks.iter().map(|rank| engine.rank_url(*rank)).collect::<Vec<_>>();
    wait_until("rank 2 to be gone", || listed(&router) == left(&[0, 1, 3]));
    let before = engine.sent().len();
    (0..9).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
    assert!(engine.sent()[before..].iter().all(|rank| *rank != Some(2)), "{:?}", engine.sent());
    let unknown = delete(&router, &engine.rank_url(2));
    assert_eq!((unknown.status(), unknown.json()["code"].as_str()), (404, Some("WORKER_NOT_FOUND")));
    assert!(unknown.text().contains("are 0, 1, 3"), "{}", unknown.text());
    for rank in [0, 1] {
        remove(&router, engine.rank_url(rank).trim_start_matches("http://"));
    }
    wait_until("only rank 3 to be left", || listed(&router) == left(&[3]));
    remove(&router, &engine.rank_url(3));
    wait_until("the engine to be gone", || listed(&router).is_empty());
    assert_eq!(delete(&router, &engine.url()).status(), 404);
    add(&router, &engine.url());
    wait_until("all ranks to be back", || listed(&router) == left(&[0, 1, 2, 3]));
}

// smg-project/smg#2521
#[test]
fn case_88_who_is_unknown_is_not_found() {
    let (ranked, single) = (RankedEngine::start(0..2), RankedEngine::start(0..1));
    let router = router(&[&ranked, &single], &[]);
    wait_until("all ranks", || listed(&router).len() == 3);
    let unknown = "http://127.0.0.1:1".to_owned();
    for name in
        [&unknown, &format!("{unknown}@0"), &ranked.rank_url(2), &single.rank_url(0), &single.rank_url(1)]
    {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = call(&router, method, &format!("/workers/{}", encoded(name)), "{}");
            assert_eq!(answer.status(), 404, "{method} {name}: {}", answer.text());
            assert!(answer.text().contains(name), "{}", answer.text());
        }
    }
    for url in [ranked.rank_url(0), ranked.rank_url(7).trim_start_matches("http://").to_owned()] {
        let refused = call(&router, "POST", "/workers", &format!(r#"{{"url":"{url}"}}"#));
        assert_eq!(refused.status(), 400);
        let said = refused.text();
        let engine = ranked.url();
        assert!(said.contains(&url) && said.contains(&format!("give `{engine}`")), "{said}");
    }
    assert_eq!(listed(&router).len(), 3);
}

// smg-project/smg#1106
#[test]
fn case_88_engines_and_ranks_go_while_they_are_down() {
    let (dead, never) = (RankedEngine::start(0..4), RankedEngine::start(0..4));
    never.worker.kill();
    let router = router(&[&dead], &["--health-check-interval-secs", "1", "--health-failure-threshold", "1"]);
    dead.worker.kill();
    wait_until("it to be unhealthy", || shown(&router, &dead.url())["is_healthy"] == false);
    remove(&router, &dead.rank_url(1));
    wait_until("its rank to be gone", || listed(&router).len() == 3);
    remove(&router, &dead.url());
    wait_until("it to be gone", || listed(&router).is_empty());
    add(&router, &never.url());
    assert_eq!(delete(&router, &never.rank_url(0)).status(), 404);
    remove(&router, &never.url());
    wait_until("it to be gone", || listed(&router).is_empty());
}

#[test]
fn what_runs_on_a_rank_ends_before_it_goes() {
    let engine = RankedEngine::start(0..2);
    let router = router(&[&engine], &["--policy", "round_robin"]);
    let mut clients = [router.client(), router.client()];
    for client in &mut clients {
        client.send_post("/generate", "", br#"{"text":"hold"}"#);
    }
    wait_until("both to be there", || engine.sent().len() == 2);
    remove(&router, &engine.rank_url(0));
    assert_eq!(shown(&router, &engine.rank_url(0))["state"], "draining");
    assert_eq!(shown(&router, &engine.url())["state"], "ready");
    assert_eq!(delete(&router, &engine.rank_url(0)).json()["message"], "it is leaving already");
    (0..4).for_each(|_| assert_eq!(router.post("/generate", br#"{"text":"a"}"#).status(), 200));
    assert!(engine.sent()[2..].iter().all(|rank| *rank == Some(1)), "{:?}", engine.sent());
    // With the last one that is not leaving the engine leaves.
    remove(&router, &engine.rank_url(1));
    wait_until("the engine to leave", || shown(&router, &engine.url())["state"] == "draining");
    assert_eq!(listed(&router).len(), 2);
    engine.go.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.receive().status(), 200));
    wait_until("the engine to be gone", || listed(&router).is_empty());
}

#[test]
fn what_is_said_of_a_rank_is_said_of_its_engine() {
    let engine = RankedEngine::start(0..2);
    let router = router(&[&engine], &[]);
    let place = format!("/workers/{}", encoded(&engine.rank_url(1)));
    let answer = call(&router, "PUT", &place, r#"{"priority":7,"model_id":"other"}"#);
    assert_eq!((answer.status(), answer.json()["url"].as_str()), (202, Some(&*engine.rank_url(1))));
    for rank in [0, 1] {
        let row = shown(&router, &engine.rank_url(rank));
        assert_eq!((row["priority"].as_u64(), row["model_id"].as_str()), (Some(7), Some("other")));
    }
}
