use proptest::prelude::*;

use super::*;
use crate::link::Link;
use crate::preset::preset;

/// A link with a setup of 1000 ns on which a token takes 10 ns.
fn link(page: u32) -> Transfers {
    let config = HandoffConfig {
        link: Link { setup_ns: 1000, bytes_per_second: 1e9 },
        kv_bytes_per_token: 10.0,
        ..HandoffConfig::of(preset("a100-80g-llama3-8b").unwrap())
    };
    Transfers::new(&config, page)
}

/// Who arrives when.
fn arrivals(link: &mut Transfers) -> Vec<(u64, u64)> {
    let mut arrived = Vec::new();
    while let Some(at_ns) = link.next_ns() {
        arrived.extend(link.arrive(at_ns).map(|arrival| (arrival.id.0, at_ns)));
        link.check().unwrap();
    }
    arrived
}

#[test]
fn a_lone_transfer_takes_setup_and_bytes() {
    let mut alone = link(1);
    alone.send(500, RequestId(1), 100, true);
    assert_eq!(arrivals(&mut alone), [(1, 500 + 1000 + 100 * 10)]);
    let mut pages = link(16);
    pages.send(500, RequestId(1), 100, true);
    assert_eq!(arrivals(&mut pages), [(1, 500 + 1000 + 112 * 10)]);
    assert_eq!(pages.len(), 0);
}

#[test]
fn two_share_and_the_one_left_has_all() {
    let mut shared = link(1);
    shared.send(0, RequestId(1), 100, true);
    shared.send(0, RequestId(2), 300, true);
    // Both get half until the first has its 1000 ns of work; the second then has 2000 ns of its 3000 left.
    assert_eq!(arrivals(&mut shared), [(1, 1000 + 2000), (2, 1000 + 2000 + 2000)]);
    let mut late = link(1);
    late.send(0, RequestId(1), 100, true);
    late.send(400, RequestId(2), 10, true);
    // 400 ns alone, then 100 ns of work each at half the speed, then alone again.
    assert_eq!(arrivals(&mut late), [(2, 1400 + 200), (1, 1600 + 500)]);
}

#[test]
fn a_transfer_waits_for_parts_without_a_share_and_is_set_up_once() {
    let mut parts = link(1);
    parts.send(0, RequestId(1), 20, false);
    parts.send(0, RequestId(2), 100, true);
    assert_eq!(parts.next_ns(), Some(1000));
    assert_eq!(parts.arrive(1400), None, "20 tokens at half the speed take 400 ns");
    assert_eq!(parts.next_ns(), Some(1400 + 800), "the other one is alone");
    assert_eq!(parts.arrive(2200).map(|arrival| arrival.id), Some(RequestId(2)));
    assert_eq!(parts.next_ns(), None);
    parts.send(5000, RequestId(1), 50, true);
    assert_eq!(arrivals(&mut parts), [(1, 5000 + 30 * 10)], "only what is new, and no second setup");
}

#[test]
fn a_cancelled_transfer_leaves_its_share() {
    let mut link = link(1);
    link.send(0, RequestId(1), 100, true);
    link.send(0, RequestId(2), 100, true);
    assert_eq!(link.arrive(1000), None);
    link.cancel(1600, RequestId(2));
    assert_eq!(arrivals(&mut link), [(1, 1600 + 700)], "300 ns of work were done in the first 600");
    link.send(9000, RequestId(3), 5, true);
    link.cancel(9500, RequestId(3));
    link.cancel(9500, RequestId(4));
    assert_eq!((arrivals(&mut link).len(), link.len()), (0, 0));
}

/// A part of a transfer of the naive model: when it is given, and the work in it in nanoseconds alone on the link.
#[derive(Debug, Clone)]
struct Part {
    at: f64,
    work: f64,
}

/// Steps from one change to the next with floats: who has arrived when, in nanoseconds.
fn naive(transfers: &[Vec<Part>]) -> Vec<f64> {
    let mut left: Vec<Vec<Part>> = transfers.to_vec();
    let starts: Vec<f64> = transfers.iter().map(|parts| parts[0].at + 1000.0).collect();
    let mut arrived = vec![f64::NAN; transfers.len()];
    let mut now = 0.0_f64;
    while left.iter().any(|parts| !parts.is_empty()) {
        let sends = |n: usize, now: f64| {
            starts[n] <= now + 1e-6 && left[n].first().is_some_and(|p| p.at <= now + 1e-6)
        };
        let sending: Vec<usize> = (0..left.len()).filter(|n| sends(*n, now)).collect();
        let begins = (0..left.len())
            .filter(|n| !sending.contains(n))
            .filter_map(|n| Some(left[n].first()?.at.max(starts[n])));
        let share = sending.len() as f64;
        let ends = sending.iter().map(|n| now + left[*n][0].work * share);
        let next = begins.chain(ends).fold(f64::INFINITY, f64::min);
        for n in sending {
            left[n][0].work -= (next - now) / share;
            if left[n][0].work < 1e-6 {
                left[n].remove(0);
                if left[n].is_empty() {
                    arrived[n] = next;
                }
            }
        }
        now = next;
    }
    arrived
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_shared_link_is_what_stepping_through_it_gives(
        drawn in prop::collection::vec((0u64..20_000, prop::collection::vec((1u64..5_000, 1u64..300), 1..4)), 1..12)
    ) {
        let mut given = Vec::new();
        let mut model = Vec::new();
        for (n, (start_ns, parts)) in drawn.iter().enumerate() {
            let (mut at_ns, mut tokens, mut naive_parts) = (*start_ns, 0, Vec::new());
            for (i, (gap_ns, part)) in parts.iter().enumerate() {
                at_ns += gap_ns;
                tokens += part;
                given.push((at_ns, n as u64, tokens, i + 1 == parts.len()));
                naive_parts.push(Part { at: at_ns as f64, work: (part * 10) as f64 });
            }
            model.push(naive_parts);
        }
        given.sort_by_key(|(at_ns, ..)| *at_ns);
        let mut link = link(1);
        let mut arrived = vec![0; drawn.len()];
        let mut arrive = |link: &mut Transfers, until_ns: u64| {
            while let Some(due_ns) = link.next_ns().filter(|due_ns| *due_ns <= until_ns) {
                if let Some(arrival) = link.arrive(due_ns) {
                    arrived[arrival.id.0 as usize] = due_ns;
                }
            }
        };
        for (at_ns, id, tokens, complete) in given {
            arrive(&mut link, at_ns);
            link.send(at_ns, RequestId(id), tokens, complete);
            link.check().unwrap();
        }
        arrive(&mut link, u64::MAX);
        prop_assert_eq!(link.len(), 0);
        for (got, expected) in arrived.iter().zip(naive(&model)) {
            prop_assert!((*got as f64 - expected).abs() < 2.0, "{} instead of {}", got, expected);
        }
    }
}
