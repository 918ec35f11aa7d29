//! Waiting until a target is ready: its path answers 200, and a first short reply comes through it. Routers get to know
//! their workers after they listen; a run that began before would count their refusals.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use http::uri::Uri;

use crate::scenario::Target;

/// How long is waited between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The request that must come through.
const PROBE: &str = r#"{"text":" ready","sampling_params":{"max_new_tokens":1,"ignore_eos":true,"temperature":0},"stream":false}"#;

/// Waits until the target at `url` is ready. `ended` says why it never will be.
///
/// # Errors
/// Why it is not ready, in words.
pub(super) fn wait(target: &Target, url: &str, ended: &dyn Fn() -> Option<String>) -> Result<(), String> {
    let limit = Duration::from_nanos(target.ready_timeout_ns);
    let deadline = Instant::now() + limit;
    let post = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{PROBE}", PROBE.len());
    let steps = [("GET", target.ready.as_str(), "\r\n"), ("POST", "/generate", post.as_str())];
    for (method, path, rest) in steps {
        loop {
            let answer = status(url, method, path, rest);
            if matches!(answer, Ok(200)) {
                break;
            }
            if let Some(why) = ended() {
                return Err(why);
            }
            if Instant::now() >= deadline {
                let last = answer.map_or_else(|error| error.to_string(), |status| format!("status {status}"));
                return Err(format!(
                    "{method} {path} did not answer 200 within {limit:?} (last: {last}); see `ready` and \
                     `ready_timeout` of the target"
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }
    std::thread::sleep(Duration::from_nanos(target.settle_ns));
    Ok(())
}

/// Two ports that are free now. They may be taken before the target has them; then it does not start, and says why.
pub(super) fn free_ports() -> io::Result<[u16; 2]> {
    // Both are held at once, so that they differ.
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}

/// The status of the answer to one request.
fn status(url: &str, method: &str, path: &str, rest: &str) -> io::Result<u16> {
    let invalid = || io::Error::other("no HTTP");
    let uri: Uri = url.parse().map_err(io::Error::other)?;
    let host = uri.host().ok_or_else(invalid)?;
    let port = uri.port_u16().unwrap_or(80);
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let address = (name, port).to_socket_addrs()?.next().ok_or_else(invalid)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = format!("{method} {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n{rest}");
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    let mut chunk = [0; 64];
    while head.len() < 12 {
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&chunk[..read]),
        }
    }
    // HTTP/1.1 200
    let digits = head.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).filter(|_| head.starts_with(b"HTTP/1.")).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Source;

    fn target(url: &str, ready_timeout_ns: u64) -> Target {
        Target {
            name: "x".into(),
            policy_name: String::new(),
            source: Source::Running { url: url.into(), worker_port: 1 },
            ready: "/up".into(),
            ready_timeout_ns,
            settle_ns: 0,
        }
    }

    /// Answers so many connections, each with the next of `answers`, and tells what was asked.
    fn server(answers: &'static [&'static str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let asked = |answer: &&str| {
                let mut stream = listener.accept().unwrap().0;
                let mut request = [0; 1024];
                let read = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                let text = String::from_utf8_lossy(&request[..read]).into_owned();
                text.lines().next().unwrap_or_default().to_owned()
            };
            answers.iter().map(asked).collect()
        });
        (url, thread)
    }

    #[test]
    fn a_target_is_ready_when_a_reply_comes_through_it() {
        let (url, asked) = server(&[
            "HTTP/1.1 503 Not Yet\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 503 No Worker\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
        ]);
        wait(&target(&url, 60_000_000_000), &url, &|| None).unwrap();
        let (up, generate) = ("GET /up HTTP/1.1", "POST /generate HTTP/1.1");
        assert_eq!(asked.join().unwrap(), [up, up, generate, generate]);
    }

    #[test]
    fn what_never_answers_is_told_with_its_last_answer() {
        let (url, _asked) = server(&["HTTP/1.1 404 Not Found\r\n\r\n"]);
        let why = wait(&target(&url, 0), &url, &|| None).unwrap_err();
        assert!(
            why.contains("GET /up") && why.contains("status 404") && why.contains("ready_timeout"),
            "{why}"
        );
        let why = wait(&target(&url, u64::MAX / 4), &url, &|| Some("it ended".into())).unwrap_err();
        assert_eq!(why, "it ended");
    }
}
