//! Clients that leave.

use std::collections::HashSet;
use std::time::Duration;

use super::legs::{Holding, breaker, errors, rooms, router};
use super::{STREAM, TOKEN, flags, is_idle, sent};
use crate::common::wait_until;

// ai-dynamo/dynamo#13855: decode was never contacted, and what the prefill worker held for it was never released.
#[test]
fn case_80_a_client_that_leaves_ends_both_legs_or_neither_has_begun() {
    let (prefill, decode) = (Holding::silent(), Holding::silent());
    let router = router(&[&prefill.worker], &[&decode.worker], &flags(&[]));
    for point in 0..30 {
        let client = sent(&router, STREAM);
        // From before the dispatch until long after it; what matters is that each of these moments is right.
        std::thread::sleep(Duration::from_micros(100 * point));
        client.reset();
    }
    wait_until("the leases to end", || is_idle(&router));
    wait_until("the connections to be closed", || {
        let all = [&prefill, &decode].map(|leg| (leg.worker.count("POST"), leg.closed()));
        all[0] == all[1] && all[0].0 == all[0].1
    });
    assert!(prefill.closed() > 0, "some were dispatched");
    let at = |leg: &Holding| rooms(&leg.worker).into_iter().collect::<HashSet<_>>();
    assert_eq!(at(&prefill), at(&decode), "each room at both or at neither");
    for leg in [&prefill, &decode] {
        assert_eq!((breaker(&router, &leg.worker), errors(&router, &leg.worker)), (0.0, 0.0));
    }
}

#[test]
fn a_client_that_leaves_amid_its_stream_ends_both_legs() {
    let prefill = Holding::silent();
    let decode = Holding::after(|conn, _| {
        conn.begin_stream();
        conn.chunk(TOKEN);
    });
    let router = router(&[&prefill.worker], &[&decode.worker], &flags(&[]));
    let mut client = sent(&router, STREAM);
    client.reader.head().expect("an answer").expect("a head");
    assert_eq!(client.reader.chunk().expect("a chunk"), TOKEN);
    assert_eq!(router.loads(), [1, 1]);
    client.reset();
    wait_until("both to be closed", || (prefill.closed(), decode.closed()) == (1, 1));
    wait_until("the leases to end", || is_idle(&router));
    assert_eq!((breaker(&router, &prefill.worker), breaker(&router, &decode.worker)), (0.0, 0.0));
}
