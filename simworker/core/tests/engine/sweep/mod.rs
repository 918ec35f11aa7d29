//! Random configurations under random loads: what must hold whatever happens. Whoever follows the events about KV, on
//! either tier, knows what is cached.
//!
//! `ENGINE_SEED=17 cargo test -p simworker-core --test engine sweep` replays one seed, `ENGINE_SEEDS=5000` tries more.
//!
//! | file | idea |
//! |---|---|
//! | [`draw`] | what a seed means: configuration, ranks, and what is done to them when |
//! | [`drive`] | doing it |
//! | [`judge`] | what must hold afterwards |
//! | [`names`] | the same with prompts as runs and as tokens |

mod draw;
mod drive;
mod judge;
mod names;

use rand::SeedableRng;
use rand_pcg::Pcg64;
use simworker_core::{EngineTotals, Pace};

const SEEDS: u64 = 300;

fn seeds() -> Vec<u64> {
    match std::env::var("ENGINE_SEED") {
        Ok(seed) => vec![seed.parse().expect("ENGINE_SEED is a number")],
        Err(_) => {
            let more = std::env::var("ENGINE_SEEDS").ok();
            (0..more.map_or(SEEDS, |more| more.parse().expect("ENGINE_SEEDS is a number"))).collect()
        }
    }
}

/// What all seeds together have seen, so that a sweep that tests nothing is noticed.
#[derive(Debug, Default)]
struct Seen {
    totals: EngineTotals,
    stopped: u64,
    displaced: u64,
    timed_out: u64,
    preempted: u64,
    flushed: u64,
    refused: u64,
    /// Seeds whose engines were slower for a while.
    slowed: u64,
}

#[test]
fn whatever_happens_nothing_is_lost() {
    let mut seen = Seen::default();
    for seed in seeds() {
        println!("seed {seed}");
        let mut rng = Pcg64::seed_from_u64(seed);
        let (config, dp) = draw::config(&mut rng);
        let script = draw::script(&mut rng, config.schedule.label() == "fcfs");
        let stretch = drive::play(&config, dp, &script, Pace::Stretch);
        judge::ends(&script, &stretch);
        judge::books(&stretch);
        judge::order_of_arrival(&config, dp, &script, &stretch);
        let step = drive::play(&config, dp, &script, Pace::Step);
        assert_eq!(stretch, step, "the paces differ");
        let again = drive::play(&config, dp, &script, Pace::Stretch);
        assert_eq!(stretch, again, "the same inputs give the same outputs");
        judge::count(&config, &script, &stretch, &mut seen);
    }
    if std::env::var_os("ENGINE_SEED").is_none() {
        judge::is_hard_enough(&seen);
    }
}
