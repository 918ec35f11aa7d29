//! A worker that says what it likes: enough of SGLang's routes to be measured, and one lie.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Changes the answer of a route.
pub(crate) type Lie = fn(&str, &mut Value);

/// What it has counted: it takes 1 ms and 5 µs for each token of a prompt, and a step of 2 ms and 10 µs for each sequence.
#[derive(Debug, Default)]
struct Counted {
    computed: u64,
    busy_us: u64,
    moments: [f64; 3],
}

/// Starts one below `prefix`. It serves until the process ends.
pub(crate) fn start(prefix: &'static str, lie: Lie) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counted = Arc::new(Mutex::new(Counted::default()));
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || serve(connection, prefix, lie, &counted));
        }
    });
    address
}

fn serve(connection: TcpStream, prefix: &str, lie: Lie, counted: &Mutex<Counted>) {
    connection.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(connection);
    while let Some((path, body)) = request(&mut reader) {
        let route = path.strip_prefix(prefix).unwrap_or("").split('?').next().unwrap_or("");
        let answer = counted.lock().unwrap().answer(route, &body).map(|mut answer| {
            lie(route, &mut answer);
            answer
        });
        let (status, text) = match answer {
            Some(answer) => ("200 OK", answer.to_string()),
            None => ("404 Not Found", "{}".into()),
        };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", text.len());
        if reader.get_mut().write_all((head + &text).as_bytes()).is_err() {
            return;
        }
    }
}

/// The path and the body of the next request.
fn request(reader: &mut BufReader<TcpStream>) -> Option<(String, Value)> {
    let (mut path, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        match line.to_ascii_lowercase().strip_prefix("content-length: ") {
            Some(number) => length = number.parse().unwrap(),
            None => path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned)),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path?, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

impl Counted {
    fn answer(&mut self, route: &str, body: &Value) -> Option<Value> {
        match route {
            "/server_info" => Some(json!({"max_total_num_tokens": 100_000, "page_size": 1, "tp_size": 1,
                "context_length": 32_768, "chunked_prefill_size": 8192, "max_running_requests": 64})),
            "/v1/models" => Some(json!({"data": []})),
            "/flush_cache" => Some(json!({})),
            "/v1/loads" => Some(json!({"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0,
                "total_prefill_uncached_tokens": self.computed, "total_prefill_busy_us": self.busy_us,
                "decode_moments": self.moments}]})),
            "/generate" => Some(self.generate(body)),
            _ => None,
        }
    }

    fn generate(&mut self, body: &Value) -> Value {
        let prompts = body["input_ids"].as_array().unwrap();
        let tokens: u64 = prompts.iter().map(|prompt| prompt.as_array().unwrap().len() as u64).sum();
        let batch = prompts.len() as f64;
        let steps = body["sampling_params"]["max_new_tokens"].as_f64().unwrap() - 2.0;
        let busy_us = 1000 + 5 * tokens;
        self.computed += tokens;
        self.busy_us += busy_us;
        if steps > 0.0 {
            let us = steps * (2000.0 + 10.0 * batch);
            self.moments = [self.moments[0] + steps, self.moments[1] + steps * batch, self.moments[2] + us];
        }
        std::thread::sleep(Duration::from_micros(busy_us));
        prompts.iter().map(|_| json!({"meta_info": {"cached_tokens": 0}})).collect()
    }
}
