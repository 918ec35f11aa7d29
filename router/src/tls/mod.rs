//! TLS: files of certificates and keys, and what is made of them.

mod client;
mod pem;

pub(crate) use client::{ClientTls, refusal};
pub(crate) use pem::BadFile;
