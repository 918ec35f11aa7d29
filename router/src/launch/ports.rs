//! Ports for workers.

use std::net::{Ipv4Addr, TcpListener};

/// So many ports that nobody listens on, in order from `base` on; with a base of 0, any.
///
/// # Errors
/// There are not so many.
pub(super) fn choose(count: usize, base: u16) -> Result<Vec<u16>, String> {
    if base == 0 {
        return any(count).map_err(|error| format!("no {count} free ports: {error}"));
    }
    let free = (base..=u16::MAX).filter(|&port| is_free(port));
    let found: Vec<u16> = free.take(count).collect();
    if found.len() < count {
        let there = found.len();
        return Err(format!(
            "from {base} on there are {there} free ports and {count} are needed; give a lower one"
        ));
    }
    Ok(found)
}

/// A worker may listen on all interfaces, so all must be free.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

/// All are held until the last is found, so that none is found twice.
fn any(count: usize) -> std::io::Result<Vec<u16>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_are_taken_are_skipped() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let base = taken.local_addr().expect("an address").port();
        let Ok(found) = choose(2, base) else {
            return assert!(base > u16::MAX - 100, "{base}");
        };
        assert!(found[0] > base && found[1] > found[0], "{base}: {found:?}");
    }

    #[test]
    fn any_ports_are_different_ones() {
        let mut found = choose(50, 0).expect("free ports");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 50);
    }

    #[test]
    fn too_few_ports_are_an_error_that_counts_them() {
        let problem = choose(9, u16::MAX - 3).expect_err("four at most");
        assert!(problem.contains("9 are needed"), "{problem}");
    }
}
