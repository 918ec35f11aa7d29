//! Workers that a file lists, when it is read again.

use super::{BODY, Engine, call, encoded, is_gone, remove, shown, state};
use crate::common::{Router, wait_until};
use crate::reload::{File, reload};

/// A table; `more` are further keys.
fn table(engine: &Engine, more: &str) -> String {
    format!("[[workers]]\nurl = \"{}\"\n{more}\n", engine.url())
}

fn is_ready(router: &Router, engine: &Engine) -> bool {
    state(router, &encoded(&engine.url())) == "ready"
}

#[test]
fn one_that_failed_or_was_sent_away_is_brought_back() {
    let [kept, failed, gone, leaving] = [(); 4].map(|()| Engine::start());
    failed.say("/health", "503 Service Unavailable", "");
    let tables = [&kept, &failed, &gone, &leaving].map(|engine| table(engine, "")).concat();
    let file = File::of(&tables);
    let args = ["--config", &file.path(), "--worker-startup-timeout-secs", "1", "--policy", "round_robin"];
    let (router, log) = Router::start_logged(&[], &args);
    for engine in [&kept, &gone, &leaving] {
        wait_until("the worker to be ready", || is_ready(&router, engine));
    }
    wait_until("the worker to fail", || state(&router, &encoded(&failed.url())) == "failed");
    remove(&router, &encoded(&gone.url()));
    wait_until("it to be gone", || is_gone(&router, &encoded(&gone.url())));
    let mut client = router.client();
    while leaving.requests() == 0 {
        client = router.client();
        client.send_post("/generate", "", br#"{"text":"hold","stream":true}"#);
        assert_eq!(client.reader.head().expect("a head").expect("not the end").status(), 200);
    }
    remove(&router, &encoded(&leaving.url()));
    assert_eq!(state(&router, &encoded(&leaving.url())), "draining");
    failed.get_well();

    reload(&router, &log);
    for engine in [&kept, &failed, &gone, &leaving] {
        wait_until("the worker to be ready", || is_ready(&router, engine));
    }
    let lines = log.lines();
    let line = lines.iter().rfind(|line| line.contains("read again")).expect("a line");
    assert!(line.contains("3 workers added: ") && !line.contains(&kept.url()), "{line}");
    assert_eq!(kept.asked("/health"), 1, "the one that was there has not been touched");
    for engine in [&kept, &leaving] {
        engine.go.open();
    }
    drop(client);
}

#[test]
fn what_a_table_says_anew_counts_from_then_on() {
    let [one, other] = [Engine::start(), Engine::start()];
    let file = File::of(&[table(&one, "model_id = \"a\""), table(&other, "model_id = \"b\"")].concat());
    let args =
        ["--config", &file.path(), "--health-check-interval-secs", "1", "--health-failure-threshold", "1"];
    let (router, log) = Router::start_logged(&[], &args);
    for engine in [&one, &other] {
        wait_until("the worker to be ready", || is_ready(&router, engine));
    }
    let ask = |model: &str| {
        let body = format!(r#"{{"model":"{model}","text":"hello"}}"#);
        router.post("/generate", body.as_bytes()).status()
    };
    assert_eq!([ask("a"), ask("b"), one.requests() as u16, other.requests() as u16], [200, 200, 1, 1]);
    let told = |engine: &Engine| shown(&router, &encoded(&engine.url()));

    // The models are swapped, and one gets a key and other terms.
    let more = "model_id = \"b\"\napi_key = \"sk-1\"\npriority = 7\ncost = 2.5\nlabels = {zone = \"z\"}";
    file.write(&[table(&one, more), table(&other, "model_id = \"a\"")].concat());
    reload(&router, &log);
    assert_eq!([ask("b"), ask("b"), one.requests() as u16, other.requests() as u16], [200, 200, 3, 1]);
    assert_eq!([ask("a"), other.requests() as u16], [200, 2]);
    assert_eq!(one.last_header("/generate", "authorization").as_deref(), Some("Bearer sk-1"));
    let worker = told(&one);
    assert_eq!(
        (&worker["model_id"], &worker["priority"], &worker["cost"]),
        (&"b".into(), &7.into(), &2.5.into())
    );
    assert_eq!(worker["metadata"]["labels"]["zone"], "z");

    // One is out of rotation, and is probed no more: it is taken for healthy.
    one.say("/health", "503 Service Unavailable", "");
    wait_until("it to be unhealthy", || told(&one)["is_healthy"] == false);
    file.write(&[table(&one, "disable_health_check = true"), table(&other, "model_id = \"a\"")].concat());
    reload(&router, &log);
    wait_until("it to be taken for healthy", || told(&one)["is_healthy"] == true);
    assert_eq!(told(&one)["model_id"], "unknown", "nobody says it any more");
    file.write(&[table(&one, ""), table(&other, "model_id = \"a\"")].concat());
    reload(&router, &log);
    wait_until("it to be unhealthy", || told(&one)["is_healthy"] == false);
}

#[test]
fn what_a_call_has_changed_stays_where_the_table_has_not() {
    let [one, other] = [Engine::start(), Engine::start()];
    let file = File::of(&[table(&one, ""), table(&other, "")].concat());
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    for engine in [&one, &other] {
        let path = format!("/workers/{}", encoded(&engine.url()));
        assert_eq!(call(&router, "PUT", &path, r#"{"priority":9}"#).status(), 202);
    }
    file.write(&[table(&one, ""), table(&other, "cost = 2")].concat());
    reload(&router, &log);
    let priority = |engine: &Engine| shown(&router, &encoded(&engine.url()))["priority"].clone();
    assert_eq!((priority(&one), priority(&other)), (9.into(), 50.into()));
    assert_eq!(router.post("/generate", BODY).status(), 200);
}
