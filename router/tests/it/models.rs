//! Workers that serve different models get only requests for theirs.

use crate::common::{Message, Router, Worker, wait_until};

/// Serves this model, by its own word.
fn serving(model: &'static str) -> Worker {
    Worker::probed(move |conn, request| {
        let list = format!(
            r#"{{"object":"list","data":[{{"id":"{model}","object":"model","parent":null}},{{"id":"lora","parent":"{model}"}}]}}"#
        );
        let body = if request.first.starts_with("GET /v1/models ") { list.as_str() } else { "{}" };
        conn.answer("200 OK", "", body.as_bytes());
        true
    })
}

/// A router that has learnt the models of all its workers.
fn start(workers: &[&Worker], models: &[&str]) -> Router {
    let urls: Vec<String> = workers.iter().map(|worker| worker.url()).collect();
    let router = Router::start(&urls, &["--policy", "round_robin"]);
    wait_until("the models to be known", || {
        let list = router.get("/workers").json();
        models.iter().enumerate().all(|(place, model)| list["workers"][place]["model_id"] == *model)
    });
    router
}

fn ask(router: &Router, model: &str) -> Message {
    let body = format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hello"}}]}}"#);
    router.post("/v1/chat/completions", body.as_bytes())
}

/// The text of a refusal.
fn told(refused: &Message) -> String {
    refused.json()["error"]["message"].as_str().expect("a text").to_owned()
}

fn counts(workers: &[&Worker]) -> Vec<usize> {
    workers.iter().map(|worker| worker.count("POST")).collect()
}

#[test]
fn a_request_goes_to_the_workers_that_serve_its_model() {
    let (a, b, c) = (serving("org/a"), serving("org/b"), serving("org/a"));
    let workers = [&a, &b, &c];
    let router = start(&workers, &["org/a", "org/b", "org/a"]);
    for _ in 0..6 {
        assert_eq!(ask(&router, "org/a").status(), 200);
    }
    assert_eq!(counts(&workers), [3, 0, 3]);
    for _ in 0..6 {
        assert_eq!(ask(&router, "org/b").status(), 200);
    }
    assert_eq!(counts(&workers), [3, 6, 3]);
}

#[test]
fn among_several_models_an_unknown_one_is_not_found() {
    let (a, b) = (serving("org/a"), serving("org/b"));
    let router = start(&[&a, &b], &["org/a", "org/b"]);
    for name in ["org/c", "org", "org/ab", "", ":adapter"] {
        let refused = ask(&router, name);
        refused.assert_refused(404, "model_not_found");
        assert!(told(&refused).contains(&format!("the model `{name}`.")), "{}", refused.text());
    }
    let (long, kept) = ("ü\n".repeat(500), "ü\n".repeat(50));
    let refused = ask(&router, &long.replace('\n', r"\n"));
    assert!(told(&refused).contains(&format!("the model `{kept}…`.")), "{}", refused.text());
    assert_eq!(counts(&[&a, &b]), [0, 0]);
    assert_eq!(router.post("/v1/chat/completions", b"{}").status(), 200, "who names none gets any");
}

// SGLang's form for the adapters of a model.
#[test]
fn an_adapter_is_served_where_its_model_is() {
    let (a, b) = (serving("org/a"), serving("org/b"));
    let router = start(&[&a, &b], &["org/a", "org/b"]);
    for _ in 0..4 {
        assert_eq!(ask(&router, "org/b:my-adapter").status(), 200);
    }
    assert_eq!(counts(&[&a, &b]), [0, 4]);
    assert_eq!(b.seen()[0].json()["model"], "org/b:my-adapter", "by the name that the client gave");
    ask(&router, "org/c:my-adapter").assert_refused(404, "model_not_found");
}

#[test]
fn where_all_serve_one_model_any_name_passes_through() {
    let (a, b) = (serving("org/a"), serving("org/a"));
    let router = start(&[&a, &b], &["org/a", "org/a"]);
    for name in ["org/a", "an alias", "lora", "org/a:lora"] {
        assert_eq!(ask(&router, name).status(), 200, "{name}");
    }
    assert_eq!(counts(&[&a, &b]).iter().sum::<usize>(), 4);
}

#[test]
fn workers_that_do_not_say_what_they_serve_get_every_name() {
    let (a, b) = (serving("org/a"), Worker::fixed("{}"));
    let router = start(&[&a, &b], &["org/a", "unknown"]);
    for _ in 0..4 {
        assert_eq!(ask(&router, "org/c").status(), 200);
    }
    assert_eq!(counts(&[&a, &b]), [2, 2]);
}

#[test]
fn no_worker_of_the_model_is_another_fault_than_no_such_model() {
    let (a, b) = (serving("org/a"), serving("org/b"));
    let router = start(&[&a, &b], &["org/a", "org/b"]);
    a.kill();
    wait_until("the death to be noticed", || {
        ask(&router, "org/a").header("x-router-error-code") == Some("no_available_workers")
    });
    let refused = ask(&router, "org/a:lora");
    assert!(told(&refused).contains("healthy that serve the model `org/a"), "{}", refused.text());
    assert!(refused.retry_after().is_some());
    assert_eq!(router.get("/readiness").status(), 200);
    assert_eq!(ask(&router, "org/b").status(), 200);
    assert_eq!(b.count("POST"), 1, "which never got what it does not serve");
}

#[test]
fn among_several_models_an_unknown_one_goes_to_those_that_do_not_say() {
    let (a, b, silent) = (serving("org/a"), serving("org/b"), Worker::fixed("{}"));
    let workers = [&a, &b, &silent];
    let router = start(&workers, &["org/a", "org/b", "unknown"]);
    for name in ["org/c", "org", "org/c:adapter"] {
        for _ in 0..3 {
            assert_eq!(ask(&router, name).status(), 200, "{name}");
        }
    }
    assert_eq!(counts(&workers), [0, 0, 9]);
    for _ in 0..4 {
        assert_eq!(ask(&router, "org/b").status(), 200);
    }
    assert_eq!(counts(&workers), [0, 2, 11], "who does not say may serve what others do");
}
