//! What `/metrics` of a router shows to which everything has happened that dashboard and alerts look for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Client, Router, Worker, legs, wait_for};

/// The labels of a series by name, or all values of each label of a family's series.
type Values = BTreeMap<String, BTreeSet<String>>;

/// Names, labels and values of one scrape.
#[derive(Debug)]
pub(super) struct Exposed {
    families: BTreeSet<String>,
    samples: BTreeMap<String, Values>,
}

impl Exposed {
    /// The scrape that all tests share.
    pub(super) fn shared() -> &'static Self {
        static SHARED: OnceLock<Exposed> = OnceLock::new();
        SHARED.get_or_init(|| Self::of(&(eventful() + &sticky() + &paired())))
    }

    fn of(text: &str) -> Self {
        let mut exposed = Self { families: BTreeSet::new(), samples: BTreeMap::new() };
        for line in text.lines() {
            if let Some(described) = line.strip_prefix("# TYPE ") {
                let name = described.split(' ').next().expect("a name");
                exposed.families.insert(name.to_owned());
            } else if !line.starts_with('#') {
                let end = line.find(['{', ' ']).expect("a value");
                let values = exposed.samples.entry(line[..end].to_owned()).or_default();
                for (label, value) in labels(&line[end..]) {
                    values.entry(label).or_default().insert(value);
                }
            }
        }
        exposed
    }

    /// Whether this is a family's name or that of a sample.
    pub(super) fn has(&self, name: &str) -> bool {
        self.families.contains(name) || self.samples.contains_key(name)
    }

    /// Labels of the samples of this name; `None` if there are none.
    pub(super) fn labels(&self, sample: &str) -> Option<&Values> {
        self.samples.get(sample)
    }
}

/// Names and values in `{a="x",b="y"} 1`; no value of these tests has a quotation mark in it.
fn labels(rest: &str) -> Vec<(String, String)> {
    let Some((inner, _)) = rest.strip_prefix('{').and_then(|rest| rest.rsplit_once('}')) else {
        return Vec::new();
    };
    let parts: Vec<&str> = inner.split('"').collect();
    let pairs = parts.chunks_exact(2);
    pairs.map(|pair| (pair[0].trim_matches([',', '=']).to_owned(), pair[1].to_owned())).collect()
}

/// The text of a router that remembers who had which key.
fn sticky() -> String {
    let worker = Worker::fixed("{}");
    let router = Router::start(&[worker.url()], &["--policy", "manual"]);
    assert_eq!(router.client().post("/generate", "X-SMG-Routing-Key: k\r\n", b"{}").status(), 200);
    Client::get(&router.metrics, "/metrics").text()
}

/// The text of a router with pairs whose decode streams are limited.
fn paired() -> String {
    let (prefill, decode) = (legs::prefill(), legs::decode());
    let router = legs::router(&[&prefill], &[&decode], &["--decode-dispatch-limit", "1"]);
    assert_eq!(router.post("/generate", b"{\"text\":\"a\"}").status(), 200);
    Client::get(&router.metrics, "/metrics").text()
}

/// The text of a router that had a retry, a good stream, a failure, and a refusal because of an open breaker.
fn eventful() -> String {
    let posts = AtomicUsize::new(0);
    let worker = Worker::start(move |conn, request| {
        if !request.first.starts_with("POST ") {
            conn.answer("404 Not Found", "", b"");
            return true;
        }
        match posts.fetch_add(1, Ordering::SeqCst) {
            0 => conn.answer("503 Service Unavailable", "", b""),
            1 => {
                conn.begin_stream();
                conn.chunk(b"data: {\"text\":\"a\"}\n\n");
                conn.chunk(b"data: {\"text\":\"ab\",\"meta_info\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"cached_tokens\":1}}\n\n");
                conn.end_stream();
            }
            _ => conn.answer("500 Internal Server Error", "", b""),
        }
        true
    });
    let args = ["--policy", "cache_aware", "--cb-failure-threshold", "1", "--retry-statuses", "503"];
    let router = Router::start(&[worker.url()], &args);
    for expected in [200, 500, 503] {
        let answer = router.post("/generate", br#"{"text":"a b c","model":"m","stream":true}"#);
        assert_eq!(answer.status(), expected);
    }
    wait_for("the requests to be over", || {
        let text = Client::get(&router.metrics, "/metrics").text();
        text.contains(r#"smg_router_sheds_total{reason="circuit_breakers_open"} 1"#).then_some(text)
    })
}
