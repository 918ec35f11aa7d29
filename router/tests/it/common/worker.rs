//! A worker whose every byte is decided by the test.

use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::http::{Message, Reader};
use super::ports::Held;
use super::wait_until;

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
    sockets: Arc<Sockets>,
}

/// What the system holds for a worker, as far as killing it takes that away.
#[derive(Debug, Default)]
struct Sockets {
    killed: AtomicBool,
    /// By number of the connection; those that are open.
    open: Mutex<HashMap<usize, TcpStream>>,
    /// When it is killed its port is nobody else's.
    held: Mutex<Option<Held>>,
}

/// Takes a connection off the list when it is over.
struct Open<'a>(&'a Sockets, usize);

impl Worker {
    /// Answers each request by `serve`; the connection is kept while that gives true. Questions for health and model
    /// are none of its business: they are answered, and not seen.
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
            if is_question(request) {
                conn.answer("404 Not Found", "", b"");
                return true;
            }
            serve(conn, request)
        })
    }

    /// Answers each request by `serve`, health probes too.
    pub(crate) fn probed(serve: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static) -> Self {
        Self::probed_at("127.0.0.1:0", serve)
    }

    /// The same at this address.
    pub(crate) fn probed_at(
        address: &str,
        serve: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let worker =
            Self { address, seen: Arc::default(), connections: Arc::default(), sockets: Arc::default() };
        let (seen, connections) = (Arc::clone(&worker.seen), Arc::clone(&worker.connections));
        let sockets = Arc::clone(&worker.sockets);
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if sockets.killed.load(Ordering::SeqCst) {
                    return;
                }
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let (seen, serve, sockets) = (Arc::clone(&seen), Arc::clone(&serve), Arc::clone(&sockets));
                sockets.keep(number, &stream);
                std::thread::spawn(move || {
                    let _open = Open(&sockets, number);
                    connection(stream, &seen, &*serve);
                });
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

    /// Answers every request alike.
    pub(crate) fn answering(status: &'static str, headers: &'static str, body: &'static str) -> Self {
        Self::start(move |conn, _| {
            conn.answer(status, headers, body.as_bytes());
            true
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// As if its process were killed: nobody listens any more, and every connection ends.
    pub(crate) fn kill(&self) {
        self.sockets.killed.store(true, Ordering::SeqCst);
        // The listener is closed by its thread, which this wakes.
        while TcpStream::connect(&self.address).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        *self.sockets.held.lock().expect("not poisoned") = Some(Held::at(&self.address));
        self.hang_up();
    }

    /// Ends every connection.
    pub(crate) fn hang_up(&self) {
        for stream in self.sockets.open.lock().expect("not poisoned").values() {
            // One that the router has closed cannot be closed again.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Is well, but does not say what it is, on connections that end with them, and serves requests so: none of these comes
    /// on a connection that a question had opened, or loses its own to one.
    pub(crate) fn answering_requests(
        serve: impl Fn(&mut Conn, &Message) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::probed(move |conn, request| {
            if request.first.starts_with("GET ") {
                let is_probe = request.first.starts_with("GET /health ");
                let status = if is_probe { "200 OK" } else { "404 Not Found" };
                conn.answer(status, "Connection: close\r\n", b"");
                return false;
            }
            serve(conn, request)
        })
    }

    /// Waits until the router has asked all its questions, and the connections that they came on are over: for workers
    /// that answer requests only.
    pub(crate) fn wait_until_asked(&self) {
        let has_come = |question: &&str| {
            let seen = self.seen.lock().expect("not poisoned");
            seen.iter().any(|request| request.first.starts_with(*question))
        };
        wait_until("the questions to be over", || IDENTITY.iter().all(has_come) && self.open_at_peer() == 0);
    }

    /// The requests so far, without the router's own questions for health and for what the worker is.
    pub(crate) fn seen(&self) -> Vec<Message> {
        let all = self.seen.lock().expect("not poisoned");
        all.iter().filter(|request| !is_question(request)).cloned().collect()
    }

    /// The same, which are forgotten.
    pub(crate) fn take_seen(&self) -> Vec<Message> {
        let seen = self.seen();
        self.seen.lock().expect("not poisoned").clear();
        seen
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

/// What the router asks every worker once it knows it: three questions side by side, two of them again by their older
/// name where the worker does not know the first one.
const IDENTITY: [&str; 5] = [
    "GET /v1/models ",
    "GET /server_info ",
    "GET /get_server_info ",
    "GET /model_info ",
    "GET /get_model_info ",
];

/// Whether this is a question that the router asks every worker.
fn is_question(request: &Message) -> bool {
    let first = &request.first;
    first.starts_with("GET /health ") || IDENTITY.iter().any(|question| first.starts_with(question))
}

impl Sockets {
    fn keep(&self, number: usize, stream: &TcpStream) {
        let kept = stream.try_clone().expect("a second handle");
        self.open.lock().expect("not poisoned").insert(number, kept);
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.lock().expect("not poisoned").remove(&self.1);
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

/// A URL where nobody listens, and nobody else will while the tests run.
pub(crate) fn dead_url() -> String {
    let held = Held::at("127.0.0.1:0");
    let url = format!("http://{}", held.address());
    std::mem::forget(held);
    url
}
