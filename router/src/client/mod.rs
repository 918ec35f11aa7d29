//! The side towards a client: its socket, and the watch that ends its connection.
//!
//! hyper learns that a client has left by reading, and that an answer's time is up by asking for more of it. It does
//! neither while bytes that it has read already wait for their turn, or while the client takes nothing. So both are
//! watched beside it: [`ClientIo`] leaves the socket visible to others, and [`Turn`] knows what the connection is at.
//! The same watch ends a connection on which no request comes, and [`Front`] sees where one begins.

mod farewell;
mod front;
mod io;
mod turn;
mod wait;

pub(crate) use farewell::dismiss;
pub(crate) use front::Front;
pub(crate) use io::{ClientIo, left};
pub(crate) use turn::{Ending, Engaged, Expiry, Turn};
pub(crate) use wait::LAST_CALL;
