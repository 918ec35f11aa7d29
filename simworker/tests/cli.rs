//! The binary: what it prints, how it ends.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

fn command(flags: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simworker"));
    command
        .args(flags.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(flags: &str) -> Output {
    command(flags).output().unwrap()
}

fn listening(child: &mut Child) -> Vec<String> {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    json["listening"].as_array().unwrap().iter().map(|url| url.as_str().unwrap().to_owned()).collect()
}

fn get(url: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn workers_listen_each_on_its_own_port_until_stdin_closes() {
    let mut child = command("--workers 3 --port 0 --exit-with-stdin").spawn().unwrap();
    let urls = listening(&mut child);
    assert_eq!(urls.len(), 3);
    for url in &urls {
        let answer = get(url, "/health");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_control_port_is_in_the_line() {
    let flags = "--instant --port 0 --control-port 0 --fault 0:status=503 --exit-with-stdin";
    let mut child = command(flags).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    let answer = get(json["control"].as_str().unwrap(), "/workers/0/faults");
    assert!(answer.contains("{\"status\":[{\"hits\":0,\"value\":\"503\"}]}"), "{answer}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn roles_and_bootstrap_ports_are_in_the_line_where_there_are_any() {
    let line = |flags: &str| {
        let mut child = command(&format!("{flags} --port 0 --exit-with-stdin")).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        let bootstrap = json["bootstrap_ports"][0].as_u64();
        let health = bootstrap.map(|port| get(&format!("http://127.0.0.1:{port}"), "/health"));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        (json, health)
    };
    let flags = "--workers 3 --prefill-workers 1 --disaggregation-bootstrap-port 0 --dp-size 2 --fault kv-fail=on \
        --disaggregation-transfer-backend mooncake";
    let (json, health) = line(flags);
    assert_eq!(json["listening"].as_array().unwrap().len(), 3);
    assert_eq!(json["roles"], serde_json::json!(["prefill", "decode", "decode"]));
    assert!(json["bootstrap_ports"][0].is_u64(), "{json}");
    assert!(json["bootstrap_ports"][1].is_null() && json["bootstrap_ports"][2].is_null(), "{json}");
    assert!(health.unwrap().starts_with("HTTP/1.1 200"));
    let (json, _) = line("--workers 2");
    assert!(json.get("roles").is_none() && json.get("bootstrap_ports").is_none(), "{json}");
    let (json, _) = line("--disaggregation-mode decode");
    assert_eq!(json["roles"], serde_json::json!(["decode"]));
}

#[test]
fn a_bootstrap_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output =
        run(&format!("--port 0 --disaggregation-mode prefill --disaggregation-bootstrap-port {port}"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains(&port.to_string()) && text.contains("--disaggregation-bootstrap-port"), "{text}");
}

#[test]
fn wrong_flags_are_one_line_and_exit_code_2() {
    let cases = [
        ("--no-such-flag", "--no-such-flag"),
        ("--wrokers 2", "found; tip: a similar argument exists: '--workers'"),
        ("--preset unknown", "a100-80g-llama3-8b"),
        ("--workers none", "--workers"),
        ("--page-size 0 --port 0", "--page-size is 0"),
        ("--context-length 0 --port 0", "--context-length is 0; at least 16"),
        ("--kv-tokens 3 --port 0", "--kv-tokens is 3"),
        ("--max-running-requests 0 --port 0", "--max-running-requests is 0"),
        ("--schedule-conservativeness 0 --port 0", "--schedule-conservativeness is 0"),
        ("--instant --kv-events-config {\"publisher\":\"zmq\"} --port 0", "nothing to publish"),
        ("--port 65535 --workers 9", "--port"),
        ("--workers 2 --prefill-workers 2", "--prefill-workers"),
        ("--load-balance-method shortest_queue", "use total_requests"),
        ("--dp-size 4 --enable-dp-attention --max-running-requests 3 --port 0", "4 ranks"),
        ("--fault slower=1", "delay-head"),
        ("--instant --fault slow=2 --port 0", "--fault slow is for engines"),
        ("--fault status=9", "200 to 599"),
        ("--fault 9:status=500 --port 0", "worker 9"),
        ("--fault kv-fail=on --port 0", "--fault kv-fail is for workers that send KV, and there are none"),
        ("--fault kv-delay=1s --disaggregation-mode decode --port 0", "--fault kv-delay"),
        ("--workers 2 --prefill-workers 1 --fault 1:kv-fail=on --port 0", "worker 1"),
        ("--load-balance-method follow_bootstrap_room --dp-size 2", "--disaggregation-mode"),
        ("--radix-eviction-policy newest", "fifo, mru, filo"),
        ("--hicache-write-policy sometimes", "write_through_selective"),
        ("--hicache-ratio 0", "--hicache-ratio"),
        ("--enable-hierarchical-cache --disable-radix-cache", "exclude each other"),
        ("--kv-events-config {", "--kv-events-config"),
        ("--kv-events-config {\"publisher\":\"kafka\"}", "allowed: \"zmq\", \"null\""),
        ("--kv-events-config {\"publisher\":\"zmq\",\"buffer_steps\":0}", "buffer_steps is 0"),
        (
            "--workers 2 --kv-events-config {\"publisher\":\"zmq\",\"replay_endpoint\":\"tcp://*:5558\"}",
            "port 5559",
        ),
        ("--fault kv-events=drop --port 0", "choose --kv-events-config"),
        ("--fault kv-events=lose", "drop or swap"),
        ("--instant-interval-ms 1", "--instant"),
        ("--instant --instant-interval-ms -1", "--instant-interval-ms"),
    ];
    for (flags, word) in cases {
        let output = run(flags);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags}: {text}");
        assert_eq!(text.lines().count(), 1, "{flags}: {text}");
        assert!(text.contains(word), "{flags}: {text}");
    }
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let output = run(&format!("--port {port}"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains(&port.to_string()) && text.contains("another --port"), "{text}");
}

#[test]
#[cfg(feature = "kv-events")]
fn endpoints_of_kv_events_are_in_the_line_and_taken_ones_are_named() {
    let config = |port: u16| {
        let endpoint = format!("tcp://127.0.0.1:{port}");
        let config = serde_json::json!({"publisher": "zmq", "endpoint": endpoint, "bind": true});
        format!("--port 0 --workers 2 --dp-size 2 --kv-events-config {config} --exit-with-stdin")
    };
    let mut child = command(&config(0)).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
    let published = json["kv_events"].as_array().unwrap();
    let endpoints: std::collections::BTreeSet<&str> = published
        .iter()
        .flat_map(|of| of["endpoints"].as_array().unwrap())
        .map(|e| e.as_str().unwrap())
        .collect();
    assert_eq!((published.len(), endpoints.len()), (2, 4), "{json}");
    let taken = endpoints.first().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
    let output = run(&config(taken));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("for KV events") && text.contains("--kv-events-config"), "{text}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
#[cfg(feature = "kv-events")]
fn a_subscriber_that_cannot_be_connected_to_is_named() {
    let config = r#"{"publisher":"zmq","endpoint":"tcp://nope.invalid:5"}"#;
    let mut child =
        command(&format!("--port 0 --kv-events-config {config} --exit-with-stdin")).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let told = errors.find(|line| line.contains("tcp://nope.invalid:5"));
    assert!(told.is_some_and(|line| line.contains("trying on")));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_empty_key_is_none() {
    let mut command = command("--port 0 --exit-with-stdin --api-key");
    let mut child = command.arg("").spawn().unwrap();
    let urls = listening(&mut child);
    let answer = get(&urls[0], "/v1/models");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn help_is_no_error() {
    let output = run("--help");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for word in [
        "--kv-tokens <TOKENS>",
        "h100-tp8-llama3-70b",
        "slru",
        "[default: 8192]",
        "  5  the workers could not start",
        "- nvlink:    600 GB/s, shared by all transfers; 0.3 ms to set up each",
        "- 25gbe:     2.5 GB/s",
        "  idle-close=VALUE: connections without a request for so long are closed",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn a_command_line_for_the_real_engine_starts_a_mock() {
    let flags = "--model-path org/model --tp-size 2 --tokenizer-path org/words --load-format dummy --dp-size 1 \
        --mem-fraction-static 0.88 --kv-cache-dtype fp8_e5m2 --chat-template llama --trust-remote-code --log-level info --enable-metrics --random-seed -1 --port 0 --exit-with-stdin";
    let mut child = command(flags).spawn().unwrap();
    let url = listening(&mut child).remove(0);
    let answer = get(&url, "/model_info");
    for told in [
        "\"served_model_name\":\"org/model\"",
        "\"tokenizer_path\":\"org/words\"",
        "\"load_format\":\"dummy\"",
    ] {
        assert!(answer.contains(told), "{told}: {answer}");
    }
    let answer = get(&url, "/server_info");
    for told in ["\"tp_size\":2,", "\"tokenizer_path\":\"org/words\"", "\"load_format\":\"dummy\""] {
        assert!(answer.contains(told), "{told}: {answer}");
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success());
    assert_eq!(text.lines().count(), 4, "{text}");
    let of = |word: &str| {
        text.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {text}"))
    };
    let ignored = of("ignored, as they mean nothing");
    assert!(ignored.contains("--trust-remote-code") && ignored.contains("--log-level"), "{text}");
    for (flag, decides) in [
        ("--mem-fraction-static", "--kv-tokens"),
        ("--kv-cache-dtype", "--kv-tokens"),
        ("--chat-template", "template"),
    ] {
        let line = of(flag);
        assert!(line.contains("not emulated") && line.contains(decides), "{line}");
    }
    assert!(
        !text.contains("--enable-metrics")
            && !text.contains("--random-seed")
            && !text.contains("--model-path")
            && !text.contains("--tp-size"),
        "{text}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn as_many_files_may_be_open_as_the_system_allows() {
    let script =
        format!("ulimit -Sn 64; exec {} --port 0 --exit-with-stdin", env!("CARGO_BIN_EXE_simworker"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    listening(&mut child);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard, ..] = line["Max open files".len()..].split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    assert!(soft == hard && soft != "64", "{line}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// Asks for streams of that many replies, with this many alternatives to each token, which make frames expensive.
fn ask(url: &str, replies: usize, tokens: u32, alternatives: u32) -> TcpStream {
    let texts: Vec<String> = (0..replies).map(|index| format!("prompt {index}")).collect();
    let body = serde_json::json!({"text": texts, "stream": true, "return_logprob": alternatives > 0,
        "top_logprobs_num": alternatives, "sampling_params": {"max_new_tokens": tokens, "ignore_eos": true}})
    .to_string();
    let mut connection = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
    let head =
        "POST /generate HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
    write!(connection, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    connection
}

#[test]
fn a_worker_in_time_says_nothing() {
    // A step takes some seconds at this speed, of which 3 % are allowed: more than a busy machine is late.
    let mut child =
        command("--port 0 --speed 0.003 --request-overhead 0s --exit-with-stdin").spawn().unwrap();
    let urls = listening(&mut child);
    let mut answer = String::new();
    ask(&urls[0], 8, 3, 0).read_to_string(&mut answer).unwrap();
    assert!(answer.matches("data: {").count() >= 16, "{answer}");
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_worker_beyond_its_limit_says_so() {
    let mut child = command("--port 0 --speed 5 --enable-metrics --exit-with-stdin").spawn().unwrap();
    let urls = listening(&mut child);
    let url = urls[0].clone();
    let (tell, told) = std::sync::mpsc::channel();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(tell.send(line))));
    for _ in 0..4 {
        let mut connection = ask(&url, 16, 2000, 20);
        // It ends when the worker does.
        std::thread::spawn(move || std::io::copy(&mut connection, &mut std::io::sink()));
    }
    let line = told.recv_timeout(std::time::Duration::from_secs(60)).expect("a line about being late");
    assert!(line.starts_with("simworker: worker 0 is late: its frames leave"), "{line}");
    assert!(line.contains("more than 2.0 ms") && line.contains("--speed"), "{line}");
    let metrics = get(&url, "/metrics");
    let late = metrics.lines().find(|line| line.starts_with("simworker_saturated_seconds_total")).unwrap();
    assert!(late.rsplit(' ').next().unwrap().parse::<f64>().unwrap() >= 1.0, "{late}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
