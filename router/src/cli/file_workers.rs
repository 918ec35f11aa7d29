//! The tables `[[workers]]` of the configuration file.

use std::collections::{BTreeMap, HashMap};

use toml::de::DeValue;

use super::file::{Entry, Text};
use super::given::Origin;
use super::readers::{number, whole};
use super::stop::Stop;
use super::workers::plain;
use crate::api_key::ApiKey;
use crate::config::StaticWorker;
use crate::fleet::Identity;
use crate::upstream::Address;

const KEYS: &[&str] =
    &["url", "api_key", "model_id", "priority", "cost", "worker_type", "labels", "disable_health_check"];

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
    let Some(url) = entries.iter().find(|entry| entry.key == "url") else {
        return Err(Stop::Wrong(format!("{place}: a worker needs a `url`, such as \"http://HOST:PORT\"")));
    };
    let address =
        Address::parse(words(url)?).map_err(|error| Stop::Wrong(error.to_string()).at(&url.place))?;
    let mut worker = plain(address);
    for entry in entries {
        match entry.key {
            "url" => {}
            "api_key" => {
                let key = ApiKey::new(words(entry)?);
                worker.api_key = Some(key.ok_or_else(|| {
                    entry.wrong("takes one or more visible ASCII characters, without blanks")
                })?);
            }
            "model_id" => worker.model = Some(words(entry)?.to_owned()),
            "priority" => worker.priority = figure(entry, whole(0..=u32::MAX))?,
            "cost" => worker.cost = figure(entry, number(0.0..=f64::INFINITY))?,
            "worker_type" => match words(entry)? {
                "regular" => {}
                _ => {
                    return Err(
                        entry.wrong("can only be \"regular\": prefill and decode workers are not told apart")
                    );
                }
            },
            "labels" => worker.labels = labels(entry, text)?,
            "disable_health_check" => match entry.value {
                DeValue::Boolean(off) => worker.health_check = !off,
                _ => return Err(entry.wrong("takes true or false, without quotes")),
            },
            _ => return Err(entry.unknown(" of [[workers]]", KEYS)),
        }
    }
    Ok(FileWorker { worker, place })
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
