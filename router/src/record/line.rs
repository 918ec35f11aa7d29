//! The lines of a recording, as they are written and read again. See `docs/router-trace.md`.

mod names;

use std::borrow::Cow;
use std::collections::BTreeMap;

use router_core::ids::ScopeId;
use router_core::index::{self, PrefixIndex};
use router_core::prompt::PromptView;
use router_core::{Assignment, Role};
use serde::{Deserialize, Serialize};

pub use names::{OutcomeName, RoleName};

/// The version of the format that is written.
pub const VERSION: u32 = 1;

/// The first line of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub router_trace: u32,
    /// How many files of the same process came before this one.
    pub part: u64,
    /// How many of the lines behind this one say again what earlier files said.
    pub restated: u64,
    /// The router's version.
    pub version: Cow<'static, str>,
    /// Milliseconds since 1970 when the router's clock stood at 0.
    pub start_unix_ms: u64,
    /// Of every random choice.
    pub seed: u64,
    /// Legs that were booked before this file.
    pub bookings: u64,
    /// The policy of each role.
    pub policies: Roles<Named>,
    /// Between two questions for a worker's load.
    pub load_poll_interval_ns: u64,
    /// Absent where workers have no breakers.
    pub breaker: Option<Breaker>,
    /// Absent where workers with a cold cache get their full share at once.
    pub warm_up: Option<WarmUp>,
    /// How pairs are chosen.
    pub pairing: Pairing,
    /// How prompts are cut into pieces.
    pub pieces: Pieces,
}

/// Something for each role.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the roles' names say it")]
pub struct Roles<T> {
    pub regular: T,
    pub prefill: T,
    pub decode: T,
}

/// A policy and every option that it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its options with their values, the defaults too.
    pub options: BTreeMap<Cow<'static, str>, serde_json::Value>,
}

/// When workers that fail are left alone: the fields of [`router_core::BreakerConfig`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the core's names say it")]
pub struct Breaker {
    pub failure_threshold: u32,
    pub success_threshold: u32,
    pub open_ns: u64,
    pub half_open_permits: u32,
    pub try_least_bad: bool,
}

/// How workers with a cold cache are brought to their share: the fields of [`router_core::WarmUp`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the core's names say it")]
pub struct WarmUp {
    pub duration_ns: u64,
    pub share: f64,
}

/// How pairs are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairing {
    /// Decode streams at a time that come from one prefill worker.
    pub decode_dispatch_limit: Option<u32>,
    /// As in [`router_core::PairPreference`].
    pub prefer: bool,
    /// As in [`router_core::PairPreference`].
    pub least_uncached_tokens: u64,
}

/// How prompts are cut into pieces: `short` characters each in the first `head` of them, then `long`. Text is cut by bytes, a
/// token id counts as four of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// Where short pieces end.
    pub head: u32,
    /// Length of those before.
    pub short: u32,
    /// Length of those behind.
    pub long: u32,
}

/// One line behind the header. Times `t` are nanoseconds of the router's clock; `worker` and scopes are the ids of the decision
/// core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "e", rename_all = "snake_case")]
#[expect(missing_docs, reason = "named after the calls of `router_core::Router` and `PrefixIndex`")]
pub enum Line {
    /// A worker was registered, unhealthy; ids count up from 0.
    Add {
        t: u64,
        worker: u32,
        url: Box<str>,
        model: Option<Box<str>>,
        role: RoleName,
    },
    Remove {
        t: u64,
        worker: u32,
    },
    Drain {
        t: u64,
        worker: u32,
    },
    Health {
        t: u64,
        worker: u32,
        healthy: bool,
    },
    CacheLost {
        t: u64,
        worker: u32,
    },
    Model {
        worker: u32,
        model: Option<Box<str>>,
    },
    Role {
        t: u64,
        worker: u32,
        role: RoleName,
    },
    /// A worker was asked for its load at `asked` and has answered, or not.
    Load {
        t: u64,
        asked: u64,
        worker: u32,
        report: Option<Report>,
    },
    Tick {
        t: u64,
    },
    Policies {
        t: u64,
        policies: Box<Roles<Named>>,
    },
    Pairing {
        pairing: Pairing,
    },
    /// A prompt is looked up in the prefix index, or would be.
    Look(Box<Look>),
    /// Its request was placed, or refused.
    Plan(Box<Plan>),
    First {
        t: u64,
        lease: u64,
    },
    Progress {
        t: u64,
        lease: u64,
        tokens: u64,
    },
    /// The answer told how many tokens of the prompt were cached; `lease` is that of the leg that computed it.
    Cached {
        t: u64,
        lease: u64,
        tokens: u64,
    },
    Finish {
        t: u64,
        lease: u64,
        outcome: OutcomeName,
    },
    /// The index was credited with the prompt of look `n`: what that shared before, and the index's clock behind it.
    Credit {
        n: u64,
        role: RoleName,
        worker: u32,
        shared: Option<Shared>,
        clock: u64,
    },
    /// The credit was taken back.
    Withdraw {
        n: u64,
        role: RoleName,
    },
    /// The index forgot what these workers hold.
    Clear {
        workers: Box<[u32]>,
    },
    /// The same for good.
    Forget {
        workers: Box<[u32]>,
    },
    /// A request is over, whatever became of it.
    Request(Box<Request>),
    /// So many lines are missing here.
    Dropped {
        dropped: u64,
    },
}

/// A prompt, without what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// The number of the look; a request has one for each try.
    pub n: u64,
    /// The scope of each role.
    pub scopes: Roles<Option<u32>>,
    /// What the prompt is made of.
    pub kind: Kind,
    /// Its length in bytes of text or in token ids, all of it.
    pub size: u64,
    /// Its length in characters, where that is not said by `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chars: Option<u64>,
    /// Sixteen bits for each piece, in four hexadecimal digits: of a salted hash of this piece and all before it.
    pub tags: Box<str>,
    /// Where some characters have several bytes: a bit for each byte that is indexed, whether one starts there, in hexadecimal
    /// digits; the first byte is the highest bit of the first digit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Box<str>>,
    /// What it shares with prompts that the index holds, by the role whose scope they are of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<RoleName, Shared>,
}

/// The beginning that a prompt has in common with another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared(
    /// Its length in bytes or token ids.
    pub u64,
    /// The clock of a credit for a prompt that begins with it.
    pub u64,
);

/// What a prompt is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Text.
    Text,
    /// Token ids.
    Ids,
    /// Nothing that the router could read.
    None,
}

/// A request was placed, or could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Of the look before.
    pub n: u64,
    /// When.
    pub t: u64,
    /// Prompt tokens, as an estimate.
    pub tokens: u64,
    /// Most output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// Salted hash of the routing key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Hash>,
    /// Salted hash of what stands in for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implicit: Option<Hash>,
    /// The worker that was asked for: its number or its URL, or `?` where it is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Box<str>>,
    /// Workers that it was tried on.
    #[serde(default, skip_serializing_if = "<[u32]>::is_empty")]
    pub tried: Box<[u32]>,
    /// Where it stands on the rings of the policies that hash keys or prompts: the place behind the hash, not the hash.
    #[serde(default, skip_serializing_if = "Roles::are_absent")]
    pub places: Roles<Option<u64>>,
    /// Whether its client prefers a pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<bool>,
    /// What was booked: nothing, a regular worker, or prefill and decode worker.
    pub legs: Legs,
    /// Why nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
}

/// A salted hash of a key, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hash(pub Box<str>);

/// What was booked.
pub type Legs = Vec<Booked>;

/// One leg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booked {
    /// Of whom.
    pub role: RoleName,
    /// The worker.
    pub worker: u32,
    /// The booking.
    pub lease: u64,
    /// By which policy.
    pub policy: Cow<'static, str>,
    /// Why that worker.
    pub reason: Cow<'static, str>,
    /// Characters that were believed to be cached there.
    pub matched: u64,
    /// The same in tokens, under a policy that holds such a belief.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<u64>,
}

/// Why nothing was booked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The leg that nobody could have.
    pub leg: Cow<'static, str>,
    /// Why, in words.
    pub why: Box<str>,
}

/// A worker's load, by its own account.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of `router_core::LoadReport`")]
pub struct Report {
    pub total_tokens: u64,
    pub running: u64,
    pub waiting: u64,
    pub token_usage: f64,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its last look; 0 if it came to none.
    pub n: u64,
    /// When it was over.
    pub t: u64,
    /// When it came.
    pub arrived: u64,
    /// Where to.
    pub path: Box<str>,
    /// The status that its client got, if any.
    pub status: Option<u16>,
    /// How it ended, by the word of the access log.
    pub end: Cow<'static, str>,
    /// How often it was placed.
    pub tries: u32,
    /// Tokens of its prompt, as the engine counted.
    pub prompt_tokens: Option<u64>,
    /// Those of them that were cached.
    pub cached_tokens: Option<u64>,
    /// Tokens of its answer.
    pub output_tokens: Option<u64>,
    /// From its arrival to its first token.
    pub first_token_ns: Option<u64>,
}

// === impl Booked ===

impl Booked {
    /// What the core has decided for one leg.
    #[must_use]
    pub fn of(role: RoleName, leg: &Assignment) -> Self {
        Self {
            role,
            worker: leg.worker.0,
            lease: leg.lease.0,
            policy: leg.policy.row().name.into(),
            reason: leg.reason.as_str().into(),
            matched: leg.matched_chars,
            predicted: leg.predicted_cached_tokens,
        }
    }
}

// === impl Pieces ===

impl Pieces {
    /// What this router writes.
    pub const WRITTEN: Self = Self { head: 16_384, short: 16, long: 64 };

    /// The lengths of the pieces of `size` characters: the last may be shorter.
    pub fn lengths(self, size: u64) -> impl Iterator<Item = usize> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let piece = if at < u64::from(self.head) { self.short } else { self.long };
            let length = u64::from(piece.max(1)).min(size - at);
            at += length;
            (length > 0).then_some(length as usize)
        })
    }
}

// === impl Look ===

impl Look {
    /// Notes what the prompt shares with those that the index holds.
    pub fn share(&mut self, prompt: PromptView<'_>, index: &PrefixIndex) {
        let scopes = self.scopes;
        let of =
            |role: Role| Some((role.into(), index.shared(ScopeId((*scopes.get(role))?), prompt)?.into()));
        self.shared = Role::ALL.into_iter().filter_map(of).collect();
    }
}

// === impl Shared ===

impl From<index::Shared> for Shared {
    fn from(index::Shared { symbols, credit }: index::Shared) -> Self {
        Self(symbols as u64, credit)
    }
}

// === impl Roles ===

impl<T> Roles<T> {
    /// One for each role.
    pub fn of(mut make: impl FnMut(Role) -> T) -> Self {
        Self { regular: make(Role::Regular), prefill: make(Role::Prefill), decode: make(Role::Decode) }
    }

    /// That of a role.
    pub fn get(&self, role: Role) -> &T {
        match role {
            Role::Regular => &self.regular,
            Role::Prefill => &self.prefill,
            Role::Decode => &self.decode,
        }
    }
}

impl<T> Roles<Option<T>> {
    /// Whether no role has one.
    #[must_use]
    pub fn are_absent(&self) -> bool {
        self.regular.is_none() && self.prefill.is_none() && self.decode.is_none()
    }
}
