//! TLS: files of certificates and keys, and what is made of them.

mod client;
mod pem;
mod server;

pub(crate) use client::{ClientTls, refusal};
pub(crate) use pem::BadFile;
pub(crate) use server::Credentials;
