//! Faults of a live run. Shares are told to the workers when they start; what happens at a time is told to them, or to the
//! router, when it is due. Clients leave by themselves, in `drive`.

use std::ops::Range;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use simworker_core::EngineRole;

use super::request::{HttpClient, with_causes};
use crate::scenario::{Faults, Fleet, Outage};

/// Something that is done to the cluster at a time of the run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Deed {
    /// When, in nanoseconds of the run.
    pub(super) at_ns: u64,
    method: Method,
    url: String,
    body: Value,
    /// What it is, in words.
    what: String,
}

/// A process of workers that takes faults while it runs.
#[derive(Debug, Clone)]
pub(super) struct Control {
    /// The places of its workers.
    pub(super) places: Range<u32>,
    /// Where it listens.
    pub(super) url: String,
}

/// The flags that tell workers at these places, which share a process, what they do wrong.
pub(super) fn flags(faults: &Faults, fleet: &Fleet, places: Range<u32>, seed: u64) -> Vec<String> {
    let mut flags = Vec::new();
    for (index, place) in places.enumerate() {
        let told = wrongs(faults, fleet.roles.of(place)).into_iter().filter(|(_, share)| *share > 0.0);
        for (fault, share) in told {
            flags.extend(["--fault".to_owned(), format!("{index}:{fault},probability={share}")]);
        }
        let slowness = faults.slowness(place);
        if slowness != 1.0 {
            flags.extend(["--fault".to_owned(), format!("{index}:slow={slowness}")]);
        }
    }
    if faults.any() {
        flags.extend(["--control-port".to_owned(), "0".to_owned()]);
        flags.extend(["--fault-seed".to_owned(), seed.to_string()]);
    }
    flags
}

/// What a worker of a role does wrong in which share of its legs, or of its hand-offs. The first that happens counts.
fn wrongs(faults: &Faults, role: EngineRole) -> Vec<(&'static str, f64)> {
    let is_prefill = role == EngineRole::Prefill;
    // Half of the busy ones; of those that are left, so many that the halves are equal.
    let (first, second) = (faults.busy / 2.0, faults.busy / (2.0 - faults.busy));
    vec![
        (
            "status=500,path=/generate",
            if is_prefill { faults.prefill_failure } else { faults.decode_failure },
        ),
        ("status=429,retry-after=1,path=/generate", first),
        ("status=503,retry-after=1,path=/generate", second),
        ("stall=request,path=/generate", faults.stalled),
        ("kv-fail=on", if is_prefill { faults.transfer_failure } else { 0.0 }),
    ]
}

/// What is to be done at its time. `urls`: of the workers, in the order of their places.
pub(super) fn deeds(
    faults: &Faults,
    fleet: &Fleet,
    controls: &[Control],
    urls: &[String],
    router: &str,
) -> Vec<Deed> {
    let prefill = role_places(fleet, EngineRole::Prefill);
    let decode = role_places(fleet, EngineRole::Decode);
    let answering = if decode.is_empty() { role_places(fleet, EngineRole::Whole) } else { decode };
    let mut deeds = joins(fleet, urls, router);
    for (outage, places) in [(faults.prefill_outage, &prefill), (faults.decode_outage, &answering)] {
        if let (Some(outage), Some(place)) = (outage, places.clone().next()) {
            deeds.extend(
                controls.iter().find_map(|control| control.outage(outage, place)).unwrap_or_default(),
            );
        }
    }
    for (at_ns, places) in [(faults.prefill_drained_ns, &prefill), (faults.decode_drained_ns, &answering)] {
        let last = places.clone().next_back().and_then(|place| urls.get(place as usize));
        if let (Some(at_ns), Some(url)) = (at_ns, last) {
            deeds.push(drain(at_ns, url, router));
        }
    }
    deeds
}

/// The workers that come later are told to the router.
fn joins(fleet: &Fleet, urls: &[String], router: &str) -> Vec<Deed> {
    let Some(joining) = fleet.joining else { return Vec::new() };
    let deed = |url: &String| Deed {
        at_ns: joining.at_ns,
        method: Method::POST,
        url: format!("{router}/workers"),
        body: json!({ "url": url }),
        what: format!("adding {url}"),
    };
    urls.iter().skip(fleet.known_at_first() as usize).map(deed).collect()
}

fn role_places(fleet: &Fleet, role: EngineRole) -> Range<u32> {
    let pool = fleet.roles.pools(fleet.workers).into_iter().find(|pool| pool.role == role);
    pool.map_or(0..0, |pool| pool.places)
}

fn drain(at_ns: u64, worker: &str, router: &str) -> Deed {
    let name = worker.replace(':', "%3A").replace('/', "%2F");
    Deed {
        at_ns,
        method: Method::POST,
        url: format!("{router}/workers/{name}/drain"),
        body: json!({}),
        what: format!("draining {worker}"),
    }
}

impl Control {
    /// A worker of this process dies, and comes back; `None` where it is of another one.
    fn outage(&self, outage: Outage, place: u32) -> Option<Vec<Deed>> {
        let index = self.places.contains(&place).then(|| place - self.places.start)?;
        let deed = |at_ns, value: Value, what: &str| Deed {
            at_ns,
            method: Method::PATCH,
            url: format!("{}/workers/{index}/faults", self.url),
            body: json!({ "die": value }),
            what: format!("{what} worker {place}"),
        };
        let mut deeds = vec![deed(outage.at_ns, json!("on"), "ending")];
        if let Some(after_ns) = outage.back_after_ns {
            deeds.push(deed(outage.at_ns + after_ns, Value::Null, "starting"));
        }
        Some(deeds)
    }
}

impl Deed {
    /// Does it.
    ///
    /// # Errors
    /// Why it could not be done, in words.
    pub(super) async fn done(&self, client: &HttpClient) -> Result<(), String> {
        let failed = |why: String| format!("{} failed: {} {}: {why}", self.what, self.method, self.url);
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(self.body.to_string())))
            .map_err(|error| failed(error.to_string()))?;
        let response = client.request(request).await.map_err(|error| failed(with_causes(&error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        let said = body.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        Err(failed(format!("status {status}: {said}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Outage;

    fn fleet(keys: &str) -> Fleet {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.toml");
        let text = format!(
            "schema = 1\nname = \"f\"\n[workload]\nkind = \"shared_prefix\"\ngroups = 1\nprompts_per_group = 1\n\
             system_tokens = 1\nquestion_tokens = 1\noutput_tokens = 1\n[arrival]\nkind = \"burst\"\nover = \"1s\"\n\
             [router]\npolicies = [\"random\"]\n[fleet]\n{keys}"
        );
        std::fs::write(&path, text).unwrap();
        crate::scenario::load(&path, &[], None, None, None).unwrap().fleet
    }

    #[test]
    fn workers_are_told_by_role_what_they_do_wrong() {
        let faults = Faults {
            prefill_failure: 0.25,
            transfer_failure: 0.5,
            busy: 0.5,
            slow: vec![(1, 2.5)],
            ..Faults::default()
        };
        let fleet = fleet("workers = 2\nprefill = 1");
        let flags = flags(&faults, &fleet, 0..2, 7);
        let told: Vec<&str> = flags.iter().map(String::as_str).filter(|flag| flag.contains(':')).collect();
        assert_eq!(
            told,
            [
                "0:status=500,path=/generate,probability=0.25",
                "0:status=429,retry-after=1,path=/generate,probability=0.25",
                "0:status=503,retry-after=1,path=/generate,probability=0.3333333333333333",
                "0:kv-fail=on,probability=0.5",
                "1:status=429,retry-after=1,path=/generate,probability=0.25",
                "1:status=503,retry-after=1,path=/generate,probability=0.3333333333333333",
                "1:slow=2.5",
            ]
        );
        assert!(told.iter().all(|flag| simworker::fault::Assigned::parse(flag).is_ok()), "{told:?}");
        assert!(flags.ends_with(&["--fault-seed".to_owned(), "7".to_owned()]), "{flags:?}");
        assert!(super::flags(&Faults::default(), &fleet, 0..2, 7).is_empty());
    }

    #[test]
    fn workers_die_return_and_are_drained_where_they_are() {
        let faults = Faults {
            prefill_outage: Some(Outage { at_ns: 5, back_after_ns: None }),
            decode_outage: Some(Outage { at_ns: 7, back_after_ns: Some(3) }),
            decode_drained_ns: Some(9),
            ..Faults::default()
        };
        let controls = [
            Control { places: 0..4, url: "http://a".to_owned() },
            Control { places: 4..6, url: "http://b".to_owned() },
        ];
        let urls: Vec<String> = (0..6).map(|place| format!("http://w:{place}")).collect();
        let told = |keys: &str| -> Vec<(u64, String, String)> {
            let deeds = deeds(&faults, &fleet(keys), &controls, &urls, "http://r");
            deeds.into_iter().map(|deed| (deed.at_ns, deed.url, deed.body.to_string())).collect()
        };
        let deed = |at_ns, url: &str, body: &str| (at_ns, url.to_owned(), body.to_owned());
        let late = told("workers = 6\njoining = 1\njoin_at = \"4ns\"");
        assert_eq!(late[0], deed(4, "http://r/workers", "{\"url\":\"http://w:5\"}"));
        let mixed = told("workers = 6\nprefill = 2\nregular = 2");
        assert_eq!(
            mixed,
            [
                deed(5, "http://a/workers/0/faults", "{\"die\":\"on\"}"),
                deed(7, "http://a/workers/2/faults", "{\"die\":\"on\"}"),
                deed(10, "http://a/workers/2/faults", "{\"die\":null}"),
                deed(9, "http://r/workers/http%3A%2F%2Fw%3A3/drain", "{}"),
            ]
        );
    }
}
