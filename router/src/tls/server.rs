//! What the router shows its clients: a certificate chain, and the key that proves it is the router's.
//!
//! Certificates are renewed while the router runs. The files are read again after SIGHUP, and every few seconds, as a
//! mounted secret changes without one; what is read then serves the handshakes that begin afterwards. Files that are of no
//! use, such as a new certificate whose key is still to come, are told of once and change nothing.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::{InconsistentKeys, ServerConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;

use super::pem::{self, BadFile};
use crate::config::ServerTls;

const CERTIFICATE: &str = "--tls-cert-path";
const KEY: &str = "--tls-key-path";

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The only protocol that is spoken with clients.
const ALPN: &[u8] = b"http/1.1";

/// The certificate and the key that are shown now.
pub(crate) struct Credentials {
    files: ServerTls,
    current: RwLock<Current>,
    hasher: RandomState,
}

struct Current {
    acceptor: TlsAcceptor,
    /// Of the files when they were read last, of use or not.
    fingerprint: u64,
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// The first of them that is of no use.
    pub(crate) fn load(files: &ServerTls) -> Result<Arc<Self>, BadFile> {
        let hasher = RandomState::new();
        let fingerprint = fingerprint(files, &hasher);
        let current = RwLock::new(Current { acceptor: read(files)?, fingerprint });
        Ok(Arc::new(Self { files: files.clone(), current, hasher }))
    }

    /// For one handshake.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().acceptor.clone()
    }

    /// Keeps up with the files from now on, on the current runtime.
    ///
    /// # Errors
    /// The operating system refuses a signal handler.
    pub(crate) fn keep(self: Arc<Self>) -> std::io::Result<()> {
        let mut asked = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            let mut look = interval(LOOK_INTERVAL);
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = asked.recv() => {}
                    _ = look.tick() => {}
                }
                let kept = Arc::clone(&self);
                // It may take its time, if the files are on another machine's disk. A panic has told itself.
                let _ = tokio::task::spawn_blocking(move || kept.look()).await;
            }
        });
        Ok(())
    }

    /// Takes what is new in the files.
    fn look(&self) {
        // What changes between this and the reading is read twice.
        let fingerprint = fingerprint(&self.files, &self.hasher);
        if self.current.read().fingerprint == fingerprint {
            return;
        }
        match read(&self.files) {
            Ok(acceptor) => {
                *self.current.write() = Current { acceptor, fingerprint };
                tracing::info!(file = %self.files.certificate.display(), "clients are shown a new certificate");
            }
            Err(error) => {
                self.current.write().fingerprint = fingerprint;
                tracing::error!("clients are still shown the old certificate: {error}");
            }
        }
    }
}

/// Tells contents apart. A file that cannot be read is one without contents.
fn fingerprint(files: &ServerTls, hasher: &RandomState) -> u64 {
    hasher.hash_one([&files.certificate, &files.key].map(|path| std::fs::read(path).ok()))
}

fn read(files: &ServerTls) -> Result<TlsAcceptor, BadFile> {
    let chain = pem::certificates(CERTIFICATE, &files.certificate)?;
    let key = pem::private_key(KEY, &files.key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unfit(&error, files))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn unfit(error: &rustls::Error, files: &ServerTls) -> BadFile {
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let certificate = files.certificate.display();
            let problem = format!(
                "not the key of {certificate}; give the two that belong together, and the router's own certificate \
                 first in its file"
            );
            BadFile::new(KEY, &files.key, problem)
        }
        rustls::Error::InvalidCertificate(_) => {
            BadFile::new(CERTIFICATE, &files.certificate, format!("{error}; give a certificate in PEM form"))
        }
        other => BadFile::new(KEY, &files.key, format!("{other}; give a key of RSA, ECDSA or Ed25519")),
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("files", &self.files).finish_non_exhaustive()
    }
}
