//! The side towards the workers: where they are, connections to them, and small questions to them.
//!
//! A connection is driven by the task of the request that uses it: there is no task per connection and
//! nothing but hyper's one-frame hand-over between its socket and the client's. Dropping the request's
//! future or body therefore closes the socket at once, which is how a worker learns that its client left.

mod address;
mod call;
mod connection;
mod exchange;
mod lookup;
mod pool;
mod probe;
mod socket;

pub(crate) use address::{Address, BadUrl, split_rank, without_userinfo};
pub(crate) use call::{CallError, Callee, call};
pub(crate) use connection::Connection;
use connection::ExchangeError;
pub(crate) use exchange::{NoAnswer, exchange, exchange_on, reach};
pub(crate) use pool::{IdleConnections, Pool};
pub(crate) use probe::{Probe, probe};
