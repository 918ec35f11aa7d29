//! Who serves what: pairs, regular workers, and fleets with both.

use std::collections::BTreeSet;

use serde_json::json;

use super::legs::{QUICK, command_line, decode, prefill, router};
use super::ranks::engine;
use super::{BODY, flags, is_idle};
use crate::affinity::conversation;
use crate::common::{Router, Worker, wait_until};

const CHAT: &[u8] = br#"{"messages":[{"role":"user","content":"a"}]}"#;

/// With a regular worker besides.
fn mixed(prefill: &Worker, decode: &Worker, regular: &Worker, args: &[&str]) -> Router {
    let line = command_line(&[prefill], &[decode], "9000", &[&QUICK, args].concat());
    Router::start(&[regular.url()], &line.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn paths_that_are_not_for_pairs_need_regular_workers() {
    let (prefill, decode) = (prefill(), decode());
    let others = ["/v1/embeddings", "/v1/classify", "/v1/rerank", "/rerank", "/v1/score", "/v1/responses"];
    let pairs = router(&[&prefill], &[&decode], &flags(&[]));
    for path in others {
        pairs.post(path, br#"{"input":"a"}"#).assert_refused(501, "needs_regular_worker");
    }
    assert_eq!((prefill.count("POST"), decode.count("POST")), (0, 0));
    let regular = Worker::fixed("{}");
    let both = mixed(&prefill, &decode, &regular, &[]);
    for path in others {
        let body = br#"{"input":"a"}"#;
        assert_eq!(both.post(path, body).status(), 200, "{path}");
        assert_eq!(regular.seen().pop().expect("a request").body, body, "{path}: as it came");
    }
    assert_eq!((prefill.count("POST"), decode.count("POST")), (0, 0));
}

#[test]
fn clients_and_operators_say_whether_pairs_are_preferred() {
    for (args, header, pairs) in [
        (&[][..], "", true),
        (&[], "X-Prefer-PD: false\r\n", false),
        (&[], "x-prefer-pd: TRUE\r\n", true),
        (&[], "x-prefer-pd: maybe\r\n", true),
        (&["--prefer-pd", "false"], "", false),
        (&["--prefer-pd", "false"], "x-prefer-pd: true\r\n", true),
        (&["--pd-least-uncached-tokens", "100"], "", false),
    ] {
        let (prefill, decode, regular) = (prefill(), decode(), Worker::fixed("{}"));
        let router = mixed(&prefill, &decode, &regular, args);
        wait_until("all to be there", || router.loads().len() == 3);
        assert_eq!(router.client().post("/generate", header, BODY).status(), 200);
        let expected = if pairs { (1, 1, 0) } else { (0, 0, 1) };
        wait_until(&format!("{expected:?}: {args:?} {header}"), || {
            (prefill.count("POST"), decode.count("POST"), regular.count("POST")) == expected
        });
    }
}

fn remove(router: &Router, worker: &Worker) {
    let mut client = router.client();
    let url = worker.url().replace(':', "%3A").replace('/', "%2F");
    client.send(format!("DELETE /workers/{url} HTTP/1.1\r\nHost: r\r\n\r\n"));
    assert!(client.receive().status() < 300);
}

#[test]
fn workers_that_have_left_serve_nothing() {
    const EMBED: &[u8] = br#"{"model":"m","input":"a"}"#;
    let [prefill, decode, regular] = ["prefill", "decode", "null"].map(|mode| engine(mode, "auto"));
    let router = mixed(&prefill, &decode, &regular, &[]);
    wait_until("all to be there", || router.loads().len() == 3);
    wait_until("the model to be known", || router.post("/v1/embeddings", EMBED).status() == 200);
    remove(&router, &regular);
    wait_until("it to be gone", || router.loads().len() == 2);
    router.post("/v1/embeddings", EMBED).assert_refused(501, "needs_regular_worker");
    remove(&router, &prefill);
    remove(&router, &decode);
    wait_until("all to be gone", || router.loads().is_empty());
    assert_eq!(router.post("/v1/embeddings", EMBED).status(), 503, "no kind of worker is there");
}

#[test]
fn a_pool_that_is_empty_is_named() {
    let (prefill, decode) = (prefill(), decode());
    let router = router(&[&prefill], &[&decode], &flags(&["--health-check-interval-secs", "1"]));
    assert_eq!(router.post("/generate", BODY).status(), 200);
    remove(&router, &decode);
    wait_until("decode to be gone", || router.loads().len() == 1);
    let refused = router.post("/v1/chat/completions", CHAT);
    refused.assert_refused(503, "no_decode_workers");
    assert!(refused.retry_after().is_some());
    remove(&router, &prefill);
    let added = json!({"url": decode.url(), "worker_type": "decode"}).to_string();
    assert!(router.post("/workers", added.as_bytes()).status() < 300);
    wait_until("decode to be back", || {
        let refused = router.post("/v1/chat/completions", CHAT);
        refused.header("x-router-error-code") == Some("no_prefill_workers")
    });
}

#[test]
fn answers_and_the_access_log_tell_both_workers() {
    let (prefill, decode) = (prefill(), decode());
    let line = command_line(
        &[&prefill],
        &[&decode],
        "9000",
        &flags(&["--decision-headers", "--access-log", "json"]),
    );
    let (router, log) = Router::start_logged(&[], &line.iter().map(String::as_str).collect::<Vec<_>>());
    let answer = router.post("/generate", BODY);
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.header("x-router-prefill-worker"), Some("0"));
    assert_eq!(answer.header("x-router-worker"), Some("1"));
    assert_eq!(answer.header("x-router-prefill-reason"), answer.header("x-router-reason"));
    wait_until("the line", || log.lines().iter().any(|line| line.contains("\"log\":\"access\"")));
    let line = log.lines().into_iter().find(|line| line.contains("\"log\":\"access\"")).expect("a line");
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!((&line["prefill_worker"], &line["worker"]), (&json!(prefill.url()), &json!(decode.url())));
    assert_eq!(line["prefill_policy"], "round_robin");
    wait_until("the leases to end", || is_idle(&router));
}

// sgl-project/sglang#26263, #27430: routing text of the first message only, or none at all.
#[test]
fn case_58_conversations_stay_with_the_prefill_worker_that_has_them() {
    // Enough that chance, which decides between idle workers, gives each of them some.
    const CONVERSATIONS: usize = 24;
    const TURNS: usize = 6;
    let prefills: Vec<Worker> = (0..4).map(|_| prefill()).collect();
    let decode = decode();
    let all: Vec<&Worker> = prefills.iter().collect();
    let args = ["--policy", "power_of_two", "--prefill-policy", "cache_aware", "--decision-headers"];
    let router = router(&all, &[&decode], &args);
    let conversations: Vec<_> = (0..CONVERSATIONS).map(|number| conversation(number, TURNS)).collect();
    let mut chosen = vec![Vec::new(); CONVERSATIONS];
    for turn in 0..TURNS {
        for (requests, chosen) in conversations.iter().zip(&mut chosen) {
            let answer = router.post("/v1/chat/completions", requests[turn].to_string().as_bytes());
            chosen.push(answer.header("x-router-prefill-worker").expect("told").to_owned());
        }
    }
    let stayed =
        chosen.iter().map(|of| of.iter().skip(1).filter(|next| *next == &of[0]).count()).sum::<usize>();
    assert!(stayed * 10 > CONVERSATIONS * (TURNS - 1) * 9, "{stayed}: {chosen:?}");
    let used: BTreeSet<_> = chosen.iter().flatten().collect();
    assert_eq!(used.len(), 4, "the common beginning does not draw all to one: {chosen:?}");
}

#[test]
fn what_a_worker_says_of_a_prefill_worker_is_not_passed_on_where_there_was_none() {
    const SAID: &str = "x-router-prefill-worker: 9\r\nx-router-prefill-worker-url: http://other\r\n\
        x-router-prefill-reason: other\r\n";
    let regular = Worker::answering("200 OK", SAID, "{}");
    let router = Router::start(&[regular.url()], &["--decision-headers"]);
    let answer = router.post("/generate", BODY);
    assert_eq!(answer.header("x-router-worker-url"), Some(regular.url().as_str()));
    for field in ["worker", "worker-url", "reason"] {
        assert_eq!(answer.header(&format!("x-router-prefill-{field}")), None, "{field}");
    }
}
