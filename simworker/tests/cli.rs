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

#[test]
fn workers_listen_each_on_its_own_port_until_stdin_closes() {
    let mut child = command("--workers 3 --port 0 --exit-with-stdin").spawn().unwrap();
    let urls = listening(&mut child);
    assert_eq!(urls.len(), 3);
    for url in &urls {
        let address = url.strip_prefix("http://").unwrap();
        let mut connection = TcpStream::connect(address).unwrap();
        write!(connection, "GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn wrong_flags_are_one_line_and_exit_code_2() {
    let cases = [
        ("--no-such-flag", "--no-such-flag"),
        ("--preset unknown", "a100-80g-llama3-8b"),
        ("--workers none", "--workers"),
        ("--page-size 0 --port 0", "page_size"),
        ("--context-length 0 --port 0", "context_len"),
        ("--port 65535 --workers 9", "--port"),
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
    assert!(text.contains(&port.to_string()), "{text}");
}

#[test]
fn help_is_no_error() {
    let output = run("--help");
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("--kv-tokens"));
}
