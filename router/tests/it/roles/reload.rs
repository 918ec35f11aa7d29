//! Roles, ports and policies in a file that is read again.

use serde_json::{Value, json};

use super::{PORT, engine, in_mode, listed, states};
use crate::common::legs::latched;
use crate::common::{Latch, Router, Worker, wait_until};
use crate::reload::{File, reload};

fn row(worker: &Worker, lines: &str) -> String {
    format!("[[workers]]\nurl = \"{}\"\n{lines}\n", worker.url())
}

/// Role and port of each worker, by its URL.
fn role_of(router: &Router, worker: &Worker) -> Option<[Value; 3]> {
    let rows = listed(router);
    let found = rows.into_iter().find(|[url, ..]| *url == worker.url().as_str());
    found.map(|[_, role, port, policy]| [role, port, policy])
}

#[test]
fn rows_come_change_and_go_and_policies_change_for_each_role() {
    let (prefill, decode, other) = (engine(in_mode("prefill")), engine(in_mode("decode")), engine(json!({})));
    let policies = |prefill: &str, decode: &str| {
        format!("[policy]\nname = \"random\"\nprefill_policy = \"{prefill}\"\ndecode_policy = \"{decode}\"\n")
    };
    let pair =
        row(&prefill, "role = \"prefill\"\nbootstrap_port = 8998") + &row(&decode, "role = \"decode\"");
    let file = File::of(&(policies("bucket", "power_of_two") + &pair));
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    wait_until("both to be ready", || states(&router) == ["ready", "ready"]);
    assert_eq!(role_of(&router, &prefill), Some([json!("prefill"), json!(8998), json!("bucket")]));
    assert_eq!(role_of(&router, &decode), Some([json!("decode"), Value::Null, json!("power_of_two")]));

    let third = row(&other, &format!("role = \"prefill\"\nbootstrap_port = {PORT}"));
    file.write(&(policies("cache_aware", "power_of_two") + &pair + &third));
    reload(&router, &log);
    assert_eq!(role_of(&router, &other), Some([json!("prefill"), json!(PORT), json!("cache_aware")]));
    assert_eq!(role_of(&router, &decode), Some([json!("decode"), Value::Null, json!("power_of_two")]));
    wait_until("the third to be ready", || states(&router) == ["ready"; 3]);

    // Another port and another role: the one is taken over, the other one begins anew.
    file.write(&(policies("cache_aware", "random") + &pair + &row(&other, "worker_type = \"decode\"")));
    reload(&router, &log);
    assert_eq!(role_of(&router, &other), Some([json!("decode"), Value::Null, json!("random")]));
    wait_until("it to be ready again", || states(&router) == ["ready"; 3]);
    let lines = log.lines();
    let said = |part: &str| lines.iter().any(|line| line.contains("read again") && line.contains(part));
    assert!(said("prefill policy bucket → cache_aware; 1 worker added"), "{lines:?}");
    assert!(
        said(&format!("decode policy power_of_two → random; 1 worker changed: {}", other.url())),
        "{lines:?}"
    );

    file.write(&(policies("cache_aware", "random") + &pair));
    reload(&router, &log);
    wait_until("it to be gone", || role_of(&router, &other).is_none());
    assert!(!log.lines().iter().any(|line| line.contains("takes effect at the next start")));
}

#[test]
fn a_row_that_becomes_wrong_fails_and_one_that_is_put_right_comes_back() {
    let worker = engine(in_mode("prefill"));
    let file = File::of(&row(&worker, "role = \"prefill\""));
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    wait_until("it to be ready", || states(&router) == ["ready"]);
    for wrong in [format!("role = \"prefill\"\nbootstrap_port = {PORT}"), "role = \"decode\"".to_owned()] {
        file.write(&row(&worker, &wrong));
        reload(&router, &log);
        wait_until("it to have failed", || states(&router) == ["failed"]);
        file.write(&row(&worker, "role = \"prefill\""));
        reload(&router, &log);
        wait_until("it to be ready again", || states(&router) == ["ready"]);
    }
}

#[test]
fn a_file_that_leaves_a_role_without_workers_changes_nothing() {
    let text = |rows: &[String]| format!("pd_disaggregation = true\n{}", rows.concat());
    let (prefill, decode) = (engine(in_mode("prefill")), engine(in_mode("decode")));
    let rows = [row(&prefill, "role = \"prefill\""), row(&decode, "role = \"decode\"")];
    let file = File::of(&text(&rows));
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    file.write(&text(&rows[..1]));
    router.signal("HUP");
    wait_until("the file to be refused", || {
        log.lines().iter().any(|line| line.contains("stays as it was") && line.contains("with --decode"))
    });
    assert_eq!(listed(&router).len(), 2);
}

#[test]
fn the_file_names_pairs_by_the_flags_keys_too_and_a_flag_takes_their_place() {
    let [prefill, decode, other] = [(); 3].map(|()| engine(json!({})));
    let text = format!(
        "[disaggregation]\npd_disaggregation = true\nprefill = [\"{} {PORT}\"]\ndecode = [\"{}\"]\n",
        prefill.url(),
        decode.url()
    );
    let file = File::of(&text);
    let router = Router::start(&[], &["--config", &file.path()]);
    assert_eq!(role_of(&router, &prefill), Some([json!("prefill"), json!(PORT), json!("cache_aware")]));
    assert_eq!(role_of(&router, &decode), Some([json!("decode"), Value::Null, json!("cache_aware")]));
    let typed = Router::start(&[], &["--config", &file.path(), "--prefill", &other.url()]);
    let urls: Vec<_> = listed(&typed).into_iter().map(|[url, ..]| url).collect();
    assert_eq!(urls, [json!(other.url()), json!(decode.url())]);
}

#[test]
fn when_pairs_are_used_is_taken_over() {
    const BODY: &[u8] = br#"{"text":"a"}"#;
    let go = Latch::default();
    let (prefill, regular) = (engine(in_mode("prefill")), engine(in_mode("null")));
    let decode = latched(&go, "{}");
    let pair = row(&prefill, "role = \"prefill\"") + &row(&decode, "role = \"decode\"");
    let all = format!("{pair}{}", row(&regular, "role = \"regular\""));
    let file = File::of(&format!("[disaggregation]\ndecode_dispatch_limit = 1\n{pair}"));
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    wait_until("both to be ready", || states(&router) == ["ready"; 2]);
    let mut clients = [(); 2].map(|()| router.client());
    clients.iter_mut().for_each(|client| client.send_post("/generate", "", BODY));
    let waiting = || router.metric("smg_router_decode_dispatch_waiting");
    wait_until("one to wait", || waiting() == Some(1.0) && decode.count("POST") == 1);

    file.write(&all);
    reload(&router, &log);
    wait_until("the other one to go", || decode.count("POST") == 2);
    assert_eq!(waiting(), None);
    go.open();
    clients.iter_mut().for_each(|client| assert_eq!(client.receive().status(), 200));
    wait_until("all to be ready", || states(&router) == ["ready"; 3]);
    assert_eq!(router.post("/generate", BODY).status(), 200);
    assert_eq!((decode.count("POST"), regular.count("POST")), (3, 0));

    file.write(&format!("[disaggregation]\nprefer_pd = false\n{all}"));
    reload(&router, &log);
    assert_eq!(router.post("/generate", BODY).status(), 200);
    assert_eq!((decode.count("POST"), regular.count("POST")), (3, 1));
    let lines = log.lines();
    let said = |part: &str| lines.iter().any(|line| line.contains("read again") && line.contains(part));
    assert!(said("--decode-dispatch-limit 1 → ") && said("--prefer-pd "), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("takes effect at the next start")));
}
