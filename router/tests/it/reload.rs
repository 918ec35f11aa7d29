//! The configuration file, read again while requests go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{Client, Latch, Log, Router, Worker, wait_until};

const PROMPT: &[u8] =
    br#"{"text":"a prompt that is long enough to be remembered by whoever has seen it once before"}"#;

/// A file that names a policy and workers, and is written anew at one blow.
pub(crate) struct File(tempfile::TempDir);

impl File {
    /// One that says this.
    pub(crate) fn of(text: &str) -> Self {
        let file = Self(tempfile::tempdir().expect("a directory"));
        file.write(text);
        file
    }

    /// One that says so much.
    pub(crate) fn new(policy: &str, workers: &[&Worker]) -> Self {
        let file = Self(tempfile::tempdir().expect("a directory"));
        file.say(policy, workers);
        file
    }

    pub(crate) fn path(&self) -> String {
        self.0.path().join("router.toml").to_str().expect("UTF-8").to_owned()
    }

    pub(crate) fn say(&self, policy: &str, workers: &[&Worker]) {
        let workers = workers.iter().map(|worker| format!("[[workers]]\nurl = \"{}\"\n", worker.url()));
        self.write(&format!("[policy]\nname = \"{policy}\"\n{}", workers.collect::<String>()));
    }

    /// At one blow, so that nobody reads half of it.
    pub(crate) fn write(&self, text: &str) {
        let new = self.0.path().join("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, self.path()).expect("a file");
    }

    /// Writes over what is there.
    fn write_in_place(&self, text: &str) {
        std::fs::write(self.path(), text).expect("a file");
    }
}

fn urls(router: &Router) -> Vec<String> {
    let list = router.get("/workers").json();
    let workers = list["workers"].as_array().expect("a list");
    workers.iter().map(|worker| worker["url"].as_str().expect("a URL").to_owned()).collect()
}

/// How often the log says that the file has been read.
fn readings(log: &Log) -> usize {
    log.lines().iter().filter(|line| line.contains("configuration read again")).count()
}

/// Has the file read, and waits until it is.
pub(crate) fn reload(router: &Router, log: &Log) {
    let before = readings(log);
    router.signal("HUP");
    // The last line that may come of it.
    wait_until("the file to be read", || readings(log) > before);
}

fn policy_is(router: &Router, policy: &str) -> bool {
    router.metric(&format!("smg_router_decisions_total{{policy=\"{policy}\"")).is_some()
}

#[test]
fn workers_come_and_go_by_the_file_and_no_request_is_lost() {
    let go = Latch::default();
    let workers = [(); 3].map(|()| streaming(&go));
    let file = File::new("round_robin", &[&workers[0], &workers[1]]);
    let router = Arc::new(Router::start(&[], &["--config", &file.path(), "--disable-retries"]));
    let mut streams = [(); 4].map(|()| held_stream(&router));
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
    let policies = ["cache_aware", "random", "power_of_two", "round_robin"].into_iter().cycle();
    for (kept, policy) in [[1, 2], [2, 0], [0, 1]].into_iter().cycle().zip(policies).take(9) {
        let wanted = kept.map(|at| &workers[at]);
        file.say(policy, &wanted);
        router.signal("HUP");
        let expected = wanted.map(Worker::url);
        wait_until("the fleet to be that of the file", || {
            let now = urls(&router);
            // Those that leave have their streams, which are waited for.
            expected.iter().all(|url| now.contains(url))
        });
        wait_until("the policy", || policy_is(&router, policy));
    }
    over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
    assert_eq!(*failed.lock().expect("not poisoned"), [0_u16; 0]);
    go.open();
    streams.iter_mut().for_each(assert_ends_well);
    wait_until("the fleet to be that of the file alone", || urls(&router).len() == 2);
}

/// A worker that answers at once, but the second half of a stream when it is let.
fn streaming(go: &Latch) -> Worker {
    let when = go.clone();
    Worker::start(move |conn, request| {
        if request.body == PROMPT {
            conn.answer("200 OK", "", b"old");
            return true;
        }
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        when.wait();
        conn.chunk(b"data: 2\n\n");
        conn.end_stream();
        true
    })
}

/// A stream of which the first half has come.
fn held_stream(router: &Router) -> Client {
    let mut client = router.client();
    client.send_post("/generate", "", br#"{"text":"a","stream":true}"#);
    assert_eq!(client.reader.head().expect("a head").expect("a head").status(), 200);
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 1\n\n");
    client
}

fn assert_ends_well(client: &mut Client) {
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: 2\n\n");
    assert_eq!(client.reader.chunk().expect("the end"), b"");
}

#[test]
fn what_runs_on_a_worker_that_the_file_drops_goes_on() {
    let go = Latch::default();
    let leaving = streaming(&go);
    let staying = Worker::fixed("{}");
    let file = File::new("round_robin", &[&leaving]);
    let router = Router::start(&[], &["--config", &file.path()]);
    let mut client = held_stream(&router);
    file.say("round_robin", &[&staying]);
    router.signal("HUP");
    wait_until("new requests to go elsewhere", || router.post("/generate", PROMPT).text() == "{}");
    go.open();
    assert_ends_well(&mut client);
    wait_until("it to be gone", || urls(&router) == [staying.url()]);
}

#[test]
fn another_policy_rules_and_what_the_index_knew_is_still_known() {
    let workers = [Worker::fixed("{}"), Worker::fixed("{}")];
    let fleet = [&workers[0], &workers[1]];
    let file = File::new("cache_aware", &fleet);
    let (router, log) = Router::start_logged(&[], &["--config", &file.path(), "--decision-headers"]);
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
    reload(&router, &log);
    assert_eq!(ask(), known, "the first one that asks");
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

/// Longer than from one look at the file to the next.
const A_LOOK: Duration = Duration::from_millis(2500);

/// Shorter than that by far: what stands for this time is not looked at twice.
const NO_TWO_LOOKS: Duration = Duration::from_secs(1);

/// Writes the first halves of a file over each other, each with a content of its own, until one of them must have been
/// looked at, and then another file. False if one stood for so long that it may have been taken for the whole.
fn write_slowly(file: &File, halves: &[&Worker], policy: &str, workers: &[&Worker]) -> bool {
    let tables = halves.iter().map(|worker| format!("[[workers]]\nurl = \"{}\"\n", worker.url()));
    let half = tables.collect::<String>();
    let (begun, mut written) = (Instant::now(), Instant::now());
    for step in 0.. {
        let is_last = begun.elapsed() > A_LOOK;
        let now = Instant::now();
        if is_last {
            file.say(policy, workers);
        } else {
            file.write_in_place(&format!("# {step}\n{half}"));
        }
        if written.elapsed() > NO_TWO_LOOKS {
            return false;
        }
        if is_last {
            break;
        }
        written = now;
        std::thread::sleep(Duration::from_millis(100));
    }
    true
}

#[test]
fn a_file_that_is_written_in_place_is_not_read_before_it_is_whole() {
    let workers = [Worker::fixed("{}"), Worker::fixed("{}"), Worker::fixed("{}")];
    let fleet = workers.each_ref();
    // A machine that stalls in between has shown nothing: then once more.
    loop {
        let file = File::new("round_robin", &fleet);
        let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
        if write_slowly(&file, &fleet[..1], "random", &fleet) {
            wait_until("the whole file", || policy_is(&router, "random"));
            assert_eq!(urls(&router), fleet.map(Worker::url));
            wait_until("the line about it", || readings(&log) > 0);
            assert_eq!(readings(&log), 1, "half a file was taken over: {:?}", log.lines());
            return;
        }
    }
}

#[test]
fn a_file_that_says_nothing_takes_no_worker_out() {
    let worker = Worker::fixed("{}");
    let file = File::new("round_robin", &[&worker]);
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    let complaints = || log.lines().iter().filter(|line| line.contains("says nothing at all")).count();
    for (number, text) in ["", "# workers: none\n", "[fleet]\n"].into_iter().enumerate() {
        file.write(text);
        router.signal("HUP");
        wait_until("the complaint", || complaints() == number + 1);
        assert_eq!(urls(&router), [worker.url()]);
    }
    let line = log.lines().into_iter().find(|line| line.contains("says nothing")).expect("a line");
    assert!(line.contains("ERROR") && line.contains("worker_urls = []"), "{line}");
    file.write("[fleet]\nworker_urls = []\n");
    router.signal("HUP");
    wait_until("it to be gone", || urls(&router).is_empty());
}

#[test]
fn a_reload_tells_what_it_has_changed_and_what_it_has_not() {
    let workers = [Worker::fixed("{}"), Worker::fixed("{}")];
    let [one, other] = workers.each_ref().map(Worker::url);
    let text =
        |seed: u32, policy: &str, workers: &str| format!("seed = {seed}\n[policy]\n{policy}\n{workers}");
    let table = |url: &str, more: &str| format!("[[workers]]\nurl = \"{url}\"\n{more}\n");
    let first = text(1, "name = \"random\"", &table(&one, ""));
    let file = File::of(&first);
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    let told = |text: &str| {
        file.write(text);
        reload(&router, &log);
        let lines = log.lines();
        let line = lines.iter().rfind(|line| line.contains("configuration read again")).expect("a line");
        line.split_once("read again: ").expect("what has changed").1.trim_end().to_owned()
    };
    assert!(told(&first).starts_with("nothing has changed"));
    let second = told(&text(7, "name = \"cache_aware\"\ncache_threshold = 0.5", &table(&other, "")));
    for part in [
        "policy random → cache_aware",
        "--cache-threshold default → 0.5",
        &format!("1 worker added: {other}"),
        &format!("1 worker removed: {one}"),
    ] {
        assert!(second.contains(part), "{part}: {second}");
    }
    let third = told(&text(7, "name = \"cache_aware\"", &table(&other, "priority = 7")));
    assert!(
        third.starts_with(&format!("--cache-threshold 0.5 → default; 1 worker changed: {other}")),
        "{third}"
    );
    // The seed waits for a start, as long as it is not the one that there was at this one.
    let later = || log.lines().iter().filter(|line| line.contains("next start: --seed")).count();
    assert_eq!(later(), 2);
    told(&text(1, "name = \"cache_aware\"", &table(&other, "priority = 7")));
    assert_eq!(later(), 2);
    assert!(log.lines().iter().all(|line| !line.contains("answered with 503")), "somebody was always there");
}

#[test]
fn a_fleet_is_called_empty_only_if_it_is() {
    let workers = [Worker::fixed("{}"), Worker::fixed("{}")];
    let file = File::new("round_robin", &[&workers[0]]);
    let (router, log) = Router::start_logged(&[], &["--config", &file.path()]);
    let added = format!(r#"{{"url":"{}"}}"#, workers[1].url());
    assert_eq!(router.post("/workers", added.as_bytes()).status(), 202);
    let empty = || log.lines().iter().filter(|line| line.contains("answered with 503")).count();
    file.write("[fleet]\nworker_urls = []\n");
    reload(&router, &log);
    wait_until("the other one to be alone", || urls(&router) == [workers[1].url()]);
    reload(&router, &log);
    assert_eq!(empty(), 0);
    let mut client = router.client();
    client.send(format!("DELETE /workers/{} HTTP/1.1\r\nHost: x\r\n\r\n", workers[1].address));
    assert_eq!(client.receive().status(), 202);
    wait_until("it to be gone", || urls(&router).is_empty());
    reload(&router, &log);
    wait_until("the warning", || empty() == 1);
}

#[test]
fn options_of_the_policy_that_rules_are_taken_over() {
    let workers = [Worker::fixed("{}"), Worker::fixed("{}")];
    let tables: String =
        workers.iter().map(|worker| format!("[[workers]]\nurl = \"{}\"\n", worker.url())).collect();
    let text = |options: &str| format!("[policy]\nname = \"cache_aware\"\n{options}\n{tables}");
    let file = File::of(&text("cache_threshold = 0.3"));
    let (router, log) = Router::start_logged(&[], &["--config", &file.path(), "--decision-headers"]);
    let is_well = |worker: &Worker| {
        router.metric(&format!("smg_worker_health{{worker=\"{}\"}}", worker.url())) == Some(1.0)
    };
    wait_until("both to be ready", || workers.iter().all(is_well));
    // Of the second prompt's characters about half are known.
    let reason = |topic: &str| {
        let beginning = format!("{topic} ").repeat(100);
        let ask = |end: &str| {
            let body =
                serde_json::json!({"text": beginning.clone() + &format!("{end} ").repeat(100)}).to_string();
            router.post("/generate", body.as_bytes())
        };
        ask("first");
        ask("other").header("x-router-reason").expect("a reason").to_owned()
    };
    assert_eq!(reason("alpha"), "cache_hit");
    file.write(&text("cache_threshold = 0.9"));
    reload(&router, &log);
    assert_ne!(reason("betas"), "cache_hit");
    // Which of the two got the prompts is a matter of chance.
    let most_chars = || {
        let of = |worker: &Worker| {
            router.metric(&format!("smg_worker_index_chars{{worker=\"{}\"}}", worker.url())).expect("a gauge")
        };
        workers.iter().map(of).fold(0.0, f64::max)
    };
    let before = most_chars();
    assert!(before > 1000.0, "{before}");
    file.write(&text("cache_threshold = 0.3\nmax_tree_size = 1000"));
    reload(&router, &log);
    assert_eq!(reason("gamma"), "cache_hit");
    wait_until("what is too much to be forgotten", || most_chars() <= 1000.0);
}
