//! Signals, whenever they come and whatever hangs.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Router, Worker, wait_for};

/// How long what is not waited for may take all the same: a second, and what a busy machine adds.
const SOON: Duration = Duration::from_secs(10);

/// Puts a file into this place that can be opened, and of which nothing can be read while it is held open.
fn hang(path: &Path) {
    let new = path.with_extension("new");
    assert!(Command::new("mkfifo").arg(&new).status().expect("mkfifo").success());
    std::fs::rename(new, path).expect("renamed");
}

/// Waits until somebody reads the file; it goes on doing so while this is held.
fn hold_reader(path: &Path) -> File {
    const NONBLOCK: i32 = 0o4000;
    wait_for("a reader", || OpenOptions::new().write(true).custom_flags(NONBLOCK).open(path).ok())
}

fn config(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("router.toml")
}

/// A router that may never come to listen.
fn begin(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_router"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the router's binary")
}

/// It ends as told, and has not said that it listens.
fn assert_ends_unannounced(mut child: Child) {
    let status = wait_for("the router to exit", || child.try_wait().expect("our child"));
    let mut said = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

#[test]
fn signals_are_heard_while_the_configuration_is_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = config(&directory);
    hang(&path);
    let file = path.to_str().expect("UTF-8");
    for args in [&["--config", file][..], &["launch", "--router-config", file, "--", "sh", "{port}"]] {
        let child = begin(args);
        let reader = hold_reader(&path);
        signal(&child, Signal::HUP);
        signal(&child, Signal::TERM);
        assert_ends_unannounced(child);
        drop(reader);
    }
}

#[test]
fn a_router_that_is_not_ready_yet_ends_at_once() {
    // It is asked how it is, and says nothing: that is waited for.
    let worker = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", worker.local_addr().expect("an address"));
    let ports = ["--host", "127.0.0.1", "--port", "0", "--prometheus-port", "0"];
    let child = begin(&[&ports[..], &["--worker-urls", &url, "--shutdown-pause-secs", "100"]].concat());
    let _asked = worker.accept().expect("a question");
    signal(&child, Signal::TERM);
    assert_ends_unannounced(child);
}

#[test]
fn a_file_that_hangs_does_not_hold_up_the_end() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = config(&directory);
    for (pause, signals) in [("0", &["TERM"][..]), ("100", &["TERM", "TERM"])] {
        let new = path.with_extension("new");
        std::fs::write(&new, "seed = 1\n").expect("written");
        std::fs::rename(new, &path).expect("renamed");
        let args = ["--config", path.to_str().expect("UTF-8"), "--shutdown-pause-secs", pause];
        // Without one it would not be ready either.
        let worker = Worker::fixed("{}");
        let mut router = Router::start(&[worker.url()], &args);
        assert_eq!(router.get("/readiness").status(), 200);
        hang(&path);
        router.signal("HUP");
        let mut reader = hold_reader(&path);
        let told = Instant::now();
        for (nth, name) in signals.iter().enumerate() {
            if nth > 0 {
                // Two that come at once are one.
                wait_for("the first one to be heard", || {
                    (router.get("/readiness").status() == 503).then_some(())
                });
            }
            router.signal(name);
        }
        assert_eq!(router.wait().code(), Some(0));
        assert!(told.elapsed() < SOON, "after {:?}", told.elapsed());
        // Its reader was there to the end.
        assert!(reader.write(b"x").is_err());
    }
}
