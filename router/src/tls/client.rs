//! TLS towards workers: whom the router trusts, how it shows who it is, and what is said when that fails.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, InconsistentKeys, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::pem::{self, BadFile};
use crate::config::UpstreamTls;

const AUTHORITIES: &str = "--ca-cert-paths";
const CERTIFICATE: &str = "--client-cert-path";
const KEY: &str = "--client-key-path";

/// The only protocol that is spoken with workers.
const ALPN: &[u8] = b"http/1.1";

/// Makes connections to workers private. Clones share what they remember of earlier sessions.
#[derive(Clone)]
pub(crate) struct ClientTls(TlsConnector);

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// The first of them that is of no use.
    pub(crate) fn new(files: &UpstreamTls) -> Result<Self, BadFile> {
        let provider = Arc::new(ring::default_provider());
        let roots = if files.authorities.is_empty() { of_system() } else { of_files(&files.authorities)? };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
            .with_root_certificates(roots);
        let mut config = match &files.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key_path)) => {
                let chain = pem::certificates(CERTIFICATE, certificate)?;
                let key = pem::private_key(KEY, key_path)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| unfit(&error, certificate, key_path))?
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with a worker that must be `name`.
    ///
    /// # Errors
    /// Whatever happened, in words for the operator: nothing of a request has been sent.
    pub(crate) async fn connect(
        &self,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.0.connect(name, stream).await.map_err(|error| io::Error::other(explain(&error)))
    }
}

/// If a connection ended because the worker does not like the router's certificate: that, in words for the operator.
/// Under TLS 1.3 a worker judges it only when the router has begun to speak (RFC 8446, section 4.4.2.4), and reads
/// nothing of that if it says no.
pub(crate) fn refusal(ended: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    let error = of_tls(ended)?;
    let rustls::Error::AlertReceived(alert) = error else { return None };
    judges_certificate(*alert).then(|| io::Error::other(refused(*alert)))
}

/// What rustls said, wherever it hides among the causes.
fn of_tls<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // The source of an error of the system's is that of what it wraps.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = wrapped.map(|inner| inner as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    }
    None
}

fn explain(error: &io::Error) -> String {
    match of_tls(error) {
        None => format!("the TLS handshake was cut off: {error}"),
        Some(rustls::Error::InvalidCertificate(problem)) => untrusted(problem),
        Some(rustls::Error::InvalidMessage(_)) => {
            "no TLS is spoken there; if the worker has none, give its URL with http://".to_owned()
        }
        Some(rustls::Error::AlertReceived(alert)) if judges_certificate(*alert) => refused(*alert),
        Some(error) => format!("the TLS handshake failed: {error}"),
    }
}

fn untrusted(problem: &CertificateError) -> String {
    /// What a self-signed certificate is found to be that `openssl req -x509` has made.
    const IS_AUTHORITY: &str = "CaUsedAsEndEntity";
    match problem {
        // An authority of the same name has another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "its certificate is not trusted: signed by an unknown authority; give that authority's with {AUTHORITIES}"
        ),
        other if other.to_string().contains(IS_AUTHORITY) => {
            "its certificate is not trusted: it is that of an authority; make one with CA:FALSE for the worker".to_owned()
        }
        other => format!("its certificate is not trusted: {other}"),
    }
}

fn refused(alert: AlertDescription) -> String {
    format!(
        "it refuses the router's certificate, or the lack of one ({alert:?}); see {CERTIFICATE} and {KEY}"
    )
}

fn judges_certificate(alert: AlertDescription) -> bool {
    use AlertDescription as Alert;
    matches!(
        alert,
        Alert::CertificateRequired
            | Alert::NoCertificate
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied
            // Its signature is not that of an authority of the same name.
            | Alert::DecryptError
            // Before TLS 1.3, of one that was not shown.
            | Alert::HandshakeFailure
    )
}

/// Whom this system trusts. Where that is nobody, no worker is, and the log says so of each.
fn of_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!("the system's authorities: {error}");
    }
    roots.add_parsable_certificates(found.certs);
    roots
}

fn of_files(paths: &[impl AsRef<Path>]) -> Result<RootCertStore, BadFile> {
    let mut roots = RootCertStore::empty();
    for path in paths {
        let path = path.as_ref();
        for certificate in pem::certificates(AUTHORITIES, path)? {
            roots.add(certificate).map_err(|error| {
                BadFile::new(AUTHORITIES, path, format!("{error}; give certificates of authorities"))
            })?;
        }
    }
    Ok(roots)
}

fn unfit(error: &rustls::Error, certificate: &Path, key: &Path) -> BadFile {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let problem =
                format!("not the key of {}; give the two that belong together", certificate.display());
            BadFile::new(KEY, key, problem)
        }
        rustls::Error::InvalidCertificate(_) => {
            BadFile::new(CERTIFICATE, certificate, format!("{error}; give a certificate in PEM form"))
        }
        other => BadFile::new(KEY, key, format!("{other}; give a key of RSA, ECDSA or Ed25519")),
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientTls")
    }
}
