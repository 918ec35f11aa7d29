//! Where a worker is: its URL, checked once, and the forms of it that the data path needs.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;

use super::lookup;

/// A worker's URL that the router cannot use. Shown to the operator as one line, without a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadUrl {
    #[error("worker URL `{url}`: {problem}")]
    Malformed {
        /// Without what may be a password.
        url: String,
        problem: &'static str,
    },
    #[error(
        "worker URL `{engine}@{rank}`: this is rank {rank} of `{engine}`, and ranks are not given one by one; give \
         `{engine}`: with --dp-aware each of its ranks is a worker"
    )]
    OfRank { engine: String, rank: u32 },
}

/// A worker's address.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Address {
    /// The URL without a trailing slash, as shown to the operator.
    pub(crate) url: String,
    /// The value of `Host` towards this worker.
    pub(crate) host: HeaderValue,
    target: Target,
    /// Whom the worker must prove to be; `None`: it is spoken to without TLS.
    pub(super) server_name: Option<ServerName<'static>>,
}

/// Longest name without the dot at its end, in bytes (RFC 1035, section 2.3.4, less what only the wire needs).
const MAX_NAME_BYTES: usize = 253;

/// What is dialled: a literal address costs no look-up. Names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Literal(SocketAddr),
    Name(String, u16),
}

impl Address {
    /// Reads `http://HOST[:PORT][/]`, or the same with https.
    ///
    /// # Errors
    /// [`BadUrl`] for any other form.
    pub(crate) fn parse(url: &str) -> Result<Self, BadUrl> {
        let bad = |problem| BadUrl::Malformed { url: without_userinfo(url).into_owned(), problem };
        if let Some((engine, rank)) = split_rank(url) {
            return Err(BadUrl::OfRank { engine: engine.url, rank });
        }
        if url.contains('#') {
            return Err(bad("a worker's URL has no fragment; write http://HOST:PORT"));
        }
        let uri: Uri = url.parse().map_err(|_| bad("not a URL"))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some("grpc" | "grpcs") => {
                return Err(bad("gRPC is not spoken with workers; give the worker's HTTP port"));
            }
            Some(_) => return Err(bad("the scheme must be http or https")),
            None => return Err(bad("no scheme; write http://HOST:PORT")),
        };
        if uri.path() != "/" || uri.query().is_some() {
            return Err(bad("a worker's URL has neither path nor query; write http://HOST:PORT"));
        }
        let authority = uri.authority().ok_or_else(|| bad("no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad(
                "a worker's URL has no user or password; write http://HOST:PORT, and give its key apart",
            ));
        }
        if authority.host().is_empty() {
            return Err(bad("write http://HOST:PORT"));
        }
        let given = authority.as_str();
        let after_host = given.strip_prefix(authority.host()).unwrap_or(given);
        if !after_host.is_empty() && !after_host.starts_with(':') {
            return Err(bad("something stands between the host and the port; write http://HOST:PORT"));
        }
        if !after_host.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(bad("the port must be a number from 1 to 65535"));
        }
        if !is_host(authority.host()) {
            return Err(bad("neither a host name nor an IP address"));
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| bad("not a host name"))?;
        let default_port = if is_secure { 443 } else { 80 };
        let target = Target::of(authority.host(), authority.port_u16().unwrap_or(default_port));
        let server_name = is_secure.then(|| target.server_name()).transpose();
        let server_name = server_name.map_err(|_| bad("no certificate can be for such a name"))?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), host, target, server_name })
    }

    /// The same, and without a scheme it is http.
    ///
    /// # Errors
    /// [`BadUrl`], with the URL as it was given.
    pub(crate) fn parse_lenient(url: &str) -> Result<Self, BadUrl> {
        if url.contains("://") {
            return Self::parse(url);
        }
        Self::parse(&format!("http://{url}")).map_err(|bad| match bad {
            BadUrl::Malformed { problem, .. } => {
                BadUrl::Malformed { url: without_userinfo(url).into_owned(), problem }
            }
            of_rank @ BadUrl::OfRank { .. } => of_rank,
        })
    }

    /// Whether this can be nobody but who listens there, on this machine, as far as that is known without asking.
    pub(crate) fn is_at(&self, listen: SocketAddr) -> bool {
        let (ip, port) = match &self.target {
            Target::Literal(address) => (address.ip(), address.port()),
            Target::Name(name, port) if name == "localhost" => (Ipv4Addr::LOCALHOST.into(), *port),
            Target::Name(..) => return false,
        };
        let is_here = ip.is_loopback() || ip.is_unspecified();
        port == listen.port() && (ip == listen.ip() || (is_here && listen.ip().is_unspecified()))
    }

    /// Scheme, host and port in one spelling, the same for every URL of one worker.
    pub(crate) fn dialled(&self) -> String {
        let scheme = if self.server_name.is_some() { "https" } else { "http" };
        match &self.target {
            Target::Literal(address) => format!("{scheme}://{address}"),
            // The dot at the end says only where not to look for the name.
            Target::Name(host, port) => format!("{scheme}://{}:{port}", without_dot(host)),
        }
    }

    /// Opens a TCP connection without Nagle's delay.
    pub(super) async fn dial(&self) -> std::io::Result<tokio::net::TcpStream> {
        let stream = match &self.target {
            Target::Literal(address) => tokio::net::TcpStream::connect(address).await?,
            Target::Name(host, port) => {
                let addresses = lookup::addresses(host).await?;
                let addresses: Vec<_> = addresses.iter().map(|ip| SocketAddr::new(*ip, *port)).collect();
                tokio::net::TcpStream::connect(&addresses[..]).await?
            }
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Target {
    fn of(host: &str, port: u16) -> Self {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            // An address of IPv4 may be written as one of IPv6.
            Ok(ip) => Self::Literal(SocketAddr::new(ip.to_canonical(), port)),
            Err(_) => Self::Name(host.to_ascii_lowercase(), port),
        }
    }

    fn server_name(&self) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
        match self {
            Self::Literal(address) => Ok(ServerName::from(address.ip())),
            Self::Name(host, _) => ServerName::try_from(host.clone()),
        }
    }
}

/// The engine and the number, if this is the URL of a rank: that of its engine, with or without a scheme, and `@` and the
/// number behind it. No URL of an engine ends so, as a number is no host.
pub(crate) fn split_rank(text: &str) -> Option<(Address, u32)> {
    let (engine, number) = text.strip_suffix('/').unwrap_or(text).rsplit_once('@')?;
    // As ranks are written: nobody is called `URL@03`.
    let is_padded = number.len() > 1 && number.starts_with('0');
    let is_number = !number.is_empty() && !is_padded && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_number && !engine.contains('@'))?;
    Some((Address::parse_lenient(engine).ok()?, number))
}

/// A text that was meant for a URL, as it may be shown: what stands before an `@` may hold a password, and is left out, be
/// the sign encoded or not.
pub(crate) fn without_userinfo(text: &str) -> Cow<'_, str> {
    let after = |sign: &str| text.rfind(sign).map(|at| at + sign.len());
    let Some(host) = after("@").max(after("%40")) else { return text.into() };
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let scheme = scheme.filter(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphabetic()));
    let scheme = scheme.map_or(String::new(), |scheme| format!("{scheme}://"));
    format!("{scheme}…@{}", &text[host..]).into()
}

/// Whether a host is an address, or a name that can be looked up: labels of letters, digits, `-` and, for the sake of
/// container names, `_`. A name that ends in a number, be it hexadecimal, would be an address, and is a wrong one.
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
    let name = without_dot(host);
    let last = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let is_number = match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    };
    name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label) && !is_number
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_here_is_told_from_others() {
        for (url, listen, is_here) in [
            ("http://localhost:30000", "0.0.0.0:30000", true),
            ("http://127.0.0.1:30000", "0.0.0.0:30000", true),
            ("http://0.0.0.0:30000", "[::]:30000", true),
            ("https://[::1]:30000", "[::]:30000", true),
            ("http://LOCALHOST:30000", "127.0.0.1:30000", true),
            ("http://10.0.0.5:30000", "10.0.0.5:30000", true),
            ("http://localhost:30001", "0.0.0.0:30000", false),
            ("http://10.0.0.5:30000", "0.0.0.0:30000", false),
            ("http://127.0.0.1:30000", "10.0.0.5:30000", false),
            ("http://engine:30000", "0.0.0.0:30000", false),
        ] {
            let address = Address::parse(url).expect(url);
            assert_eq!(address.is_at(listen.parse().expect(listen)), is_here, "{url} {listen}");
        }
    }

    #[test]
    fn a_url_is_read_or_refused_with_its_text_in_the_message() {
        for (url, host) in [
            ("http://127.0.0.1:30001", "127.0.0.1:30001"),
            ("http://127.0.0.1:30001/", "127.0.0.1:30001"),
            ("http://worker", "worker"),
            ("http://[::1]:80", "[::1]:80"),
            ("HTTP://127.0.0.1:9", "127.0.0.1:9"),
            ("http://a_b.c-d.local.:1", "a_b.c-d.local.:1"),
            ("https://worker", "worker"),
            ("https://worker.local.:9", "worker.local.:9"),
            ("HTTPS://127.0.0.1:30001/", "127.0.0.1:30001"),
            ("https://a_b:1", "a_b:1"),
            ("https://[::1]", "[::1]"),
        ] {
            let address = Address::parse(url).expect(url);
            assert_eq!(address.host, host);
            assert_eq!(address.url, url.trim_end_matches('/'));
        }
        for url in [
            "127.0.0.1:1",
            "worker",
            "ftp://w:1",
            "grpc://w:1",
            "grpcs://w:1",
            "https://w:0",
            "https://w:1/v1",
            "http://",
            "http://w:0",
            "http://w:x",
            "http://w:99999",
            "http://w:",
            "http://w:1/v1",
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
            "http://0x7f000001:1",
            "http://127.0.0.0X1:1",
            "http://2130706433:1",
            &format!("http://{}a:1", "a.".repeat(127)),
            "http://[::1]extra:1",
            "http://[::1]extra",
            "",
        ] {
            let problem = Address::parse(url).expect_err(url).to_string();
            let shown = url.split_once('@').map_or(url.to_owned(), |(_, host)| format!("…@{host}"));
            assert!(problem.contains(&format!("`{shown}`")), "{problem}");
        }
    }

    #[test]
    fn what_may_be_a_password_is_repeated_nowhere() {
        for (given, told) in [
            ("http://u:secret@w:1", "`http://…@w:1`: a worker's URL has no user"),
            ("https://secret@w:1", "`https://…@w:1`"),
            ("http://u:secret@w:1@w:1/v1", "`http://…@w:1/v1`"),
            ("ftp://u:secret@", "`ftp://…@`"),
            ("u:secret@w", "`…@w`"),
            ("u:secret://secret@w", "`…@w`"),
            ("http://u:secret/secret@w", "`http://…@w`"),
            ("http%3A%2F%2Fu%3Asecret%40w%3A1", "`…@w%3A1`"),
            ("http%3A%2F%2Fu%3Asecret%40secret@w", "`…@w`"),
        ] {
            for problem in
                [Address::parse(given).expect_err(given), Address::parse_lenient(given).expect_err(given)]
            {
                let problem = problem.to_string();
                assert!(problem.contains(told) && !problem.contains("secret"), "{problem}");
            }
        }
    }

    #[test]
    fn a_rank_is_told_from_an_engine_and_from_a_password() {
        for (text, read) in [
            ("http://w:1@0", Some(("http://w:1", 0))),
            ("w:1@12", Some(("http://w:1", 12))),
            ("http://w:1@12/", Some(("http://w:1", 12))),
            ("https://[::1]:1@4294967295", Some(("https://[::1]:1", u32::MAX))),
            ("http://w:1@4294967296", None),
            ("http://w:1@", None),
            ("http://w:1@+1", None),
            ("http://w:1@-1", None),
            ("http://w:1@03", None),
            ("http://w:1@00", None),
            ("http://w:1", None),
            ("http://user:secret@w", None),
            ("http://user:secret@w:1@2", None),
            (&format!("w{}", "@1".repeat(100_000)), None),
            ("two words@1", None),
            ("@1", None),
        ] {
            let found = split_rank(text);
            assert_eq!(found.as_ref().map(|(engine, rank)| (&*engine.url, *rank)), read, "{text}");
        }
    }

    #[test]
    fn a_rank_is_no_worker_that_can_be_given_and_the_remedy_names_its_engine() {
        for url in ["http://w:1@7", "w:1@7", "w:1@7/"] {
            for problem in [Address::parse(url), Address::parse_lenient(url)] {
                let problem = problem.expect_err(url).to_string();
                assert!(problem.contains("rank 7 of `http://w:1`"), "{problem}");
                assert!(problem.contains("give `http://w:1`: with --dp-aware"), "{problem}");
            }
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
            ("https://a", "HTTPS://A:443/"),
            ("http://a.b", "http://a.B.:80"),
            ("http://127.0.0.1:9", "http://[::ffff:127.0.0.1]:9"),
        ] {
            assert_eq!(parse(one).dialled(), parse(other).dialled());
        }
        for (one, other) in [
            ("http://a", "http://b"),
            ("http://a", "http://a:81"),
            ("http://[::1]", "http://a"),
            ("http://a:9", "https://a:9"),
            ("http://a:443", "https://a"),
            ("http://[::1]:9", "http://127.0.0.1:9"),
        ] {
            assert_ne!(parse(one).dialled(), parse(other).dialled());
        }
    }

    #[test]
    fn a_missing_scheme_is_completed_where_that_is_wanted() {
        for (given, url) in [
            ("worker", "http://worker"),
            ("worker:30001/", "http://worker:30001"),
            ("127.0.0.1:30001", "http://127.0.0.1:30001"),
            ("[::1]:30001", "http://[::1]:30001"),
            ("https://worker", "https://worker"),
        ] {
            assert_eq!(Address::parse_lenient(given).expect(given).url, url);
        }
        for given in ["", "worker:0", "worker/v1", "grpc://worker:1", "//worker", "http:/worker", "a b"] {
            let problem = Address::parse_lenient(given).expect_err(given).to_string();
            assert!(problem.contains(&format!("`{given}`")), "{problem}");
        }
    }

    #[test]
    fn a_literal_address_is_not_looked_up() {
        let target = Address::parse("http://[::1]:81").expect("a URL").target;
        assert!(matches!(target, Target::Literal(at) if at.port() == 81 && at.is_ipv6()));
    }
}
