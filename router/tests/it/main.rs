//! Tests of the router's binary, from outside.

mod api_key;
mod bytes;
mod clients;
mod command_line;
mod common;
mod failures;
mod routing;
mod streams;
