//! Times at the wire beside the engine's own.

use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;
use simworker::config::LiveConfig;

use crate::client::{Worker, prompt};

/// So slow that what a busy machine adds to a median is little beside 3 % of it: a step takes a tenth of a second.
const SPEED: f64 = 0.1;
const STREAMS: u64 = 4;
const REPLIES: u64 = 3;
const TOKENS: u32 = 12;

/// What a client saw of one stream, in seconds.
#[derive(Debug, Default)]
struct Seen {
    first: Vec<f64>,
    gaps: Vec<f64>,
}

/// Reads a stream to its end and notes when its frames came.
fn watch(mut connection: TcpStream, sent: Instant, seen: &mut Seen) {
    let (mut bytes, mut frames, mut last) = (Vec::new(), 0, None);
    let mut some = [0; 4096];
    loop {
        let read = connection.read(&mut some).unwrap();
        let now = Instant::now();
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&some[..read]);
        let all = String::from_utf8_lossy(&bytes).matches("data: {").count();
        for _ in frames..all {
            match last.replace(now) {
                None => seen.first.push((now - sent).as_secs_f64()),
                Some(before) => seen.gaps.push((now - before).as_secs_f64()),
            }
        }
        frames = all;
    }
    assert_eq!(frames as u32, TOKENS, "{}", String::from_utf8_lossy(&bytes));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median that the worker tells, in engine seconds.
fn own_median(worker: &Worker, name: &str) -> f64 {
    let text = worker.get("/metrics").body;
    let begin = format!("simworker_{name}{{worker=\"0\",quantile=\"0.5\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&begin)).unwrap().parse().unwrap()
}

#[test]
fn a_reading_client_sees_the_engines_own_times() {
    let worker = Worker::at_speed(SPEED, |_| ());
    let stream = |at: u64| {
        let mut seen = Seen::default();
        for reply in 0..REPLIES {
            let params = json!({"max_new_tokens": TOKENS, "ignore_eos": true});
            let text = prompt(at * 100 + reply, 200);
            let sent = Instant::now();
            let body = json!({"text": text, "sampling_params": params, "stream": true});
            watch(worker.send("/generate", &body), sent, &mut seen);
        }
        seen
    };
    let all: Vec<Seen> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..STREAMS).map(|at| scope.spawn(move || stream(at))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let of = |which: fn(&Seen) -> &Vec<f64>| median(all.iter().flat_map(which).copied().collect());
    let rows = [
        ("time_to_first_token_seconds", of(|seen| &seen.first)),
        ("inter_token_seconds", of(|seen| &seen.gaps)),
    ];
    for (name, client) in rows {
        let own = own_median(&worker, name);
        let off = client * SPEED / own - 1.0;
        assert!(off.abs() < 0.03, "{name}: {client} s at the client, {own} s in the engine: {off:+.4}");
    }
}

#[test]
fn the_front_end_is_charged_with_the_frames_that_there_are() {
    const FRAME_S: f64 = 0.05;
    const FRAMES: u32 = 30;
    let worker = Worker::with(|config| {
        config.dp_size = 2;
        config.live = LiveConfig { token_overhead_ns: (FRAME_S * 1e9) as u64, ..LiveConfig::default() };
    });
    // In one body, so that they run at the same time; of different lengths, so that the ranks do not step together.
    let params = json!({"max_new_tokens": FRAMES, "ignore_eos": true});
    let body = json!({"text": [prompt(1, 20), prompt(2, 700)], "sampling_params": params, "stream": true});
    let events = worker.post("/generate", &body).events();
    let last = [0, 1].map(|index| events.iter().rfind(|event| event["index"] == index).unwrap());
    let ranks = last.map(|event| event["meta_info"]["dp_rank"].as_u64().unwrap());
    assert_ne!(ranks[0], ranks[1]);
    let took = last.map(|event| event["meta_info"]["e2e_latency"].as_f64().unwrap());
    let slower = took[0].max(took[1]);
    // One after the other they are all through after three seconds; the steps of both ranks take 0.3 of them.
    let frames = 2.0 * f64::from(FRAMES) * FRAME_S;
    assert!((frames - 0.5..frames + 0.5).contains(&slower), "{slower} s for {frames} s of frames");
}
