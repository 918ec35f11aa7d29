//! Caches that are cold, or that were lost without a word.

use crate::common::{Client, Router, Worker, wait_until};

/// A prompt of some hundred tokens.
fn prompt(topic: &str) -> Vec<u8> {
    serde_json::json!({"text": format!("{topic} ").repeat(500)}).to_string().into_bytes()
}

fn ask(router: &Router, topic: &str) -> (u64, String) {
    let answer = router.post("/generate", &prompt(topic));
    assert_eq!(answer.status(), 200);
    let field = |name: &str| answer.header(name).expect(name).to_owned();
    (field("x-router-predicted-tokens").parse().expect("a number"), field("x-router-reason"))
}

#[test]
fn a_worker_that_never_finds_what_was_sent_to_it_is_not_believed_for_long() {
    // Its cache is emptied after each request, which nobody tells the router.
    let answer = r#"{"text":"a","meta_info":{"prompt_tokens":800,"cached_tokens":0,"completion_tokens":1}}"#;
    let worker = Worker::fixed(answer);
    let router = Router::start(&[worker.url()], &["--policy", "cache_aware", "--decision-headers"]);
    assert_eq!(ask(&router, "one").0, 0);
    let predicted: Vec<u64> = (0..20).map(|_| ask(&router, "one").0).collect();
    assert!(predicted[0] > 128, "it was believed at first: {predicted:?}");
    assert!(predicted.contains(&0), "and is still after twenty: {predicted:?}");
}

#[test]
fn a_newcomer_is_given_work_that_others_hold_the_prefix_of() {
    let (old, new) = (Worker::fixed("{}"), Worker::fixed("{}"));
    let first_by_warm_up = |args: &[&str]| {
        let args = [&["--policy", "cache_aware", "--decision-headers"], args].concat();
        let router = Router::start(&[old.url()], &args);
        for _ in 0..3 {
            ask(&router, "one");
        }
        let body = serde_json::json!({"url": new.url()}).to_string();
        let added = Client::connect(&router.address).post("/workers", "", body.as_bytes());
        assert_eq!(added.status(), 202);
        wait_until("it to be there", || router.get("/workers").json()["workers"][1]["is_healthy"] == true);
        let reasons: Vec<_> = (0..4).map(|_| ask(&router, "one").1).collect();
        let url = format!("smg_worker_warm_up_requests_total{{worker=\"{}\"}}", new.url());
        (reasons, router.metric(&url))
    };
    let (reasons, counted) = first_by_warm_up(&[]);
    assert!(reasons.contains(&"warm_up".to_owned()), "{reasons:?}");
    assert!(counted >= Some(1.0), "{counted:?}");
    let (reasons, counted) = first_by_warm_up(&["--worker-warmup-secs", "0"]);
    assert!(!reasons.contains(&"warm_up".to_owned()), "{reasons:?}");
    assert_eq!(counted, Some(0.0));
}
