//! Data-parallel ranks: several engines behind one front end.
//!
//! Each rank has its own scheduler, radix cache and KV. The front end sends each request to one of them, by a rank that
//! the request names or else by its own balancing, none of which looks at prefixes. Without DP attention ranks know
//! nothing of each other; with it they share the layers between the attentions, so that all of them
//! [step together](Ranks#lockstep).
//!
//! | file | idea |
//! |---|---|
//! | [`balance`] | which rank gets the next request |
//! | [`ranks`] | the engines as one |

mod balance;
mod ranks;

pub use balance::LoadBalance;
pub use ranks::Ranks;

/// How many ranks there are, and what they have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DpConfig {
    /// Ranks (`--dp-size`), at least 1.
    pub size: u32,
    /// Which rank gets a request that names none (`--load-balance-method`).
    pub balance: LoadBalance,
    /// DP attention (`--enable-dp-attention`): all ranks step together, and the bounds on chunks and running requests are
    /// shared among them.
    pub attention: bool,
}

impl Default for DpConfig {
    fn default() -> Self {
        Self { size: 1, balance: LoadBalance::RoundRobin, attention: false }
    }
}
