//! Where a request is to run: the data-parallel rank that it names, and the other side of a disaggregated one.

use axum::http::HeaderMap;
use simworker_core::EngineRole;

use super::failure::Failure;
use super::fields::{Fields, OneOrMany};
use crate::config::WorkerConfig;
use crate::handoff::{Address, Handoff, NOBODY, Source};

/// The header that names a data-parallel rank; it overrides the body.
const RANK_HEADER: &str = "x-data-parallel-rank";
/// Rooms are below; what is above is a worker's own.
const MOST_ROOM: u64 = (1 << 63) - 1;

/// How far the rooms of several answers to a prompt are apart: a multiple of all sizes of data parallelism up to 40, so
/// that they stand for the same rank.
const NEXT_ANSWER: u64 = least_common_multiple(40);

/// How many requests a body stands for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    pub(super) prompts: usize,
    /// Answers to each of them.
    pub(super) n: usize,
}

/// Where the requests of a body are to run.
#[derive(Debug, Clone, Default)]
pub(super) struct Placement {
    pub(super) rank: Option<u32>,
    /// One for each request, where the worker does only a part of the work and the body names a room.
    handoffs: Option<Vec<Handoff>>,
}

impl Placement {
    /// Reads it for a body of so many requests, which are in the order of prompts, then of answers to one prompt.
    pub(super) fn read(
        config: &WorkerConfig,
        headers: &HeaderMap,
        fields: &Fields<'_>,
        count: Count,
    ) -> Result<Self, Failure> {
        let rank = rank(config.dp_size, headers, fields)?;
        let handoffs = match config.engine.role {
            EngineRole::Whole => None,
            EngineRole::Prefill | EngineRole::Decode => handoffs(config, fields, count)?,
        };
        Ok(Self { rank, handoffs })
    }

    /// The other side of a request, by its place among those of the body.
    pub(super) fn handoff(&self, index: usize) -> Option<Handoff> {
        self.handoffs.as_ref()?.get(index).cloned()
    }
}

/// The rank, by the header, or by the new or the old name in the body.
fn rank(ranks: u32, headers: &HeaderMap, fields: &Fields<'_>) -> Result<Option<u32>, Failure> {
    if let Some(value) = headers.get(RANK_HEADER) {
        let rank = value.to_str().ok().and_then(|text| text.trim().parse().ok());
        let given = || String::from_utf8_lossy(value.as_bytes()).into_owned();
        let wrong = || format!("Invalid X-Data-Parallel-Rank header: must be an integer, got '{}'", given());
        let rank = rank.ok_or_else(|| Failure::status(400, wrong()))?;
        return check(rank, ranks).map(Some);
    }
    let mut named = None;
    for key in ["data_parallel_rank", "routed_dp_rank"] {
        if let Some(rank) = fields.get::<i64>(key)? {
            named = Some(check(rank, ranks)?);
        }
    }
    Ok(named)
}

fn check(rank: i64, ranks: u32) -> Result<u32, Failure> {
    let known = u32::try_from(rank).ok().filter(|rank| *rank < ranks);
    let wrong = || format!("routed_dp_rank={rank} out of range [0, {ranks})");
    known.ok_or_else(|| Failure::bad_request(wrong()))
}

/// One for each request; none when the body names no room, which the engine refuses.
fn handoffs(
    config: &WorkerConfig,
    fields: &Fields<'_>,
    count: Count,
) -> Result<Option<Vec<Handoff>>, Failure> {
    let Some(rooms) = fields.get::<OneOrMany<u64>>("bootstrap_room")? else { return Ok(None) };
    let rooms = match rooms {
        OneOrMany::One(first) => (0..count.requests() as u64).map(|at| first.saturating_add(at)).collect(),
        OneOrMany::Many(rooms) => rooms,
    };
    if let Some(room) = rooms.iter().find(|room| **room > MOST_ROOM) {
        return Err(Failure::bad_request(format!("bootstrap_room is {room}; it must be below 2^63.")));
    }
    let rooms = each("bootstrap_room", rooms, count, answer_room)?;
    let hosts = every::<String>("bootstrap_host", fields, count)?;
    let ports = every::<u16>("bootstrap_port", fields, count)?;
    let prefill_rank = fields.get::<u32>("disagg_prefill_dp_rank")?;
    let joined = rooms.into_iter().zip(hosts).zip(ports);
    let handoff = |((room, host), port): ((u64, Option<String>), Option<u16>)| {
        if host.as_deref() == Some(NOBODY) {
            return Ok(Handoff::with_nobody(config.engine.role));
        }
        Ok(match config.engine.role {
            EngineRole::Whole => None,
            // It waits to be asked.
            EngineRole::Prefill => Some(Handoff::Send(Some(room))),
            EngineRole::Decode => {
                let server = server(host, port.unwrap_or(config.bootstrap_port))?;
                Some(Handoff::Receive(Some(Source { room, server, prefill_rank })))
            }
        })
    };
    joined.map(handoff).collect()
}

fn server(host: Option<String>, port: u16) -> Result<Address, Failure> {
    let missing = "bootstrap_host is missing: the host of the prefill worker is needed.";
    let host = host.ok_or_else(|| Failure::bad_request(missing))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(Address { host: bare.unwrap_or(&host).to_owned(), port })
}

/// The room of a prompt's answer, counted from 0. It is between two rooms of routers, which draw from the whole range.
fn answer_room(room: &u64, answer: u64) -> u64 {
    let far = answer * NEXT_ANSWER;
    if *room > MOST_ROOM / 2 { *room - far } else { *room + far }
}

/// A field with one value for all requests, or one for each of them, or for each prompt.
fn every<T: Clone + for<'a> serde::Deserialize<'a>>(
    key: &str,
    fields: &Fields<'_>,
    count: Count,
) -> Result<Vec<Option<T>>, Failure> {
    match fields.get::<OneOrMany<Option<T>>>(key)? {
        None => Ok(vec![None; count.requests()]),
        Some(OneOrMany::One(value)) => Ok(vec![value; count.requests()]),
        Some(OneOrMany::Many(values)) => each(key, values, count, |value, _| value.clone()),
    }
}

/// The entries of a list for each request. One with an entry for each prompt is repeated, where `again` makes those of a
/// prompt's answers, which are counted from 0.
fn each<T>(key: &str, values: Vec<T>, count: Count, again: impl Fn(&T, u64) -> T) -> Result<Vec<T>, Failure> {
    if values.len() == count.requests() {
        return Ok(values);
    }
    if values.len() == count.prompts {
        let answers = |value: &T| (0..count.n as u64).map(|at| again(value, at)).collect::<Vec<_>>();
        return Ok(values.iter().flat_map(answers).collect());
    }
    Err(Failure::bad_request(format!("{key} has {} entries; {} are needed.", values.len(), count.requests())))
}

const fn least_common_multiple(up_to: u64) -> u64 {
    let (mut multiple, mut at) = (1, 2);
    while at <= up_to {
        let (mut divisor, mut rest) = (at, multiple);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        multiple *= at / divisor;
        at += 1;
    }
    multiple
}

impl Count {
    fn requests(self) -> usize {
        self.prompts * self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_to_a_prompt_have_rooms_of_their_own_for_the_same_rank() {
        for room in [0, 7, MOST_ROOM / 2, MOST_ROOM / 2 + 1, MOST_ROOM] {
            let rooms: Vec<u64> = (0..128).map(|answer| answer_room(&room, answer)).collect();
            assert_eq!(rooms[0], room);
            assert!(rooms.iter().all(|room| *room <= MOST_ROOM));
            assert!((1..128).all(|at| !rooms[..at].contains(&rooms[at])));
            for ranks in (1..=40).chain([48, 60]) {
                assert!(rooms.iter().all(|of| of % ranks == room % ranks), "{room} of {ranks}");
            }
        }
    }
}
