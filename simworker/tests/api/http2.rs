//! HTTP/2 without TLS.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use simworker::config::{Http2Config, Mode, WorkerConfig};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::client::{PATIENCE, Worker};

const STREAMS: u32 = 8;

fn speaks(config: &mut WorkerConfig) {
    config.wire.http2 = Some(Http2Config { max_concurrent_streams: STREAMS });
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A connection of a client that knows what the worker speaks.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        Self { sender, connection: tokio::spawn(connection) }
    }

    async fn send(&self, path: &str, body: &Value) -> hyper::Result<Response<Incoming>> {
        let request = Request::post(format!("http://worker{path}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        self.sender.clone().send_request(request).await
    }

    async fn json(&self, path: &str, body: &Value) -> Value {
        let answer = self.send(path, body).await.unwrap();
        assert_eq!(answer.status(), 200);
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }
}

fn generate(tokens: u32, stream: bool) -> Value {
    json!({
        "text": "x", "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}, "stream": stream,
    })
}

#[test]
fn both_protocols_are_spoken_on_one_port_in_all_modes() {
    let workers = [
        Worker::with(speaks),
        Worker::instant_with(speaks),
        Worker::watched_with(50.0, Mode::Engine, &[], speaks),
    ];
    for worker in workers {
        runtime().block_on(async {
            let client = Client::connect(worker.address()).await;
            let mut all = tokio::task::JoinSet::new();
            // The worker's settings have come before its first answer.
            client.json("/generate", &generate(1, false)).await;
            let client = std::sync::Arc::new(client);
            for _ in 0..100 {
                let client = std::sync::Arc::clone(&client);
                all.spawn(async move { client.json("/generate", &generate(4, false)).await });
            }
            for answer in all.join_all().await {
                assert_eq!(answer["meta_info"]["completion_tokens"], 4);
            }
        });
        assert_eq!(worker.get("/server_info").json()["enable_http2"], true, "and HTTP/1.1");
    }
}

#[test]
fn no_more_streams_run_at_once_than_are_allowed() {
    let worker = Worker::with(speaks);
    runtime().block_on(async {
        let client = std::sync::Arc::new(Client::connect(worker.address()).await);
        // The worker's settings have come before its first answer.
        client.json("/generate", &generate(1, false)).await;
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..3 * STREAMS {
            let client = std::sync::Arc::clone(&client);
            all.spawn(async move { client.json("/generate", &generate(300, false)).await });
        }
        let mut most = 0;
        let mut answers = 0;
        while let Ok(answer) = tokio::time::timeout(PATIENCE, all.join_next()).await {
            let Some(answer) = answer else { break };
            assert_eq!(answer.unwrap()["meta_info"]["completion_tokens"], 300);
            answers += 1;
            let load = worker.load();
            let number = |key: &str| load[key].as_u64().unwrap();
            most = most.max(number("num_running_reqs") + number("num_waiting_reqs"));
        }
        assert_eq!(answers, 3 * STREAMS);
        assert!(most <= u64::from(STREAMS), "{most}");
    });
}

#[test]
fn a_reset_stream_aborts_its_request_and_no_other() {
    for worker in [Worker::with(speaks), Worker::watched_with(50.0, Mode::Engine, &[], speaks)] {
        runtime().block_on(async {
            let client = Client::connect(worker.address()).await;
            let mut first = client.send("/generate", &generate(100_000, true)).await.unwrap();
            let second = client.send("/generate", &generate(100_000, true)).await.unwrap();
            first.body_mut().frame().await.unwrap().unwrap();
            worker.wait_until_running(2);
            drop(second);
            // The reset goes out when the connection is polled.
            let deadline = tokio::time::Instant::now() + PATIENCE;
            while worker.load()["num_running_reqs"] != 1 {
                assert!(tokio::time::Instant::now() < deadline, "{}", worker.load());
                let _ = tokio::time::timeout(Duration::from_millis(5), first.body_mut().frame()).await;
            }
            drop(first);
            drop(client.sender);
            let _ = tokio::time::timeout(PATIENCE, client.connection).await;
        });
        worker.wait_until_idle();
    }
}

#[test]
fn a_request_without_a_reader_is_aborted_with_its_connection() {
    let worker = Worker::with(speaks);
    runtime().block_on(async {
        let client = Client::connect(worker.address()).await;
        let mut answer = client.send("/generate", &generate(100_000, true)).await.unwrap();
        answer.body_mut().frame().await.unwrap().unwrap();
        worker.wait_until_running(1);
        client.connection.abort();
    });
    worker.wait_until_idle();
}

#[test]
fn faults_act_on_a_stream_and_not_on_its_connection() {
    let faults = ["reset=head,times=1,path=/generate"];
    let worker = Worker::watched_with(50.0, Mode::Engine, &faults, speaks);
    runtime().block_on(async {
        let client = Client::connect(worker.address()).await;
        let cut = client.send("/generate", &generate(3, true)).await;
        let is_cut = match cut {
            Err(_) => true,
            Ok(answer) => answer.into_body().collect().await.is_err(),
        };
        assert!(is_cut, "the first is reset");
        let next = client.json("/generate", &generate(3, false)).await;
        assert_eq!(next["meta_info"]["completion_tokens"], 3, "the same connection goes on");
    });
}

#[test]
fn a_connection_that_winds_down_answers_what_has_begun() {
    let faults = ["close-after-answer=on,path=/ping"];
    let worker = Worker::watched_with(50.0, Mode::Engine, &faults, speaks);
    runtime().block_on(async {
        let client = Client::connect(worker.address()).await;
        let mut long = client.send("/generate", &generate(200, true)).await.unwrap();
        long.body_mut().frame().await.unwrap().unwrap();
        let ping = Request::get("http://worker/ping").body(Full::default()).unwrap();
        assert_eq!(client.sender.clone().send_request(ping).await.unwrap().status(), 200);
        let rest = long.into_body().collect().await.unwrap().to_bytes();
        assert!(rest.ends_with(b"data: [DONE]\n\n"), "it is answered to its end");
        let ended = tokio::time::timeout(PATIENCE, client.connection).await.unwrap();
        assert!(ended.unwrap().is_ok(), "and the connection ends in order");
    });
}

#[test]
fn without_the_flag_only_the_older_protocol_is_spoken() {
    let worker = Worker::start();
    assert_eq!(worker.get("/server_info").json()["enable_http2"], false);
    runtime().block_on(async {
        let client = Client::connect(worker.address()).await;
        assert!(client.send("/generate", &generate(1, false)).await.is_err());
    });
}
