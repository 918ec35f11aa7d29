//! Certificates made for a test, and TLS in front of a scripted worker.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

use super::Worker;

/// Signs certificates, all in files of one directory.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    made: AtomicUsize,
    directory: tempfile::TempDir,
    /// Its own certificate.
    pub(crate) path: PathBuf,
}

/// A certificate and its key, in files.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let path = directory.path().join("authority.pem");
        std::fs::write(&path, params.self_signed(&key).expect("a certificate").pem()).expect("a file");
        Self { issuer: Issuer::new(params, key), made: AtomicUsize::new(0), directory, path }
    }

    /// A certificate for whoever has this name or address.
    pub(crate) fn identity(&self, name: &str) -> Identity {
        self.sign(CertificateParams::new([name.to_owned()]).expect("a name"))
    }

    /// The same, of long ago.
    pub(crate) fn expired(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        Identity {
            certificate: self.file(&format!("{number}.pem"), &certificate.pem()),
            key: self.file(&format!("{number}.key"), &key.serialize_pem()),
        }
    }

    /// A file beside the others.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

/// What a TLS worker asks of the router.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asks<'a> {
    Nothing,
    /// A certificate of this authority.
    Certificate(&'a Authority),
}

/// TLS in front of a worker: takes connections and passes on what it deciphers.
#[derive(Debug)]
pub(crate) struct Front {
    /// Where it listens, as `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// The protocols that were agreed on, one for each handshake that was completed.
    pub(crate) protocols: Arc<Mutex<Vec<String>>>,
}

impl Front {
    pub(crate) fn start(worker: &Worker, identity: &Identity, asks: Asks<'_>) -> Self {
        Self::start_with(worker, identity, asks, rustls::ALL_VERSIONS)
    }

    pub(crate) fn start_with(
        worker: &Worker,
        identity: &Identity,
        asks: Asks<'_>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let config = server_config(identity, asks, versions);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let protocols: Arc<Mutex<Vec<String>>> = Arc::default();
        let (agreed, behind) = (Arc::clone(&protocols), worker.address.clone());
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(serve(listener, TlsAcceptor::from(Arc::new(config)), agreed, behind));
        });
        Self { address, protocols }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    protocols: Arc<Mutex<Vec<String>>>,
    behind: String,
) {
    listener.set_nonblocking(true).expect("an option");
    let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime");
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, protocols, behind) = (acceptor.clone(), Arc::clone(&protocols), behind.clone());
        tokio::spawn(async move {
            let Ok(mut outside) = acceptor.accept(stream).await else { return };
            let agreed = outside.get_ref().1.alpn_protocol().unwrap_or_default();
            protocols.lock().expect("not poisoned").push(String::from_utf8_lossy(agreed).into_owned());
            let Ok(mut inside) = tokio::net::TcpStream::connect(behind).await else { return };
            // However it ends, both sides are closed.
            let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
        });
    }
}

fn server_config(
    identity: &Identity,
    asks: Asks<'_>,
    versions: &[&'static SupportedProtocolVersion],
) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
    let builder = builder.expect("the provider knows them");
    let builder = match asks {
        Asks::Nothing => builder.with_no_client_auth(),
        Asks::Certificate(of) => {
            let mut roots = RootCertStore::empty();
            roots.add(certificate(&of.path)).expect("an authority");
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().expect("an authority"))
        }
    };
    let key = PrivateKeyDer::from_pem_file(&identity.key).expect("a key");
    let mut config = builder
        .with_single_cert(vec![certificate(&identity.certificate)], key)
        .expect("they belong together");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("a certificate")
}
