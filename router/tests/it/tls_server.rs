//! Clients that speak TLS.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::common::process::run_to_end;
use crate::common::tls::{Authority, Identity};
use crate::common::{Client, Latch, Log, Router, Worker, noise, wait_until};

const STREAM: &[u8] = br#"{"text":"hello","stream":true}"#;

/// A way to the router: what is said to it in the clear goes on over TLS.
#[derive(Debug)]
struct Tunnel {
    address: String,
    agreed: Arc<Mutex<Vec<Agreed>>>,
}

/// What a handshake came to.
#[derive(Debug)]
struct Agreed {
    certificate: Vec<u8>,
    protocol: Vec<u8>,
}

impl Tunnel {
    fn start(router: &Router, authority: &Authority) -> Self {
        let connector = connector(authority);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let agreed: Arc<Mutex<Vec<Agreed>>> = Arc::default();
        let (noted, behind) = (Arc::clone(&agreed), router.address.clone());
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                listener.set_nonblocking(true).expect("an option");
                let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
                while let Ok((inside, _)) = listener.accept().await {
                    tokio::spawn(pass(inside, behind.clone(), connector.clone(), Arc::clone(&noted)));
                }
            });
        });
        Self { address, agreed }
    }

    fn client(&self) -> Client {
        Client::connect(&self.address)
    }

    /// Whether a new connection is shown this certificate.
    fn shows(&self, identity: &Identity) -> bool {
        assert_eq!(Client::get(&self.address, "/health").status(), 200);
        let agreed = self.agreed.lock().expect("not poisoned");
        agreed.last().expect("one connection").certificate == certificate(&identity.certificate).as_ref()
    }
}

/// Trusts this authority.
fn connector(authority: &Authority) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.path)).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

async fn pass(
    mut inside: TcpStream,
    behind: String,
    connector: TlsConnector,
    agreed: Arc<Mutex<Vec<Agreed>>>,
) {
    let Ok(stream) = TcpStream::connect(behind).await else { return };
    let name = ServerName::try_from("localhost").expect("a name");
    let Ok(mut outside) = connector.connect(name, stream).await else { return };
    let session = outside.get_ref().1;
    let chain = session.peer_certificates().expect("the router has shown one");
    let protocol = session.alpn_protocol().unwrap_or_default().to_vec();
    agreed.lock().expect("not poisoned").push(Agreed { certificate: chain[0].to_vec(), protocol });
    // However it ends, both sides are closed.
    let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("a certificate")
}

/// Flags that name these files.
fn flags(identity: &Identity) -> [String; 4] {
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (certificate, key) = (path(&identity.certificate), path(&identity.key));
    ["--tls-cert-path".to_owned(), certificate, "--tls-key-path".to_owned(), key]
}

fn args(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// A router whose files can be replaced, and the files.
fn start(authority: &Authority, workers: &[String], more: &[&str]) -> (Router, Log, Identity) {
    let first = authority.identity("localhost");
    let files = Identity {
        certificate: authority.file("shown.pem", &text(&first.certificate)),
        key: authority.file("shown.key", &text(&first.key)),
    };
    let flags = flags(&files);
    let (router, log) = Router::start_logged(workers, &[&args(&flags), more].concat());
    (router, log, files)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a file")
}

fn replace(files: &Identity, by: &Identity) {
    put(&files.certificate, &text(&by.certificate));
    put(&files.key, &text(&by.key));
}

/// Replaces a file at one blow, so that nobody reads half of it.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(new, path).expect("the same directory");
}

#[test]
fn requests_and_streams_go_through_tls_unchanged() {
    let latch = Latch::default();
    let go = latch.clone();
    let worker = Worker::start(move |conn, request| {
        if request.body != STREAM {
            conn.answer("200 OK", "", &request.body);
            return true;
        }
        conn.begin_stream();
        for part in ["data: 1\n\n", "data: [DONE]\n\n"] {
            go.wait();
            conn.chunk(part.as_bytes());
        }
        conn.end_stream();
        true
    });
    let authority = Authority::new("test authority");
    let (router, _log, _) = start(&authority, &[worker.url()], &["--admin-port", "0"]);
    assert!(router.url.starts_with("https://"), "{}", router.url);
    let tunnel = Tunnel::start(&router, &authority);
    let mut client = tunnel.client();
    for length in [0, 10, 3_000_000] {
        let body = noise(1, length);
        let answer = client.post("/generate", "Content-Type: application/octet-stream\r\n", &body);
        assert_eq!(answer.status(), 200);
        assert!(answer.body == body, "{length} bytes come back as they are");
    }
    client.send_post("/generate", "", STREAM);
    client.reader.head().expect("a head");
    for part in ["data: 1\n\n", "data: [DONE]\n\n"] {
        latch.pass(1);
        assert_eq!(client.reader.chunk().expect("a chunk"), part.as_bytes());
    }
    assert_eq!(client.reader.chunk().expect("the end"), b"");
    let agreed = tunnel.agreed.lock().expect("not poisoned");
    assert!(agreed.iter().all(|agreed| agreed.protocol == b"http/1.1") && agreed.len() == 1, "{agreed:?}");
    // Operators' keys are as secret as clients'; Prometheus is told nothing that is.
    let mut plain = Client::connect(router.admin.as_ref().expect("a listener"));
    plain.send("GET /health HTTP/1.1\r\nHost: router\r\n\r\n");
    assert!(!matches!(plain.reader.message(), Ok(Some(answer)) if answer.first.starts_with("HTTP/")));
    assert_eq!(Client::get(&router.metrics, "/metrics").status(), 200);
}

#[test]
fn a_tls_client_that_leaves_frees_its_worker() {
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        // Silent from here on; only the router can end this.
        let read = conn.stream.read(&mut [0]);
        assert!(matches!(read, Ok(0) | Err(_)), "the router sent something");
        false
    });
    let authority = Authority::new("test authority");
    let (router, _log, _) = start(&authority, &[worker.url()], &[]);
    let tunnel = Tunnel::start(&router, &authority);
    let mut client = tunnel.client();
    client.send_post("/generate", "", STREAM);
    client.reader.head().expect("a head");
    client.reader.chunk().expect("a chunk");
    drop(client);
    let gone = r#"smg_router_request_ends_total{end="client_gone"}"#;
    wait_until("the client to be missed", || router.metric(gone) == Some(1.0));
}

#[test]
fn what_is_no_handshake_ends_and_is_counted() {
    let authority = Authority::new("test authority");
    let (router, _log, _) = start(&authority, &[], &["--header-read-timeout-secs", "1"]);
    let mut plain = Client::connect(&router.address);
    plain.send("GET /health HTTP/1.1\r\nHost: router\r\n\r\n");
    let mut said = Vec::new();
    let _ = plain.stream.read_to_end(&mut said);
    assert!(!said.starts_with(b"HTTP/"), "nothing is answered in the clear");
    let mut silent = Client::connect(&router.address);
    assert!(matches!(silent.stream.read(&mut [0]), Ok(0)));
    let tunnel = Tunnel::start(&router, &authority);
    assert_eq!(Client::get(&tunnel.address, "/health").status(), 200);
    assert_eq!(router.metric("smg_router_client_tls_failures_total "), Some(2.0));
}

#[test]
fn a_tls_client_is_refused_like_another() {
    let authority = Authority::new("test authority");
    let (router, _log, _) = start(&authority, &[], &["--header-read-timeout-secs", "1"]);
    let tunnel = Tunnel::start(&router, &authority);
    for (head, status, code) in [
        ("GET / HTTP/1.1\r\nHost router\r\n\r\n", 400, "invalid_request_head"),
        ("GET / HTTP/1.1\r\nHost: rou", 408, "request_head_timeout"),
    ] {
        let mut client = tunnel.client();
        client.send(head);
        client.receive().assert_refused(status, code);
        assert!(client.reader.head().expect("an orderly end").is_none());
    }
}

#[test]
fn new_files_are_shown_to_new_connections() {
    let authority = Authority::new("test authority");
    let (router, _log, files) = start(&authority, &[], &[]);
    let tunnel = Tunnel::start(&router, &authority);
    let mut kept = tunnel.client();
    kept.send("GET /health HTTP/1.1\r\nHost: router\r\n\r\n");
    assert_eq!(kept.receive().status(), 200);
    // Told to look, and later without a word.
    for asked in [true, false] {
        let second = authority.identity("localhost");
        assert!(!tunnel.shows(&second));
        replace(&files, &second);
        if asked {
            router.signal("HUP");
        }
        wait_until("the new certificate to be shown", || tunnel.shows(&second));
    }
    kept.send("GET /health HTTP/1.1\r\nHost: router\r\n\r\n");
    assert_eq!(kept.receive().status(), 200);
}

#[test]
fn broken_files_change_nothing() {
    let authority = Authority::new("test authority");
    let (router, log, files) = start(&authority, &[], &[]);
    let tunnel = Tunnel::start(&router, &authority);
    let (old, other) = (authority.identity("localhost"), authority.identity("localhost"));
    replace(&files, &old);
    router.signal("HUP");
    wait_until("the first certificate to be shown", || tunnel.shows(&old));
    for (breaks, problem) in [(Some(&other.certificate), "not the key of"), (None, "no certificate in it")] {
        match breaks {
            Some(path) => put(&files.certificate, &text(path)),
            None => put(&files.certificate, "nothing"),
        }
        router.signal("HUP");
        wait_until("the problem to be told", || {
            log.lines()
                .iter()
                .any(|line| line.contains("still shown the old certificate") && line.contains(problem))
        });
        assert!(tunnel.shows(&old), "{problem}");
        router.signal("HUP");
    }
    replace(&files, &other);
    router.signal("HUP");
    wait_until("the new certificate to be shown", || tunnel.shows(&other));
    let told = log.lines().iter().filter(|line| line.contains("no certificate in it")).count();
    assert_eq!(told, 1, "a problem is told once");
}

#[test]
fn files_of_no_use_are_named_at_the_start() {
    let authority = Authority::new("test authority");
    let (one, two) = (authority.identity("localhost"), authority.identity("localhost"));
    let empty = authority.file("empty.pem", "");
    let missing = authority.file("there.pem", "").with_file_name("missing.pem");
    let cases = [
        (&missing, &one.key, "--tls-cert-path", "missing.pem", "give a file that the router may read"),
        (&one.certificate, &missing, "--tls-key-path", "missing.pem", "give a file that the router may read"),
        (&empty, &one.key, "--tls-cert-path", "empty.pem", "no certificate in it"),
        (&one.key, &one.key, "--tls-cert-path", "0.key", "no certificate in it"),
        (&one.certificate, &one.certificate, "--tls-key-path", "0.pem", "no private key in it"),
        (&one.certificate, &two.key, "--tls-key-path", "1.key", "give the two that belong together"),
    ];
    for (certificate, key, flag, file, remedy) in cases {
        let flags = flags(&Identity { certificate: certificate.clone(), key: key.clone() });
        let ports = ["--port", "0", "--prometheus-port", "0"];
        let output = run_to_end(&[&ports[..], &args(&flags)].concat());
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{said}");
        for part in [flag, file, remedy] {
            assert!(said.contains(part), "{part} in {said}");
        }
        crate::config::assert_checked(&args(&flags), said.lines().last().expect("a line"));
    }
}

#[test]
fn a_tls_stream_ends_whole_after_a_signal() {
    let latch = Latch::default();
    let go = latch.clone();
    let worker = Worker::start(move |conn, _| {
        conn.begin_stream();
        conn.chunk(b"data: 1\n\n");
        go.wait();
        conn.chunk(b"data: [DONE]\n\n");
        conn.end_stream();
        true
    });
    let authority = Authority::new("test authority");
    let (mut router, _log, _) = start(&authority, &[worker.url()], &["--shutdown-pause-secs", "0"]);
    let tunnel = Tunnel::start(&router, &authority);
    let mut client = tunnel.client();
    client.send_post("/generate", "", STREAM);
    client.reader.head().expect("a head");
    client.reader.chunk().expect("a chunk");
    router.signal("TERM");
    wait_until("the listener to close", || std::net::TcpStream::connect(&router.address).is_err());
    latch.open();
    assert_eq!(client.reader.chunk().expect("a chunk"), b"data: [DONE]\n\n");
    assert_eq!(client.reader.chunk().expect("the end"), b"");
    assert_eq!(router.wait().code(), Some(0));
}

#[test]
fn clients_that_halt_in_the_handshake_or_behind_it_do_not_hold_up_the_end() {
    /// A second, and what a busy machine adds; a handshake may take half a minute.
    const SOON: Duration = Duration::from_secs(10);
    let authority = Authority::new("test authority");
    let (mut router, _log, _) = start(&authority, &[], &["--shutdown-pause-secs", "0"]);
    let tunnel = Tunnel::start(&router, &authority);
    let silent = router.client();
    let mut begun = router.client();
    // The beginning of a ClientHello (RFC 8446, section 5.1).
    begun.send([0x16, 3, 1, 2, 0, 1, 0]);
    let mut behind = tunnel.client();
    behind.send("GET /health HTTP/1.1\r\nHost: router\r\n\r\n");
    assert_eq!(behind.receive().status(), 200);
    behind.send("GET /health HTTP/1.1\r\nHost: rou");
    router.signal("TERM");
    let told = Instant::now();
    assert_eq!(router.wait().code(), Some(0));
    assert!(told.elapsed() < SOON, "after {:?}", told.elapsed());
    for mut client in [silent, begun] {
        assert!(matches!(client.stream.read(&mut [0]), Ok(0) | Err(_)), "the router says something");
    }
}
