//! `--kv-events-config`: a JSON object with SGLang's keys.

use std::fmt;

use protocol::kv_events::Shape;
use serde::Deserialize;
use serde_json::Value;
use simworker_core::BlockNaming;

/// Publishing KV events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEventsConfig {
    /// Where rank 0 publishes; the next ranks, and the ranks of the next workers, follow by port.
    pub endpoint: Endpoint,
    /// Subscribers connect here, instead of being connected to.
    pub binds: bool,
    /// Where rank 0 answers who has missed something.
    pub replay_endpoint: Option<Endpoint>,
    /// Batches that can be had again.
    pub buffer_steps: usize,
    /// Batches that wait for being sent, beyond which they are lost.
    pub max_queue_size: usize,
    /// The first frame of every message.
    pub topic: String,
    /// From what the names of blocks are made.
    pub naming: BlockNaming,
    /// How events are written.
    pub shape: Shape,
}

/// `tcp://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, an address, or a wildcard: `*`, `0.0.0.0`, `[::]`.
    pub host: String,
    /// 0 takes a free one.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "tcp://{}:{}", self.host, self.port)
    }
}

impl Endpoint {
    fn parse(key: &str, text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{key} is {text:?}; it must be tcp://HOST:PORT, with brackets around an IPv6 address");
        let (host, port) =
            text.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(wrong)?;
        let is_bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        if host.is_empty() || is_bare_v6 {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| wrong())? })
    }

    /// The host as an address can be made of it.
    pub(crate) fn bind_host(&self) -> &str {
        match self.host.trim_start_matches('[').trim_end_matches(']') {
            "*" => "0.0.0.0",
            host => host,
        }
    }

    /// SGLang looks for these anywhere in the text.
    fn is_wildcard(&self) -> bool {
        ["*", "::", "0.0.0.0"].iter().any(|part| self.host.contains(part))
    }
}

/// The object as it is written. What SGLang has and this has not yet heard of is an error: it might matter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default = "null")]
    publisher: String,
    #[serde(default = "default_endpoint")]
    endpoint: String,
    bind: Option<bool>,
    replay_endpoint: Option<String>,
    #[serde(default = "default_steps")]
    buffer_steps: u64,
    #[serde(default = "default_queue")]
    hwm: u64,
    #[serde(default = "default_queue")]
    max_queue_size: u64,
    #[serde(default)]
    topic: String,
    #[serde(default = "default_format")]
    format: String,
}

fn null() -> String {
    "null".to_owned()
}

fn default_endpoint() -> String {
    "tcp://*:5557".to_owned()
}

fn default_steps() -> u64 {
    10_000
}

fn default_queue() -> u64 {
    100_000
}

fn default_format() -> String {
    BlockNaming::default().label().to_owned()
}

impl KvEventsConfig {
    /// Reads the object; none when it says that nothing is published.
    ///
    /// # Errors
    /// One line that names the key, its value and what is allowed.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !value.is_object() {
            return Err("it must be a JSON object such as {\"publisher\": \"zmq\"}".to_owned());
        }
        let written: Written = serde_json::from_value(value).map_err(|error| error.to_string())?;
        match written.publisher.as_str() {
            "null" => return Ok(None),
            "zmq" => {}
            other => return Err(format!("publisher is {other:?}; allowed: \"zmq\", \"null\"")),
        }
        let endpoint = Endpoint::parse("endpoint", &written.endpoint)?;
        let replay = written.replay_endpoint.as_deref();
        let replay_endpoint = replay.map(|text| Endpoint::parse("replay_endpoint", text)).transpose()?;
        let size = |key, number: u64| match usize::try_from(number) {
            Ok(size) if size > 0 => Ok(size),
            _ => Err(format!("{key} is {number}; it must be at least 1")),
        };
        size("hwm", written.hwm)?;
        Ok(Some(Self {
            binds: written.bind.unwrap_or_else(|| endpoint.is_wildcard()),
            endpoint,
            replay_endpoint,
            buffer_steps: size("buffer_steps", written.buffer_steps)?,
            max_queue_size: size("max_queue_size", written.max_queue_size)?,
            topic: written.topic,
            naming: BlockNaming::from_label(&written.format).ok_or_else(|| {
                let allowed = BlockNaming::ALL.map(BlockNaming::label).join(", ");
                format!("format is {:?}; allowed: {allowed}", written.format)
            })?,
            shape: Shape::default(),
        }))
    }

    /// The object, for `/server_info`.
    pub(crate) fn to_json(&self) -> String {
        let value = serde_json::json!({
            "publisher": "zmq",
            "endpoint": self.endpoint.to_string(),
            "replay_endpoint": self.replay_endpoint.as_ref().map(Endpoint::to_string),
            "buffer_steps": self.buffer_steps,
            "max_queue_size": self.max_queue_size,
            "topic": self.topic,
            "format": self.naming.label(),
        });
        value.to_string()
    }

    /// Whether there are ports for so many ranks together.
    ///
    /// # Errors
    /// In words.
    pub fn check_ports(&self, ranks: u32) -> Result<(), String> {
        let range = |endpoint: &Endpoint| match endpoint.port {
            0 => 0..0,
            port => u32::from(port)..u32::from(port) + ranks,
        };
        if !self.binds && self.endpoint.port == 0 {
            return Err("endpoint is connected to, so it needs a port other than 0".into());
        }
        let events = range(&self.endpoint);
        let replay = self.replay_endpoint.as_ref().map_or(0..0, range);
        if let Some(last) = [&events, &replay].iter().map(|range| range.end).find(|end| *end > 1 << 16) {
            return Err(format!("{ranks} ranks would need ports up to {}; the last one is 65535", last - 1));
        }
        if self.binds && events.start < replay.end && replay.start < events.end {
            return Err(format!(
                "endpoint and replay_endpoint are less than {ranks} ports apart, which the ranks of all workers \
                 need; set replay_endpoint to port {} or above",
                events.end
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_engine() {
        let config = KvEventsConfig::parse(r#"{"publisher": "zmq"}"#).unwrap().unwrap();
        assert_eq!(config.endpoint.to_string(), "tcp://*:5557");
        assert_eq!((config.binds, config.replay_endpoint), (true, None));
        assert_eq!((config.buffer_steps, config.max_queue_size), (10_000, 100_000));
        assert_eq!(
            (config.topic.as_str(), config.naming, config.shape),
            ("", BlockNaming::Default, Shape::Map)
        );
        assert_eq!(KvEventsConfig::parse("{}"), Ok(None));
        assert_eq!(KvEventsConfig::parse(r#"{"publisher": "null", "endpoint": "?"}"#), Ok(None));
    }

    #[test]
    fn who_connects_to_whom_follows_the_host_unless_it_is_said() {
        let cases = [
            ("tcp://*:1", None, true),
            ("tcp://0.0.0.0:1", None, true),
            ("tcp://[::]:1", None, true),
            ("tcp://[::1]:1", None, true),
            ("tcp://127.0.0.1:1", None, false),
            ("tcp://127.0.0.1:1", Some(true), true),
            ("tcp://*:1", Some(false), false),
        ];
        for (endpoint, bind, expected) in cases {
            let text =
                serde_json::json!({"publisher": "zmq", "endpoint": endpoint, "bind": bind}).to_string();
            assert_eq!(KvEventsConfig::parse(&text).unwrap().unwrap().binds, expected, "{text}");
        }
    }

    #[test]
    fn bad_values_are_named() {
        let cases = [
            ("[]", "must be a JSON object"),
            (r#"{"publisher": "kafka"}"#, "\"kafka\"; allowed: \"zmq\""),
            (r#"{"publisher": "zmq", "end_point": ""}"#, "unknown field `end_point`"),
            (r#"{"publisher": "zmq", "endpoint": "inproc://x"}"#, "endpoint is \"inproc://x\""),
            (r#"{"publisher": "zmq", "endpoint": "tcp://::1:5"}"#, "brackets"),
            (r#"{"publisher": "zmq", "replay_endpoint": "tcp://*:99999"}"#, "replay_endpoint is"),
            (r#"{"publisher": "zmq", "buffer_steps": 0}"#, "buffer_steps is 0"),
            (r#"{"publisher": "zmq", "hwm": -1}"#, "invalid value"),
            (r#"{"publisher": "zmq", "format": "vllm"}"#, "allowed: default, dynamo"),
        ];
        for (text, expected) in cases {
            let message = KvEventsConfig::parse(text).expect_err(text);
            assert!(message.contains(expected) && !message.contains('\n'), "{text}: {message}");
        }
    }

    #[test]
    fn who_connects_needs_ports_that_there_are() {
        let check = |port: u16, ranks| {
            let text = format!(r#"{{"publisher": "zmq", "endpoint": "tcp://127.0.0.1:{port}"}}"#);
            KvEventsConfig::parse(&text).unwrap().unwrap().check_ports(ranks)
        };
        assert!(check(0, 1).unwrap_err().contains("other than 0"));
        assert!(check(65535, 2).unwrap_err().contains("the last one is 65535"));
        assert_eq!(check(65534, 2), Ok(()));
    }

    #[test]
    fn ports_must_not_collide() {
        let check = |replay: u16, ranks| {
            let text = format!(r#"{{"publisher": "zmq", "replay_endpoint": "tcp://*:{replay}"}}"#);
            KvEventsConfig::parse(&text).unwrap().unwrap().check_ports(ranks)
        };
        assert_eq!(check(5558, 1), Ok(()));
        assert!(check(5558, 2).unwrap_err().contains("port 5559"));
        assert_eq!(check(5559, 2), Ok(()));
        assert!(check(5556, 2).is_err());
        assert_eq!(check(0, 64), Ok(()));
        assert!(check(65_530, 10).unwrap_err().contains("65535"));
    }
}
