//! Each fault over a real socket, in both modes.

mod answers;
mod connections;
mod engine;

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use simworker::config::Mode;

use crate::client::Worker;

const MODES: [Mode; 2] = [Mode::Engine, Mode::Instant { interval_ns: 0 }];

fn stream(tokens: u32) -> Value {
    json!({"text": "x", "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}, "stream": true})
}

/// Does this to a worker of each kind with these faults.
fn both(faults: &[&str], act: impl Fn(&Worker)) {
    for mode in MODES {
        act(&Worker::watched(mode, faults));
    }
}

/// What came, and how it ended.
fn drain(mut connection: TcpStream) -> (String, Result<(), ErrorKind>) {
    let mut bytes = Vec::new();
    let end = connection.read_to_end(&mut bytes);
    (String::from_utf8(bytes).unwrap(), end.map(|_| ()).map_err(|error| error.kind()))
}

/// The same when nothing more is to be expected after a while.
fn drain_for(connection: TcpStream, patience: Duration) -> (String, Result<(), ErrorKind>) {
    connection.set_read_timeout(Some(patience)).unwrap();
    drain(connection)
}
