//! Ports where nobody listens. One that is free may be another test's a moment later.

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// Holds a port: connections to it are refused, it is given to nobody who asks for a free one, and whoever names it may
/// listen there all the same.
#[derive(Debug)]
pub(crate) struct Held(OwnedFd);

impl Held {
    /// At this address of IPv4; port 0 is a free one.
    pub(crate) fn at(address: &str) -> Self {
        let address: SocketAddrV4 = address.parse().expect("an address");
        let held = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&held, true).expect("an option");
        bind(&held, &address).expect("a free port");
        Self(held)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        getsockname(&self.0).expect("an address").try_into().expect("of IPv4")
    }
}

#[test]
fn a_held_port_refuses_is_nobody_elses_and_may_be_listened_on_by_name() {
    use std::net::{TcpListener, TcpStream};
    let held = Held::at("127.0.0.1:0");
    assert!(TcpStream::connect(held.address()).is_err());
    let listener = TcpListener::bind(held.address()).expect("by its name");
    assert!(TcpStream::connect(held.address()).is_ok());
    drop(listener);
    assert!(TcpStream::connect(held.address()).is_err());
}
