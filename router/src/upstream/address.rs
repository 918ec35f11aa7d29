//! Where a worker is: its URL, checked once, and the forms of it that the data path needs.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderValue, Uri};

/// A worker's URL that the router cannot use. Shown to the operator as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("worker URL `{url}`: {problem}")]
pub(crate) struct BadUrl {
    url: String,
    problem: &'static str,
}

/// A worker's address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Address {
    /// The URL without a trailing slash, as shown to the operator.
    pub(crate) url: String,
    /// The value of `Host` towards this worker.
    pub(crate) host: HeaderValue,
    target: Target,
}

/// What is dialled: a literal address costs no look-up. Names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Literal(SocketAddr),
    Name(String, u16),
}

impl Address {
    /// Reads `http://HOST[:PORT][/]`.
    ///
    /// # Errors
    /// [`BadUrl`] for any other form.
    pub(crate) fn parse(url: &str) -> Result<Self, BadUrl> {
        let bad = |problem| BadUrl { url: url.to_owned(), problem };
        if url.contains('#') {
            return Err(bad("a worker's URL has no fragment; write http://HOST:PORT"));
        }
        let uri: Uri = url.parse().map_err(|_| bad("not a URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(bad("https towards workers is not supported yet; use http")),
            Some(_) => return Err(bad("the scheme must be http")),
            None => return Err(bad("no scheme; write http://HOST:PORT")),
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(bad("a worker's URL has neither path nor query; write http://HOST:PORT"));
        }
        let authority = uri.authority().ok_or_else(|| bad("no host"))?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(bad("write http://HOST:PORT"));
        }
        let given = authority.as_str();
        if given.len() > authority.host().len() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(bad("the port must be a number from 1 to 65535"));
        }
        if !is_host(authority.host()) {
            return Err(bad("neither a host name nor an IP address"));
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("not a host name"))?;
        let target = Target::of(authority.host(), authority.port_u16().unwrap_or(80));
        Ok(Self { url: url.trim_end_matches('/').to_owned(), host, target })
    }

    /// The same, with `http://` where there is no scheme.
    ///
    /// # Errors
    /// [`BadUrl`].
    pub(crate) fn parse_lenient(url: &str) -> Result<Self, BadUrl> {
        if url.contains("://") { Self::parse(url) } else { Self::parse(&format!("http://{url}")) }
    }

    /// Whether both are dialled alike, however they are spelled.
    pub(crate) fn is_same_worker(&self, other: &Self) -> bool {
        self.target == other.target
    }

    /// What is dialled, the same for every spelling of it.
    pub(crate) fn dialled(&self) -> String {
        match &self.target {
            Target::Literal(address) => format!("http://{address}"),
            Target::Name(host, port) => format!("http://{host}:{port}"),
        }
    }

    /// Opens a TCP connection without Nagle's delay.
    pub(super) async fn dial(&self) -> std::io::Result<tokio::net::TcpStream> {
        let stream = match &self.target {
            Target::Literal(address) => tokio::net::TcpStream::connect(address).await?,
            Target::Name(host, port) => tokio::net::TcpStream::connect((host.as_str(), *port)).await?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Target {
    fn of(host: &str, port: u16) -> Self {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse() {
            Ok(ip) => Self::Literal(SocketAddr::new(ip, port)),
            Err(_) => Self::Name(host.to_ascii_lowercase(), port),
        }
    }
}

/// Whether a host is an address, or a name that can be looked up: labels of letters, digits, `-` and, for the sake of
/// container names, `_`. A name that ends in a number would be an address, and is a wrong one.
fn is_host(host: &str) -> bool {
    if let Some(bare) = host.strip_prefix('[') {
        return bare.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    if host.parse::<Ipv4Addr>().is_ok() {
        return true;
    }
    let is_label = |label: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    let last = name.rsplit('.').next().unwrap_or(name);
    name.split('.').all(is_label) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_or_refused_with_its_text_in_the_message() {
        for (url, host) in [
            ("http://127.0.0.1:30001", "127.0.0.1:30001"),
            ("http://127.0.0.1:30001/", "127.0.0.1:30001"),
            ("http://worker", "worker"),
            ("http://[::1]:80", "[::1]:80"),
            ("HTTP://127.0.0.1:9", "127.0.0.1:9"),
            ("http://a_b.c-d.local.:1", "a_b.c-d.local.:1"),
        ] {
            let address = Address::parse(url).expect(url);
            assert_eq!(address.host, host);
            assert_eq!(address.url, url.trim_end_matches('/'));
        }
        for url in [
            "127.0.0.1:1",
            "worker",
            "https://w:1",
            "grpc://w:1",
            "http://",
            "http://w:0",
            "http://w:x",
            "http://w:99999",
            "http://w:",
            "http://w:1/v1",
            "http://u@w:1",
            "http://u:p@w:1",
            "http://w:1?q",
            "http://w:1/?q",
            "http://w:1#f",
            "http://w#f",
            "http://a..b:1",
            "http://.a:1",
            "http://-:1",
            "http://a-.b:1",
            "http://a,b:1",
            "http://999.1.1.1:1",
            "http://[::1",
            "http://[w]:1",
            "",
        ] {
            let problem = Address::parse(url).expect_err(url).to_string();
            assert!(problem.contains(&format!("`{url}`")), "{problem}");
        }
    }

    #[test]
    fn two_spellings_of_one_worker_are_one_worker() {
        let parse = |url| Address::parse(url).expect(url);
        for (one, other) in [
            ("http://a", "http://a:80"),
            ("http://a:80", "HTTP://A/"),
            ("http://127.0.0.1:9", "HTTP://127.0.0.1:09"),
            ("http://[::1]:9", "http://[0:0:0::1]:9"),
        ] {
            assert!(parse(one).is_same_worker(&parse(other)), "{one} {other}");
        }
        for (one, other) in
            [("http://a", "http://b"), ("http://a", "http://a:81"), ("http://[::1]", "http://a")]
        {
            assert!(!parse(one).is_same_worker(&parse(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_literal_address_is_not_looked_up() {
        let target = Address::parse("http://[::1]:81").expect("a URL").target;
        assert!(matches!(target, Target::Literal(at) if at.port() == 81 && at.is_ipv6()));
    }
}
