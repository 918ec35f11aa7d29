//! A server that answers at once, for finding out what this client can do: whatever it is asked, the reply is the same
//! stream of frames. It runs in a thread of its own and understands as much of HTTP as the client speaks.

use std::io;
use std::net::TcpListener as Listener;
use std::rc::Rc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub(super) struct NullServer {
    /// Where it listens.
    pub(super) url: String,
    _stop: oneshot::Sender<()>,
}

impl NullServer {
    /// Serves replies of `frames` tokens, one frame each.
    pub(super) fn start(frames: u32) -> io::Result<Self> {
        let listener = Listener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("null-server".to_owned()).spawn(move || {
            let reply: Rc<[Vec<u8>]> = reply(frames).into();
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(listener, reply) => {}
                }
            });
        })?;
        Ok(Self { url, _stop: stop })
    }
}

async fn accept(listener: Listener, reply: Rc<[Vec<u8>]>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let reply = Rc::clone(&reply);
        tokio::task::spawn_local(async move {
            // A client that leaves ends its connection.
            let _ = serve(&stream, &reply).await;
        });
    }
}

/// Answers the requests of one connection. Streams go on in turns, frame by frame, as those of an engine do: a client that
/// finds many frames of one stream in its buffer has an easier life.
async fn serve(stream: &TcpStream, reply: &[Vec<u8>]) -> io::Result<()> {
    let mut got = Vec::new();
    loop {
        while let Some(length) = request_length(&got) {
            got.drain(..length);
            for piece in reply {
                write_all(stream, piece).await?;
                tokio::task::yield_now().await;
            }
        }
        stream.readable().await?;
        let mut chunk = [0; 16 * 1024];
        match stream.try_read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => got.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The length of the first request, head and body, once it is there.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let body: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    (bytes.len() >= head + body).then_some(head + body)
}

/// A whole answer, as a worker that streams increments gives it, in `frames` pieces of a frame each.
fn reply(frames: u32) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    for token in 1..=frames {
        let end = if token == frames { r#"{"type":"length","length":1}"# } else { "null" };
        let frame = format!(
            "data: {{\"text\":\" some\",\"meta_info\":{{\"id\":\"0123456789abcdef\",\"prompt_tokens\":8,\
             \"completion_tokens\":{token},\"cached_tokens\":0,\"finish_reason\":{end}}}}}\n\n"
        );
        pieces.push(frame.into_bytes());
    }
    if let Some(last) = pieces.last_mut() {
        last.extend_from_slice(b"data: [DONE]\n\n");
    }
    let length: usize = pieces.iter().map(Vec::len).sum();
    if let Some(first) = pieces.first_mut() {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n");
        first.splice(0..0, head.into_bytes());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_come_when_its_body_has() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcPOST";
        assert_eq!(request_length(request), Some(request.len() - 4));
        assert_eq!(request_length(&request[..request.len() - 5]), None);
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n\r"), None);
        assert_eq!(request_length(b"GET / HTTP/1.1\r\n\r\n"), Some(18));
    }
}
