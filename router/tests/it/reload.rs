//! The configuration file, read again while requests go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Latch, Router, Worker, wait_until};

const PROMPT: &[u8] =
    br#"{"text":"a prompt that is long enough to be remembered by whoever has seen it once before"}"#;

/// A file that names a policy and workers, and is written anew at one blow.
struct File(tempfile::TempDir);

impl File {
    fn new(policy: &str, workers: &[&Worker]) -> Self {
        let file = Self(tempfile::tempdir().expect("a directory"));
        file.say(policy, workers);
        file
    }

    fn path(&self) -> String {
        self.0.path().join("router.toml").to_str().expect("UTF-8").to_owned()
    }

    fn say(&self, policy: &str, workers: &[&Worker]) {
        let workers = workers.iter().map(|worker| format!("[[workers]]\nurl = \"{}\"\n", worker.url()));
        self.write(&format!("[policy]\nname = \"{policy}\"\n{}", workers.collect::<String>()));
    }

    fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, self.path()).expect("a file");
    }
}

fn urls(router: &Router) -> Vec<String> {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list");
    workers.iter().map(|worker| worker["url"].as_str().expect("a URL").to_owned()).collect()
}

fn policy_is(router: &Router, policy: &str) -> bool {
    router.metric(&format!("smg_router_decisions_total{{policy=\"{policy}\"")).is_some()
}

#[test]
fn workers_come_and_go_by_the_file_and_no_request_is_lost() {
    let workers = [Worker::fixed("{}"), Worker::fixed("{}"), Worker::fixed("{}")];
    let file = File::new("round_robin", &[&workers[0], &workers[1]]);
    let router = Arc::new(Router::start(&[], &["--config", &file.path()]));
    let (over, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let clients = [(); 4].map(|()| {
        let (router, over, failed) = (Arc::clone(&router), Arc::clone(&over), Arc::clone(&failed));
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let status = router.post("/generate", PROMPT).status();
                if status != 200 {
                    failed.lock().expect("not poisoned").push(status);
                }
            }
        })
    });
    for kept in [[1, 2], [2, 0], [0, 1]].into_iter().cycle().take(9) {
        let wanted = kept.map(|at| &workers[at]);
        file.say("round_robin", &wanted);
        router.signal("HUP");
        let expected = wanted.map(Worker::url);
        wait_until("the fleet to be that of the file", || {
            let now = urls(&router);
            now.len() == 2 && expected.iter().all(|url| now.contains(url))
        });
    }
    over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
    assert_eq!(*failed.lock().expect("not poisoned"), [0_u16; 0]);
}

#[test]
fn what_runs_on_a_worker_that_the_file_drops_goes_on() {
    let go = Latch::default();
    let when = go.clone();
    let leaving = Worker::start(move |conn, request| {
        if request.body == PROMPT {
            conn.answer("200 OK", "", b"old");
            return true;
        }
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        when.wait();
        conn.chunk(b"data: 2\n\n");
        conn.write("0\r\n\r\n");
        true
    });
    let staying = Worker::fixed("{}");
    let file = File::new("round_robin", &[&leaving]);
    let router = Router::start(&[], &["--config", &file.path()]);
    let mut client = router.client();
    client.send_post("/generate", "", br#"{"text":"a","stream":true}"#);
    assert_eq!(client.reader.head().expect("a head").expect("a head").status(), 200);
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 1\n\n");
    file.say("round_robin", &[&staying]);
    router.signal("HUP");
    wait_until("new requests to go elsewhere", || router.post("/generate", PROMPT).text() == "{}");
    go.open();
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 2\n\n");
    wait_until("it to be gone", || urls(&router) == [staying.url()]);
}

#[test]
fn another_policy_rules_and_what_the_index_knew_is_still_known() {
    let workers = [Worker::fixed("{}"), Worker::fixed("{}")];
    let fleet = [&workers[0], &workers[1]];
    let file = File::new("cache_aware", &fleet);
    let router = Router::start(&[], &["--config", &file.path(), "--decision-headers"]);
    let ask = || {
        let answer = router.post("/generate", PROMPT);
        let field = |name: &str| answer.header(name).map(str::to_owned);
        (field("x-router-worker"), field("x-router-reason"), field("x-router-predicted-tokens"))
    };
    let owner = ask().0;
    let known = ask();
    assert_eq!((&known.0, known.1.as_deref()), (&owner, Some("cache_hit")));

    // Without a signal: the file is looked at.
    file.say("round_robin", &fleet);
    wait_until("the other policy", || policy_is(&router, "round_robin"));
    let turns = [ask().0, ask().0];
    assert_ne!(turns[0], turns[1]);

    file.say("cache_aware", &fleet);
    router.signal("HUP");
    wait_until("the first policy", || !policy_is(&router, "power_of_two") && ask().1 == known.1);
    assert_eq!(ask(), known);
}

#[test]
fn a_file_that_is_wrong_changes_nothing_and_is_told_with_its_line() {
    let worker = Worker::fixed("{}");
    let file = File::new("round_robin", &[&worker]);
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    file.write("[policy]\nnane = \"random\"\n");
    router.signal("HUP");
    wait_until("the complaint", || log.lines().iter().any(|line| line.contains("router.toml:2")));
    assert_eq!(urls(&router), [worker.url()]);
    assert_eq!(router.post("/generate", PROMPT).status(), 200);
}

#[test]
fn what_waits_for_the_next_start_is_named() {
    let worker = Worker::fixed("{}");
    let file = File::new("round_robin", &[&worker]);
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    let workers = format!("[[workers]]\nurl = \"{}\"\n", worker.url());
    file.write(&format!("seed = 7\n[policy]\nname = \"random\"\n{workers}"));
    router.signal("HUP");
    let is_told = |line: &String| line.contains("next start") && line.contains("--seed");
    wait_until("the warning", || log.lines().iter().any(is_told));
    wait_until("the policy", || policy_is(&router, "random"));
}
