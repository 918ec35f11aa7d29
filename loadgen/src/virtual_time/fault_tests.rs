//! Prefill and decode apart, with faults of every kind: whatever happens, every request ends exactly once and nothing is
//! left over. Sizes, policies and the weights of the faults are drawn by the seed, too; a seed is a complete report of a
//! failure: `FAULT_SEED=17 cargo test -p loadgen --lib fault_tests`.

mod scenario;

use std::collections::BTreeMap;
use std::sync::Mutex;

use router_core::{BreakerState, Role, WorkerView};
use scenario::{REQUESTS, scenario};
use simworker_core::{EngineRole, RequestId};

use super::testing;
use super::world::World;
use crate::scenario::Cell;
use crate::workload::PlannedRequest;

const SEEDS: u64 = 64;
/// How often it is looked for strays, in virtual time.
const LOOK_EVERY_NS: u64 = 500_000_000;
/// How long a worker may take to let go of what the router has closed.
const MOST_STRAY_NS: u64 = 2_000_000_000;
/// The same where prefill steps may follow one another while decoding waits, and with it the end of what was aborted there:
/// on workers that do both, and where ranks step together. The engines' own timeouts are ten times as long.
const MOST_STRAY_SHARED_NS: u64 = 30_000_000_000;
/// How many requests follow when nothing fails any more, in what distance, and after what time: workers that died are back
/// by then, and breakers let requests through.
const CLEAN: usize = 300;
const CLEAN_EVERY_NS: u64 = 100_000_000;
const RECOVERY_NS: u64 = 120_000_000_000;

fn most_stray_ns(world: &World, role: EngineRole) -> u64 {
    let ranks = world.fleet.ranks.of(role);
    match role {
        EngineRole::Prefill | EngineRole::Decode if !(ranks.attention && ranks.size > 1) => MOST_STRAY_NS,
        _ => MOST_STRAY_SHARED_NS,
    }
}

/// Every request has ended, once, and so has every leg at its worker. A second end of a request stops the run; that of a leg,
/// which the router would not listen to, is counted where the worker tells of it.
fn all_have_ended(world: &World) -> Result<(), String> {
    if world.ended_twice > 0 {
        return Err(format!("{} legs ended at workers that did not have them", world.ended_twice));
    }
    let (requests, open) = (world.requests.len() as u64, world.jobs.iter().flatten().count());
    if world.finished != requests || open > 0 {
        return Err(format!("{} of {requests} ends, {open} requests under way", world.finished));
    }
    for record in &world.records {
        let whole = record.output_tokens == u64::from(world.requests[record.seq as usize].output_tokens);
        if record.succeeded() != (whole && record.error.is_empty() && record.first_ns.is_some()) {
            return Err(format!("half an end: {record:?}"));
        }
    }
    Ok(())
}

/// The router holds no lease and no permit.
fn router_is_at_rest(world: &World, now_ns: u64) -> Result<(), String> {
    world.router.check()?;
    let worker = world.router.workers(now_ns).find(|view| view.load.requests > 0 || view.derived > 0);
    match (world.router.in_flight(), worker) {
        (0, None) if world.parked.is_empty() => Ok(()),
        (leases, worker) => Err(format!("{leases} leases, {worker:?}, {} waiting", world.parked.len())),
    }
}

/// The workers hold no request, no room and no KV; and none of the rooms that were asked for too early, once their time is
/// up.
fn workers_are_at_rest(world: &mut World, now_ns: u64) -> Result<(), String> {
    let patience_ns = world.fleet.engine.config().handoff.bootstrap_timeout_ns;
    for (place, host) in world.hosts.iter_mut().enumerate() {
        let remembered = host.ranks.remembered_rooms(now_ns.saturating_add(patience_ns));
        if remembered > 0 {
            return Err(format!("worker {place} remembers {remembered} rooms that nobody comes with"));
        }
    }
    if let Some((room, left)) = world.handovers.first_key_value() {
        return Err(format!("{} rooms are left, one is {room}: {left:?}", world.handovers.len()));
    }
    for (place, host) in world.hosts.iter().enumerate() {
        host.ranks.check().map_err(|error| format!("worker {place}: {error}"))?;
        if !host.ranks.is_idle() || !host.inside.is_empty() {
            return Err(format!("worker {place} ({:?}) has {:?}", host.role, host.inside));
        }
        for rank in 0..host.ranks.size() {
            let loads = host.ranks.loads(rank);
            if (loads.running, loads.waiting, loads.used_tokens) != (0, 0, 0) {
                return Err(format!("worker {place}, rank {rank}: {loads:?}"));
            }
        }
    }
    Ok(())
}

/// The legs that workers hold though the router has closed them, and since when.
#[derive(Default)]
struct Strays {
    since_ns: BTreeMap<(usize, RequestId), u64>,
    looked_ns: u64,
}

impl Strays {
    /// Looks now and then whether a worker goes on with what nobody waits for any more. Timeouts of the engines would end
    /// that too, much later.
    fn look(&mut self, world: &World, now_ns: u64) -> Result<(), String> {
        if now_ns < self.looked_ns + LOOK_EVERY_NS {
            return Ok(());
        }
        self.looked_ns = now_ns;
        let before = std::mem::take(&mut self.since_ns);
        for (place, host) in world.hosts.iter().enumerate() {
            for id in host.inside.iter().filter(|id| !world.is_open(**id, place)) {
                let since_ns = before.get(&(place, *id)).copied().unwrap_or(now_ns);
                if now_ns - since_ns > most_stray_ns(world, host.role) {
                    return Err(format!("worker {place} ({:?}) still has {id:?}", host.role));
                }
                self.since_ns.insert((place, *id), since_ns);
            }
        }
        Ok(())
    }
}

/// Nothing fails any more: a while later every request is served, also by the workers that had been left alone, no breaker is
/// open, and who is drained has got nothing. Returns when the last of it happened.
fn recovers(world: &mut World, cell: &Cell, ended_ns: u64) -> Result<u64, String> {
    world.dice.rest();
    let (before, faulty) = (assigned(world), world.requests.len());
    for place in 0..CLEAN {
        let seq = (faulty + place) as u64;
        let at_ns = ended_ns + RECOVERY_NS + place as u64 * CLEAN_EVERY_NS;
        let request = PlannedRequest { seq, at_ns, ..world.requests[place].clone() };
        world.records.push(request.record(at_ns, at_ns));
        world.jobs.push(None);
        world.requests.push(request);
    }
    world.schedule_arrival(ended_ns);
    let mut now_ns = ended_ns;
    while let Some(at_ns) = world.step() {
        now_ns = at_ns;
    }
    if let Some(bad) = world.records[faulty..].iter().find(|record| !record.succeeded()) {
        return Err(format!("after the faults: {bad:?}"));
    }
    let open = |view: &WorkerView<'_>| view.breaker.state == BreakerState::Open && !view.worker.draining;
    if let Some(open) = world.router.workers(now_ns).find(open) {
        return Err(format!("long after the faults: {open:?}"));
    }
    // Then it depends on what is cached whether anything is split at all.
    if world.scopes.regular.is_some() && cell.scenario.routing.least_uncached_tokens > 0 {
        return Ok(now_ns);
    }
    // Where all workers of a role are drained, those that do both have everything.
    let is_manned =
        |role| world.router.workers(now_ns).any(|view| view.worker.role == role && !view.worker.draining);
    if ![Role::Prefill, Role::Decode].into_iter().all(is_manned) {
        return Ok(now_ns);
    }
    for (view, (before, after)) in world.router.workers(now_ns).zip(before.into_iter().zip(assigned(world))) {
        let policy = match view.worker.role {
            Role::Prefill => cell.policy.name(),
            Role::Decode => cell.scenario.routing.decode_policy.name(),
            // Pairs are preferred.
            Role::Regular => continue,
        };
        if view.worker.draining {
            if after > before {
                return Err(format!("a worker that is drained had {} legs more: {view:?}", after - before));
            }
            continue;
        }
        let is_closed = view.breaker.state == BreakerState::Closed;
        if policy == "round_robin" && (after == before || !is_closed) {
            let had = after - before;
            return Err(format!("after the faults, a worker had {had} legs of {CLEAN} requests: {view:?}"));
        }
    }
    Ok(now_ns)
}

/// How many legs each worker was given.
fn assigned(world: &World) -> Vec<u64> {
    world.router.workers(u64::MAX).map(|view| view.tally.assigned).collect()
}

/// Plays a seed to its end, and on until nothing is under way any more. Returns what went wrong and how often.
fn play(seed: u64) -> Result<BTreeMap<String, u64>, String> {
    let cell = testing::cell(&scenario(seed));
    let mut world = testing::world(&cell, seed);
    let mut strays = Strays::default();
    let mut ended_ns = 0;
    while let Some(now_ns) = world.step() {
        strays.look(&world, now_ns)?;
        ended_ns = now_ns;
    }
    let at_rest = |world: &mut World, now_ns: u64| {
        all_have_ended(world)?;
        router_is_at_rest(world, u64::MAX)?;
        workers_are_at_rest(world, now_ns)
    };
    at_rest(&mut world, ended_ns)?;
    let mut seen: BTreeMap<String, u64> =
        world.dice.tally().iter().map(|(what, count)| ((*what).to_owned(), *count)).collect();
    let mut count = |what: &str, count| *seen.entry(what.to_owned()).or_default() += count;
    count("bookings", world.router.bookings());
    for record in &world.records {
        // Some errors name a room.
        let error = record.error.split(char::is_numeric).next().unwrap_or_default();
        count(if record.succeeded() { "succeeded" } else { error }, 1);
    }
    let ended_ns = recovers(&mut world, &cell, ended_ns)?;
    at_rest(&mut world, ended_ns)?;
    Ok(seen)
}

#[test]
fn nothing_is_left_over_and_every_request_ends_once() {
    let chosen = std::env::var("FAULT_SEED").ok().map(|seed| seed.parse().unwrap());
    let seeds = Mutex::new(chosen.map_or(0..SEEDS, |seed| seed..seed + 1));
    let told = Mutex::new(BTreeMap::<String, u64>::new());
    let one_after_the_other = || {
        loop {
            // Let go of before the seed is played.
            let next = seeds.lock().unwrap().next();
            let Some(seed) = next else { return };
            let of_seed =
                play(seed).unwrap_or_else(|error| panic!("FAULT_SEED={seed}: {error}\n{}", scenario(seed)));
            for (error, count) in of_seed {
                *told.lock().unwrap().entry(error).or_default() += count;
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one_after_the_other)).collect();
        for thread in running {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let told = told.into_inner().unwrap();
    let count = |what: &str| told.get(what).copied().unwrap_or(0);
    if let Some(seed) = chosen {
        eprintln!("{told:?}\n{}", scenario(seed));
        return;
    }
    assert!(count("succeeded") > SEEDS * REQUESTS / 2, "most requests succeed in the end: {told:?}");
    assert!(count("bookings") > SEEDS * REQUESTS, "legs of pairs, and of further attempts: {told:?}");
    for fault in [
        "prefill 500",
        "decode 500",
        "prefill 429",
        "prefill 503",
        "decode 429",
        "decode 503",
        "prefill stalls",
        "decode stalls",
        "no first byte",
        "unheard",
        "fails first",
        "fails midway",
        "fails last",
        "client leaves",
        "room missing",
        "room in use",
        "asked before it came",
        "prefill failed before",
        "prefill failed in flight",
        "decode failed",
        "decode lost its peer",
    ] {
        assert!(count(fault) >= 1000, "{fault}: {told:?}");
    }
    for outage in ["prefill lost", "decode lost", "prefill back", "decode back"] {
        assert!(count(outage) >= 16, "{outage}: {told:?}");
    }
    for drained in ["prefill drained", "decode drained"] {
        assert!(count(drained) >= 8, "{drained}: {told:?}");
    }
    for end in ["the client left", "the answering worker was lost", "Internal Server Error"] {
        assert!(count(end) >= 10, "{end}: {told:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_records() {
    for covered in [
        ["dp_size = 3", "dp_attention = true"],
        ["prefill_lost", "decode_drained"],
        ["decode_dispatch_limit = 8", "dp_aware = true"],
    ] {
        let covers = |seed: &u64| covered.iter().all(|line| scenario(*seed).contains(line));
        let seed = (0..).find(covers).unwrap();
        let records = || {
            let cell = testing::cell(&scenario(seed));
            super::run(&cell, seed, &mut |_| {}).unwrap().records
        };
        assert_eq!(records(), records(), "seed {seed}, {covered:?}");
    }
}
