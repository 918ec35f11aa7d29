//! `/flush_cache`: the workers' caches, and what the router believes of them.

use serde_json::json;

use super::{OK, is_json, scripted, send, start};
use crate::common::worker::dead_url;
use crate::common::{Router, Worker};

const DONE: super::Script = &[("POST /flush_cache", OK, "Cache flushed."), ("POST /generate", OK, "{}")];
const BUSY: super::Script =
    &[("POST /flush_cache", "400 Bad Request", "requests are running\n"), ("POST /generate", OK, "{}")];

fn flushes(worker: &Worker) -> Vec<String> {
    let seen = worker.seen().into_iter().map(|request| request.first);
    seen.filter(|first| first.contains("/flush_cache")).collect()
}

#[test]
fn every_worker_is_told_with_the_query() {
    let (a, b) = (scripted(DONE), scripted(DONE));
    let router = start(&[&a, &b], &[]);
    let answer = send(&router, "POST", "/flush_cache?timeout=1.5", "");
    assert_eq!((answer.status(), is_json(&answer)), (200, true));
    let expected = json!({"status": "success", "message": "2 of 2 workers emptied their caches",
        "workers_flushed": 2, "total_http_workers": 2, "total_workers": 2});
    assert_eq!(answer.json(), expected);
    assert_eq!([flushes(&a), flushes(&b)], [["POST /flush_cache?timeout=1.5 HTTP/1.1"]; 2]);
    let none = send(&Router::start(&[], &[]), "POST", "/flush_cache", "");
    assert_eq!((none.status(), &none.json()["status"]), (200, &json!("success")));
}

#[test]
fn who_failed_and_why_is_told() {
    let (a, b) = (scripted(DONE), scripted(BUSY));
    let dead = dead_url();
    let router = Router::start(&[a.url(), dead.clone(), b.url()], &[]);
    super::wait_until_ready(&router, 2);
    let answer = send(&router, "POST", "/flush_cache", "");
    assert_eq!((answer.status(), is_json(&answer)), (206, true));
    let told = answer.json();
    assert_eq!(
        (&told["status"], &told["workers_flushed"], &told["total_workers"]),
        (&json!("partial_success"), &json!(1), &json!(3))
    );
    assert_eq!(told["successful"], json!([a.url()]));
    assert_eq!(told["failed"][0]["worker"], json!(dead));
    assert!(
        told["failed"][0]["error"].as_str().is_some_and(|error| error.starts_with("cannot connect")),
        "{told}"
    );
    assert_eq!(told["failed"][1], json!({"worker": b.url(), "error": "status 400: requests are running"}));
}

/// Which worker got this prompt, and how much of it was believed to be cached there.
fn ask(router: &Router, topic: usize) -> (String, u64) {
    let body = format!(r#"{{"text":"{}"}}"#, format!("topic {topic} ").repeat(200));
    let answer = router.post("/generate", body.as_bytes());
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let tokens = answer.header("x-router-predicted-tokens").map_or(0, |text| text.parse().expect("a number"));
    (answer.header("x-router-worker").expect("a decision").to_owned(), tokens)
}

#[test]
fn what_was_emptied_is_no_longer_believed_in_and_the_rest_is() {
    let (done, busy) = (scripted(DONE), scripted(BUSY));
    let router = start(&[&done, &busy], &["--policy", "cache_aware", "--decision-headers"]);
    let served = |worker: &Worker| worker.count("POST /generate");
    // A topic of each worker.
    let mut owned = [None, None];
    for topic in 0..100 {
        let before = served(&done);
        ask(&router, topic);
        owned[usize::from(served(&done) == before)].get_or_insert(topic);
        if owned.iter().all(Option::is_some) {
            break;
        }
    }
    let [of_done, of_busy] = owned.map(|topic| topic.expect("each worker has one"));
    assert!(ask(&router, of_done).1 > 0 && ask(&router, of_busy).1 > 0);
    assert_eq!(send(&router, "POST", "/flush_cache", "").status(), 206);
    assert!(ask(&router, of_busy).1 > 0, "it has kept its cache");
    assert_eq!(ask(&router, of_done).1, 0);
    assert!(ask(&router, of_done).1 > 0, "and it fills again");
}
