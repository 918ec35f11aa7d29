//! The tables `[[workers]]` of the configuration file.

use std::collections::{BTreeMap, HashMap};

use router_core::Role;
use toml::de::DeValue;

use super::file::{Entry, Text};
use super::given::Origin;
use super::readers::{number, whole};
use super::stop::Stop;
use super::workers::plain;
use crate::api_key::ApiKey;
use crate::config::{BootstrapPort, StaticWorker};
use crate::fleet::Identity;
use crate::upstream::Address;

/// What may be said of a worker. A new one is a new row.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "what people are told stands in a document that a test writes")
)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// For people, as the document shows it; empty: there is none.
    pub(super) default: &'static str,
    /// What it is and what it may be.
    pub(super) help: &'static str,
    /// Takes the value.
    read: fn(&mut StaticWorker, &Entry<'_>, &Text<'_>) -> Result<(), Stop>,
}

pub(super) const KEYS: &[Key] = &[
    Key {
        name: URL,
        default: "",
        help: "`http://HOST:PORT`; has to be there",
        // Without it there is nothing to read the others into.
        read: |_, _, _| Ok(()),
    },
    Key {
        name: "api_key",
        default: "`worker_api_key`",
        help: "the key that this worker is sent",
        read: |worker, entry, _| {
            let key =
                ApiKey::new(words(entry)?).ok_or_else(|| entry.wrong(format!("takes {}", ApiKey::FORM)))?;
            worker.api_key = Some(key);
            Ok(())
        },
    },
    Key {
        name: "model_id",
        default: "the worker is asked",
        help: "the model that it serves",
        read: |worker, entry, _| {
            // As in the API an empty one leaves it to the worker.
            worker.model = Some(words(entry)?.to_owned()).filter(|model| !model.is_empty());
            Ok(())
        },
    },
    Key {
        name: "priority",
        default: "50",
        help: "a whole number from 0 to 4294967295, shown in `/workers`",
        read: |worker, entry, _| {
            worker.priority = figure(entry, whole(0..=u32::MAX))?;
            Ok(())
        },
    },
    Key {
        name: "cost",
        default: "1.0",
        help: "a number of 0 or more, shown in `/workers`",
        read: |worker, entry, _| {
            worker.cost = figure(entry, number(0.0..=f64::INFINITY))?;
            Ok(())
        },
    },
    Key {
        name: "role",
        default: "the worker is asked",
        help: "`\"regular\"`, `\"prefill\"` or `\"decode\"`; it must be what the worker says itself",
        read: role,
    },
    Key {
        name: "worker_type",
        default: "",
        help: "the same as `role`, under the gateway's name",
        read: role,
    },
    Key {
        name: BOOTSTRAP_PORT,
        default: "the worker is asked",
        help: "of a prefill worker: the port of its bootstrap server, from 1 to 65535",
        read: |worker, entry, _| {
            worker.bootstrap_port = BootstrapPort::Given(figure(entry, whole(1..=u16::MAX))?);
            Ok(())
        },
    },
    Key {
        name: "labels",
        default: "none",
        help: "a table of texts, shown in `/workers`",
        read: |worker, entry, text| {
            worker.labels = labels(entry, text)?;
            Ok(())
        },
    },
    Key {
        name: "disable_health_check",
        default: "`false`",
        help: "treat it as healthy",
        read: |worker, entry, _| match entry.value {
            DeValue::Boolean(off) => {
                worker.health_check = !off;
                Ok(())
            }
            _ => Err(entry.wrong("takes true or false, without quotes")),
        },
    },
];

const URL: &str = "url";
const BOOTSTRAP_PORT: &str = "bootstrap_port";

/// A worker and where it was written.
pub(super) struct FileWorker {
    pub(super) worker: StaticWorker,
    pub(super) place: Origin,
}

/// Reads all tables.
///
/// # Errors
/// A key that a worker does not have, a value that it does not take, or a worker that is there already.
pub(super) fn read(text: &Text<'_>, entry: &Entry<'_>) -> Result<Vec<FileWorker>, Stop> {
    let form = || entry.wrong("are tables; write [[workers]] above the keys of each");
    let DeValue::Array(items) = entry.value else { return Err(form()) };
    let (mut workers, mut known) = (Vec::<FileWorker>::new(), HashMap::new());
    for item in items.iter() {
        let DeValue::Table(table) = item.get_ref() else { return Err(form()) };
        let found = worker(&text.entries(table), text, text.place_of(item))?;
        let former = known.insert(Identity::of(&found.worker.address), workers.len());
        if let Some(former) = former {
            let (url, place, former) = (&found.worker.address.url, &found.place, &workers[former].place);
            return Err(Stop::Wrong(format!("{place}: `{url}` is there already, at {former}")));
        }
        workers.push(found);
    }
    Ok(workers)
}

fn worker(entries: &[Entry<'_>], text: &Text<'_>, place: Origin) -> Result<FileWorker, Stop> {
    let Some(url) = entries.iter().find(|entry| entry.key == URL) else {
        return Err(Stop::Wrong(format!("{place}: a worker needs a `url`, such as \"http://HOST:PORT\"")));
    };
    let address =
        Address::parse(words(url)?).map_err(|error| Stop::Wrong(error.to_string()).at(&url.place))?;
    let mut worker = plain(address);
    for entry in entries {
        let Some(key) = KEYS.iter().find(|key| key.name == entry.key) else {
            let known: Vec<_> = KEYS.iter().map(|key| key.name).collect();
            return Err(entry.unknown(" of [[workers]]", &known));
        };
        (key.read)(&mut worker, entry, text)?;
    }
    let port = entries.iter().find(|entry| entry.key == BOOTSTRAP_PORT);
    if let Some(port) = port.filter(|_| matches!(worker.role, Some(Role::Regular | Role::Decode))) {
        return Err(port.wrong("is of prefill workers only; leave it out"));
    }
    Ok(FileWorker { worker, place })
}

fn role(worker: &mut StaticWorker, entry: &Entry<'_>, _: &Text<'_>) -> Result<(), Stop> {
    let word = words(entry)?;
    let role = Role::ALL.into_iter().find(|role| role.label() == word);
    let role = role.ok_or_else(|| entry.wrong("takes \"regular\", \"prefill\" or \"decode\""))?;
    if worker.role.is_some_and(|former| former != role) {
        return Err(entry.wrong("is not what the other key says: `role` and `worker_type` are the same"));
    }
    worker.role = Some(role);
    Ok(())
}

fn labels(entry: &Entry<'_>, text: &Text<'_>) -> Result<BTreeMap<String, String>, Stop> {
    let DeValue::Table(table) = entry.value else {
        return Err(entry.wrong("takes a table such as {zone = \"a\"}"));
    };
    let labels = text.entries(table);
    labels.iter().map(|label| Ok((label.key.to_owned(), words(label)?.to_owned()))).collect()
}

fn words<'a>(entry: &'a Entry<'_>) -> Result<&'a str, Stop> {
    match entry.value {
        DeValue::String(text) => Ok(text),
        _ => Err(entry.wrong("takes one text, in quotes")),
    }
}

fn figure<T>(entry: &Entry<'_>, read: impl Fn(&str) -> Result<T, String>) -> Result<T, Stop> {
    match entry.value {
        DeValue::Integer(digits) if digits.radix() == 10 => read(digits.as_str()),
        DeValue::Float(digits) => read(digits.as_str()),
        _ => return Err(entry.wrong("takes one number, without quotes")),
    }
    .map_err(|problem| entry.wrong(format!("is {problem}")))
}
