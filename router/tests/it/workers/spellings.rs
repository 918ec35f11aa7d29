//! One worker is one worker, however its URL is spelled.

use std::collections::BTreeSet;
use std::sync::Barrier;

use serde_json::json;

use super::{BODY, Engine, add, add_ready, call, encoded, is_gone, listed, router, shown};
use crate::common::worker::dead_url;
use crate::common::{Router, wait_until};

/// Registers all of them at the same time; the ids.
fn add_at_once(router: &Router, urls: &[String]) -> BTreeSet<String> {
    let start = Barrier::new(urls.len());
    let add = |url: &str| {
        start.wait();
        add(router, url)
    };
    std::thread::scope(|scope| {
        let calls: Vec<_> = urls.iter().map(|url| scope.spawn(|| add(url))).collect();
        calls.into_iter().map(|call| call.join().expect("an id")).collect()
    })
}

#[test]
fn registrations_of_one_worker_at_the_same_time_make_one_worker() {
    let router = router(&[]);
    let spellings = [
        "http://localhost",
        "http://localhost/",
        "http://localhost:80",
        "HTTP://LocalHost:80/",
        "localhost",
        "LOCALHOST",
        "localhost:80",
        "localhost/",
        "http://localhost:080",
        "localhost:80/",
    ];
    let urls: Vec<_> = spellings.iter().chain(&spellings).map(ToString::to_string).collect();
    assert_eq!(add_at_once(&router, &urls).len(), 1);
    assert_eq!(listed(&router).len(), 1);
}

#[test]
fn one_that_comes_again_is_the_same_and_is_left_as_it_is() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add_ready(&router, &engine.url());
    let spellings =
        [engine.url(), format!("HTTP://{}/", engine.worker.address), engine.worker.address.clone()];
    for url in &spellings {
        let body = json!({"url": url, "priority": 1}).to_string();
        let answer = call(&router, "POST", "/workers", &body).json();
        assert_eq!((&answer["worker_id"], &answer["url"]), (&json!(id), &json!(engine.url())), "{url}");
        assert!(answer["message"].as_str().expect("a text").contains("PUT"), "{answer}");
    }
    let worker = shown(&router, &id);
    assert_eq!((&worker["state"], &worker["priority"]), (&json!("ready"), &json!(50)));
    assert_eq!(listed(&router), [engine.url()]);
    assert_eq!(engine.asked("/health"), 1, "it is watched by one");
}

// smg-project/smg#2521
#[test]
fn a_url_without_a_scheme_is_completed() {
    let engine = Engine::start();
    let router = router(&[]);
    let id = add_ready(&router, &engine.worker.address);
    assert_eq!(listed(&router), [engine.url()]);
    assert_eq!(shown(&router, &encoded(&engine.url()))["id"], id);
    assert_eq!((router.post("/generate", BODY).status(), engine.requests()), (200, 1));
}

// smg-project/smg#2521
#[test]
fn case_88_a_worker_is_named_by_its_id_or_by_its_url() {
    let engine = Engine::start();
    let router = router(&[]);
    let (url, address) = (engine.url(), engine.worker.address.clone());
    let id = add(&router, &url);
    let names = [
        id.clone(),
        id.to_uppercase(),
        encoded(&url),
        encoded(&format!("{url}/")),
        encoded(&format!("HTTP://{address}")),
        encoded(&address),
        address.clone(),
    ];
    for (priority, name) in names.iter().enumerate() {
        assert_eq!(add_ready(&router, &url), id, "an id outlives its worker");
        assert_eq!(shown(&router, name)["id"], id, "{name}");
        let body = json!({"priority": priority}).to_string();
        let changed = call(&router, "PUT", &format!("/workers/{name}"), &body);
        assert_eq!((changed.status(), &changed.json()["worker_id"]), (202, &json!(id)), "{name}");
        assert_eq!(shown(&router, &id)["priority"], priority, "{name}");
        let removed = call(&router, "DELETE", &format!("/workers/{name}"), "");
        assert_eq!((removed.status(), &removed.json()["worker_id"]), (202, &json!(id)), "{name}");
        wait_until("it to be gone", || is_gone(&router, &id));
    }
    assert_eq!(listed(&router), [] as [String; 0]);
}

// smg-project/smg#2521
#[test]
fn case_88_a_worker_that_is_down_is_managed_like_any_other() {
    let router = router(&[]);
    let url = dead_url();
    for name in [encoded(&url), url.trim_start_matches("http://").to_owned()] {
        add(&router, &url);
        assert_eq!(shown(&router, &name)["url"], url);
        assert_eq!(call(&router, "PUT", &format!("/workers/{name}"), r#"{"cost":0.5}"#).status(), 202);
        assert_eq!(shown(&router, &name)["cost"], 0.5);
        assert_eq!(call(&router, "DELETE", &format!("/workers/{name}"), "").status(), 202);
        wait_until("it to be gone", || listed(&router).is_empty());
    }
}
