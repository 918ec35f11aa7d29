//! The faults there are. A new one is a variant of [`Kind`] with what it does to a [`Plan`](super::Plan) (or, for a fault of
//! a whole worker, a question that [`super::Faults`] answers), and a row of [`ROWS`].

use std::fmt;
use std::time::Duration;

use hyper::Method;
use protocol::duration;

use super::kind::{Garbage, Kind, Lie, Mangle, Refuse, Skew};
use super::plan::Point;

/// What a fault is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Requests: those with `path`, or else those with a body.
    Requests,
    /// `/health` and `/health_generate`.
    Health,
    /// `/v1/loads` and `/get_load`.
    Loads,
    /// Hand-offs of KV to decode workers.
    Handoffs,
    /// Batches of KV events.
    KvEvents,
    /// The worker as a whole.
    Worker,
}

/// What may follow the value of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionKey {
    Times,
    Probability,
    Path,
    RetryAfter,
    Body,
}

impl OptionKey {
    /// All of them.
    pub(super) const ALL: [Self; 5] =
        [Self::Times, Self::Probability, Self::Path, Self::RetryAfter, Self::Body];

    /// As it is written.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Times => "times",
            Self::Probability => "probability",
            Self::Path => "path",
            Self::RetryAfter => "retry-after",
            Self::Body => "body",
        }
    }
}

/// For faults of requests that can be told apart by their paths.
const OF_REQUESTS: &[OptionKey] = &[OptionKey::Times, OptionKey::Probability, OptionKey::Path];
/// For faults of certain routes.
const OF_ROUTES: &[OptionKey] = &[OptionKey::Times, OptionKey::Probability];

/// One fault of the table. Its key tells it from all others.
pub(super) struct Row {
    pub(super) key: &'static str,
    /// What its value may be, for help and messages.
    pub(super) allowed: &'static str,
    pub(super) help: &'static str,
    pub(super) scope: Scope,
    /// The options it may have.
    pub(super) takes: &'static [OptionKey],
    pub(super) read: fn(&str) -> Option<Kind>,
}

impl fmt::Debug for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.key)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

const SLOW: &str = "slow";
const A_DURATION: &str = "a duration such as 50ms";
const A_POINT: &str = "arrival (or 0: before the body is read), request (after the body, before the head), head, \
    a number of body bytes, or a number of body chunks such as 3chunks";

/// All faults.
pub(super) const ROWS: &[Row] = &[
    Row {
        key: "delay-head",
        allowed: A_DURATION,
        help: "the response head comes so much later",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| span(text).map(Kind::DelayHead),
    },
    Row {
        key: "delay-chunk",
        allowed: A_DURATION,
        help: "so much time before each chunk of a body but the first",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| span(text).map(Kind::DelayChunk),
    },
    Row {
        key: "stall",
        allowed: A_POINT,
        help: "silence from this point on, with the connection open",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| Point::read(text).map(Kind::Stall),
    },
    Row {
        key: "reset",
        allowed: A_POINT,
        help: "the connection is reset (RST) at this point",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| Point::read(text).map(Kind::Reset),
    },
    Row {
        key: "close",
        allowed: A_POINT,
        help: "the connection is closed (FIN) at this point",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| Point::read(text).map(Kind::Close),
    },
    Row {
        key: "status",
        allowed: "a status from 200 to 599",
        help: "the answer is this status, with the options body= and retry-after=",
        scope: Scope::Requests,
        takes: &OptionKey::ALL,
        read: |text| status(text).map(Kind::Status),
    },
    Row {
        key: "refuse",
        allowed: "new or all",
        help: "nobody listens; with all, connections that are open are reset too",
        scope: Scope::Worker,
        takes: &[],
        read: |text| match text {
            "new" => Some(Kind::Refuse(Refuse::New)),
            "all" => Some(Kind::Refuse(Refuse::All)),
            _ => None,
        },
    },
    Row {
        key: "idle-close",
        allowed: A_DURATION,
        help: "connections without a request for so long are closed",
        scope: Scope::Worker,
        takes: &[],
        read: |text| span(text).map(Kind::IdleClose),
    },
    Row {
        key: "close-after-answer",
        allowed: "on",
        help: "connections are closed after an answer that did not say so",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| (text == "on").then_some(Kind::CloseAfterAnswer),
    },
    Row {
        key: "health",
        allowed: "a status, good or bad, or several with counts such as good*3/bad*2",
        help: "health checks are answered by this pattern, over and over",
        scope: Scope::Health,
        takes: OF_ROUTES,
        read: |text| pattern(text).map(Kind::Health),
    },
    Row {
        key: "loads",
        allowed: "frozen, garbage, negative, hang, a status from 200 to 599, or a JSON object of members",
        help: "loads of the moment this was set, or lies",
        scope: Scope::Loads,
        takes: OF_ROUTES,
        read: |text| lie(text).map(Kind::Loads),
    },
    Row {
        key: "kv-fail",
        allowed: "on",
        help: "transfers of KV from this prefill worker fail",
        scope: Scope::Handoffs,
        takes: OF_ROUTES,
        read: |text| (text == "on").then_some(Kind::KvFail),
    },
    Row {
        key: "kv-delay",
        allowed: A_DURATION,
        help: "decode workers hear so much later that KV from this prefill worker has arrived; its own answer is not held back",
        scope: Scope::Handoffs,
        takes: OF_ROUTES,
        read: |text| span(text).map(Kind::KvDelay),
    },
    Row {
        key: "kv-events",
        allowed: "drop or swap",
        help: "published batches of KV events are lost, or told after the next one; a replay has them all in order",
        scope: Scope::KvEvents,
        takes: OF_ROUTES,
        read: |text| match text {
            "drop" => Some(Kind::KvEvents(Mangle::Drop)),
            "swap" => Some(Kind::KvEvents(Mangle::Swap)),
            _ => None,
        },
    },
    Row {
        key: "die",
        allowed: "on",
        help: "the process is gone with all its ports and requests; without the fault it starts anew",
        scope: Scope::Worker,
        takes: &[],
        read: |text| (text == "on").then_some(Kind::Die),
    },
    Row {
        key: SLOW,
        allowed: "a factor from 0.01 to 1000, above 1 for slower",
        help: "steps of the engine take so many times as long, from the next one on",
        scope: Scope::Worker,
        takes: &[],
        read: |text| text.parse().ok().filter(|factor| (0.01..=1e3).contains(factor)).map(Kind::Slow),
    },
    Row {
        key: "slow-read",
        allowed: "bytes per second, at least 1",
        help: "bodies of requests are read no faster than that",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| text.parse().ok().filter(|rate| *rate > 0).map(Kind::SlowRead),
    },
    Row {
        key: "garbage",
        allowed: "json or sse",
        help: "with json, JSON is broken in whole answers and in the events of streams; with sse, the events of \
               streams are broken: a field of another name, bytes that are no UTF-8, no empty line after it, in turn",
        scope: Scope::Requests,
        takes: OF_REQUESTS,
        read: |text| match text {
            "json" => Some(Kind::Garbage(Garbage::Json)),
            "sse" => Some(Kind::Garbage(Garbage::Sse)),
            _ => None,
        },
    },
    Row {
        key: "reject-above",
        allowed: "a number of requests",
        help: "requests that would make the queue longer than that are answered with 503, with the options body= and \
               retry-after=",
        scope: Scope::Requests,
        takes: &OptionKey::ALL,
        read: |text| text.parse().ok().map(Kind::RejectAbove),
    },
    Row {
        key: "loads-skew",
        allowed: "a duration with a sign, such as +5s or -300ms",
        help: "times in loads are so much later or earlier than it is",
        scope: Scope::Loads,
        takes: OF_ROUTES,
        read: |text| skew(text).map(Kind::LoadsSkew),
    },
];

/// The row with this key.
pub(super) fn row(key: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.key == key)
}

/// Whether the fault with this key is about the KV that a prefill worker sends.
pub(crate) fn is_of_handoffs(key: &str) -> bool {
    row(key).is_some_and(|row| row.scope == Scope::Handoffs)
}

/// Whether the fault with this key is about an engine, which workers with canned replies do not have.
pub(crate) fn is_of_engines(key: &str) -> bool {
    key == SLOW
}

/// All keys, for messages.
pub(super) fn keys() -> String {
    ROWS.iter().map(|row| row.key).collect::<Vec<_>>().join(", ")
}

/// One line of help for each fault.
#[must_use]
pub fn help() -> String {
    ROWS.iter().map(|row| format!("  {}=VALUE: {}; VALUE is {}\n", row.key, row.help, row.allowed)).collect()
}

fn span(text: &str) -> Option<Duration> {
    duration::parse_ns(text).ok().map(Duration::from_nanos)
}

fn skew(text: &str) -> Option<Skew> {
    match text.strip_prefix('-') {
        Some(text) => span(text).map(Skew::Behind),
        None => span(text.strip_prefix('+')?).map(Skew::Ahead),
    }
}

fn status(text: &str) -> Option<u16> {
    text.parse().ok().filter(|status| (200..600).contains(status))
}

fn pattern(text: &str) -> Option<Vec<(u16, u32)>> {
    let item = |item: &str| {
        let (word, count) = item.split_once('*').unwrap_or((item, "1"));
        let status = match word.trim() {
            "good" => 200,
            "bad" => 503,
            other => status(other)?,
        };
        Some((status, count.trim().parse().ok().filter(|count| *count > 0)?))
    };
    text.split('/').map(item).collect()
}

fn lie(text: &str) -> Option<Lie> {
    Some(match text {
        "frozen" => Lie::Frozen,
        "garbage" => Lie::Garbage,
        "negative" => Lie::Negative,
        "hang" => Lie::Hang,
        _ if text.starts_with('{') => Lie::Given(serde_json::from_str(text).ok()?),
        _ => Lie::Status(status(text)?),
    })
}

impl Scope {
    /// Whether a request is of this scope.
    pub(super) fn covers(self, method: &Method, path: &str, filter: Option<&str>) -> bool {
        match self {
            Self::Worker | Self::Handoffs | Self::KvEvents => false,
            Self::Health => matches!(path, "/health" | "/health_generate"),
            Self::Loads => matches!(path, "/v1/loads" | "/get_load"),
            Self::Requests => match filter {
                Some(prefix) => path.starts_with(prefix),
                None => matches!(*method, Method::POST | Method::PUT),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::kind::check;

    #[test]
    fn patterns_repeat() {
        let pattern = pattern("good*2/bad/500*2").unwrap();
        let seen: Vec<u16> = (0..7).map(|number| check(&pattern, number)).collect();
        assert_eq!(seen, [200, 200, 503, 500, 500, 200, 200]);
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for (key, value) in [
            ("status", "99"),
            ("status", "abc"),
            ("delay-head", "3"),
            ("reset", "3 apples"),
            ("refuse", "some"),
            ("health", "good*0"),
            ("health", ""),
            ("loads", "{"),
            ("close-after-answer", "off"),
            ("kv-fail", "1"),
            ("kv-delay", "soon"),
            ("kv-events", "lose"),
            ("die", "hard"),
            ("slow", "0"),
            ("slow", "nan"),
            ("slow-read", "0"),
            ("garbage", "xml"),
            ("reject-above", "-1"),
            ("loads-skew", "5s"),
            ("loads-skew", "+soon"),
        ] {
            assert_eq!((row(key).unwrap().read)(value), None, "{key}={value}");
        }
    }
}
