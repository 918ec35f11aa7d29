//! A worker whose every byte is decided by the test.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::http::{Message, Reader};

/// One connection that the router opened.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) stream: TcpStream,
    pub(crate) reader: Reader,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("an option");
        let reader = Reader::new(stream.try_clone().expect("a second handle"));
        Self { stream, reader }
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn answer(&mut self, status: &str, headers: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
        self.write([head.as_bytes(), body].concat());
    }

    pub(crate) fn begin_stream(&mut self) {
        self.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
    }

    pub(crate) fn chunk(&mut self, bytes: &[u8]) -> bool {
        let head = format!("{:x}\r\n", bytes.len());
        self.write([head.as_bytes(), bytes, b"\r\n"].concat())
    }

    pub(crate) fn end_stream(&mut self) {
        self.write("0\r\n\r\n");
    }
}

/// A listening worker. It keeps all requests that it saw.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<Message>>>,
    connections: Arc<AtomicUsize>,
}

impl Worker {
    /// Answers each request by `serve`; the connection is kept while that gives true. Health probes are none of its
    /// business: they are answered well, and not seen.
    pub(crate) fn start(serve: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", serve)
    }

    /// The same at this address.
    pub(crate) fn start_at(
        address: &str,
        serve: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::probed_at(address, move |conn, request| {
            if request.first.starts_with("GET /health ") {
                conn.answer("200 OK", "", b"");
                return true;
            }
            serve(conn, request)
        })
    }

    /// Answers each request by `serve`, health probes too.
    pub(crate) fn probed(serve: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static) -> Self {
        Self::probed_at("127.0.0.1:0", serve)
    }

    fn probed_at(address: &str, serve: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let worker = Self { address, seen: Arc::default(), connections: Arc::default() };
        let (seen, connections) = (Arc::clone(&worker.seen), Arc::clone(&worker.connections));
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                connections.fetch_add(1, Ordering::SeqCst);
                let (seen, serve) = (Arc::clone(&seen), Arc::clone(&serve));
                std::thread::spawn(move || connection(stream, &seen, &*serve));
            }
        });
        worker
    }

    /// Answers every request with this body.
    pub(crate) fn fixed(body: &'static str) -> Self {
        Self::start(move |conn, _| {
            conn.answer("200 OK", "Content-Type: application/json\r\n", body.as_bytes());
            true
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, without health probes.
    pub(crate) fn seen(&self) -> Vec<Message> {
        let all = self.seen.lock().expect("not poisoned");
        all.iter().filter(|request| !request.first.starts_with("GET /health ")).cloned().collect()
    }

    /// How many requests so far begin so: a method, or method and path.
    pub(crate) fn count(&self, first: &str) -> usize {
        self.seen().iter().filter(|request| request.first.starts_with(first)).count()
    }

    /// Connections that were opened to it so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections to it that its peer still takes for open: a close counts once it has arrived there.
    pub(crate) fn open_at_peer(&self) -> usize {
        const ESTABLISHED: &str = "01";
        let port = self.address.rsplit(':').next().expect("a port").parse::<u16>().expect("a number");
        let port = format!(":{port:04X}");
        let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row[2].ends_with(&port) && row[3] == ESTABLISHED).count()
    }
}

fn connection(
    stream: TcpStream,
    seen: &Mutex<Vec<Message>>,
    serve: &(dyn Fn(&mut Conn, &Message) -> bool + Send + Sync),
) {
    let mut conn = Conn::new(stream);
    while let Ok(Some(request)) = conn.reader.message() {
        seen.lock().expect("not poisoned").push(request.clone());
        if !serve(&mut conn, &request) {
            return;
        }
    }
}

/// A URL where nobody listens.
pub(crate) fn dead_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("http://{}", listener.local_addr().expect("an address"))
}
