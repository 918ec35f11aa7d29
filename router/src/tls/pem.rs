//! Certificates and keys from files in PEM form (RFC 7468).

use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A file that a flag names and that is of no use for it. Shown to the operator as one line.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {}: {problem}", path.display())]
pub(crate) struct BadFile {
    flag: &'static str,
    path: PathBuf,
    problem: String,
}

impl BadFile {
    pub(crate) fn new(flag: &'static str, path: &Path, problem: impl Into<String>) -> Self {
        Self { flag, path: path.to_owned(), problem: problem.into() }
    }
}

/// All certificates of a file; at least one.
///
/// # Errors
/// The file cannot be read or holds none.
pub(crate) fn certificates(flag: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, BadFile> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(BadFile::new(flag, path, NO_CERTIFICATE)),
        Ok(found) => Ok(found),
        Err(error) => Err(BadFile::new(flag, path, unreadable(&error, NO_CERTIFICATE))),
    }
}

/// The first private key of a file.
///
/// # Errors
/// The file cannot be read or holds none.
pub(crate) fn private_key(flag: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, BadFile> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| BadFile::new(flag, path, unreadable(&error, NO_KEY)))
}

const NO_CERTIFICATE: &str = "no certificate in it; give a PEM file with -----BEGIN CERTIFICATE----- in it";

const NO_KEY: &str =
    "no private key in it that is not encrypted; give a PEM file with -----BEGIN PRIVATE KEY----- in it";

fn unreadable(error: &pem::Error, nothing: &str) -> String {
    match error {
        pem::Error::NoItemsFound => nothing.to_owned(),
        pem::Error::Io(error) => format!("{error}; give a file that the router may read"),
        other => format!("not in PEM form ({other}); {nothing}"),
    }
}
