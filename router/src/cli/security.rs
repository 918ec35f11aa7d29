//! Keys, certificates, origins, and where operators are served.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use http::HeaderValue;

use super::readers::{whole, words};
use super::stop::Stop;
use super::traffic::address;
use crate::api_key::{AdminKeys, ApiKey};
use crate::config::{Cors, ServerTls, UpstreamTls};

// The keys are typed as text: a derived `Debug` would show them.
#[derive(Args)]
#[command(next_help_heading = "Security")]
pub(super) struct SecurityArgs {
    /// Key that requests to a model must carry as `Authorization: Bearer KEY` [default: none is needed]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Key that is sent to the workers in place of the client's Authorization [default: that of --api-key; without one
    /// the client's goes on]
    #[arg(long, value_name = "KEY")]
    worker_api_key: Option<String>,
    /// Keys of operators, with the role admin (may change things) or user (may look); several are separated by blanks
    /// [default: none; --api-key is the operators' too]
    #[arg(long, value_name = "ID:NAME:ROLE:KEY", num_args = 0.., action = ArgAction::Append)]
    control_plane_api_keys: Vec<String>,
    /// Log every admin call that changes something
    #[arg(long)]
    control_plane_audit_enabled: bool,
    /// Address of the listener for operators, where --admin-port asks for one
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    admin_host: String,
    /// Port of a listener for operators; 0 takes a free one [default: none; admin routes are served where clients are]
    #[arg(long, value_name = "PORT", value_parser = whole(0..=u16::MAX))]
    admin_port: Option<u16>,
    /// Origins whose pages may read answers, such as https://chat.example; `*`: any [default: none]
    #[arg(long, value_name = "ORIGIN", num_args = 0.., action = ArgAction::Append)]
    cors_allowed_origins: Vec<String>,
    /// PEM file with the certificate that clients are shown, and its chain [default: none; clients speak plain HTTP]
    #[arg(long, value_name = "FILE")]
    tls_cert_path: Option<PathBuf>,
    /// PEM file with the key of --tls-cert-path [default: none]
    #[arg(long, value_name = "FILE")]
    tls_key_path: Option<PathBuf>,
    /// PEM file with the certificate that workers are shown [default: none]
    #[arg(long, value_name = "FILE")]
    client_cert_path: Option<PathBuf>,
    /// PEM file with the key of --client-cert-path [default: none]
    #[arg(long, value_name = "FILE")]
    client_key_path: Option<PathBuf>,
    /// PEM files with the authorities that workers' certificates may come from [default: those of the system]
    #[arg(long, value_name = "FILE", num_args = 0.., action = ArgAction::Append)]
    ca_cert_paths: Vec<PathBuf>,
}

/// What the flags mean.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) api_key: Option<ApiKey>,
    pub(super) worker_key: Option<ApiKey>,
    pub(super) added_worker_key: Option<ApiKey>,
    pub(super) admin_keys: AdminKeys,
    pub(super) audit: bool,
    pub(super) admin_listen: Option<SocketAddr>,
    pub(super) cors: Cors,
    pub(super) server_tls: Option<ServerTls>,
    pub(super) upstream_tls: UpstreamTls,
}

impl SecurityArgs {
    /// # Errors
    /// What is no key, no origin or no address, and one file of a pair.
    pub(super) fn resolve(self) -> Result<Security, Stop> {
        let api_key = self.api_key.map(|text| key("--api-key", &text)).transpose()?;
        let worker_key = self.worker_api_key.map(|text| key("--worker-api-key", &text)).transpose()?;
        let admin = |port| address("--admin-host", &self.admin_host, port);
        let server = pair("--tls-cert-path", self.tls_cert_path, "--tls-key-path", self.tls_key_path)?;
        let client =
            pair("--client-cert-path", self.client_cert_path, "--client-key-path", self.client_key_path)?;
        Ok(Security {
            added_worker_key: worker_key.clone(),
            worker_key: worker_key.or_else(|| api_key.clone()),
            api_key,
            admin_keys: admin_keys(&self.control_plane_api_keys)?,
            audit: self.control_plane_audit_enabled,
            admin_listen: self.admin_port.map(admin).transpose()?,
            cors: origins(&self.cors_allowed_origins)?,
            server_tls: server.map(|(certificate, key)| ServerTls { certificate, key }),
            upstream_tls: UpstreamTls { identity: client, authorities: self.ca_cert_paths },
        })
    }
}

/// A key that cannot be sent is refused without being repeated.
pub(super) fn key(flag: &'static str, text: &str) -> Result<ApiKey, Stop> {
    let refusal = || Stop::wrong(flag, format!("takes {}", ApiKey::FORM));
    ApiKey::new(text).ok_or_else(refusal)
}

/// Two files of which neither is of use without the other.
fn pair(
    cert_flag: &'static str,
    cert: Option<PathBuf>,
    key_flag: &'static str,
    key: Option<PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>, Stop> {
    match (cert, key) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (Some(_), None) => Err(Stop::wrong(cert_flag, format!("needs {key_flag} beside it"))),
        (None, Some(_)) => Err(Stop::wrong(key_flag, format!("needs {cert_flag} beside it"))),
    }
}

/// The keys of operators.
fn admin_keys(given: &[String]) -> Result<AdminKeys, Stop> {
    let given: Vec<String> = words(given).map(str::to_owned).collect();
    AdminKeys::parse(&given).map_err(|problem| Stop::wrong("--control-plane-api-keys", problem))
}

fn origins(given: &[String]) -> Result<Cors, Stop> {
    let wrong = |problem: String| Stop::wrong("--cors-allowed-origins", problem);
    let given: Vec<&str> = words(given).collect();
    match given[..] {
        [] => return Ok(Cors::Closed),
        ["*"] => return Ok(Cors::Any),
        _ if given.contains(&"*") => return Err(wrong("`*` is any origin; leave the others out".to_owned())),
        _ => {}
    }
    let origin = |text: &str| {
        let value = HeaderValue::from_str(text).ok().filter(|_| is_origin(text));
        value.ok_or_else(|| {
            wrong(format!("`{text}` is not an origin; write SCHEME://HOST[:PORT] without a path, or *"))
        })
    };
    given.into_iter().map(origin).collect::<Result<_, _>>().map(Cors::Listed)
}

/// Whether it can stand in an `Origin` header (RFC 6454, section 7).
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let is_uri = text.parse::<http::Uri>().is_ok_and(|uri| uri.authority().is_some());
    is_uri && !scheme.is_empty() && !authority.contains(['/', '?', '#', '@'])
}
