//! Who had the CPU during a run: what the kernel counts of threads, of processes and of the machine.
//!
//! A latency that was measured while another program had the CPU is that program's. The kernel counts, for every thread,
//! how long it ran, how long it was ready and had no CPU, and how often it got one (`/proc/PID/task/TID/schedstat`), and for the machine what
//! was spent by whom (`/proc/stat`). Where it does not, nothing is said.

use std::fs;
use std::time::Instant;

use crate::run::{Machine, Waited};

/// What threads have had of the CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Scheduled {
    /// How long they ran.
    pub(super) ran_ns: u64,
    /// How long they were ready to run and did not.
    pub(super) waited_ns: u64,
    /// How often they got a CPU.
    pub(super) turns: u64,
}

impl Scheduled {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            ran_ns: self.ran_ns + other.ran_ns,
            waited_ns: self.waited_ns + other.waited_ns,
            turns: self.turns + other.turns,
        }
    }

    /// Threads that have ended take along what they had.
    fn since(self, before: Self) -> Self {
        Self {
            ran_ns: self.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            turns: self.turns.saturating_sub(before.turns),
        }
    }

    /// How they waited, of the time in which they wanted to run.
    fn waited(self) -> Option<Waited> {
        self.waited_of(self.ran_ns + self.waited_ns)
    }

    /// How they waited, of a time.
    fn waited_of(self, span_ns: u64) -> Option<Waited> {
        let share = (self.waited_ns as f64 / span_ns as f64).min(1.0);
        let mean_ns = self.waited_ns as f64 / self.turns.max(1) as f64;
        (span_ns > 0).then_some(Waited { share, mean_ns })
    }

    /// The three numbers of a `schedstat`.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
        Some(Self { ran_ns: numbers.next()??, waited_ns: numbers.next()??, turns: numbers.next()?? })
    }
}

/// What the calling thread has had.
pub(super) fn this_thread() -> Option<Scheduled> {
    Scheduled::parse(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// What the threads of a process have had, those that are still there.
pub(super) fn process(pid: u32) -> Option<Scheduled> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of = |task: fs::DirEntry| Scheduled::parse(&fs::read_to_string(task.path().join("schedstat")).ok()?);
    tasks.filter_map(|task| of(task.ok()?)).reduce(Scheduled::plus)
}

/// The most memory that a process had, in bytes (`VmHWM`).
pub(super) fn peak_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The processes of the group that process `leader` leads, without it.
pub(super) fn group(leader: u32) -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != leader && group_of(*pid) == Some(leader)).collect()
}

fn group_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in brackets, and may hold anything. Behind it: state, parent, group.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(2)?.parse().ok()
}

/// The CPUs' time since the machine was started, in ticks of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    cpus: u64,
    all: u64,
    busy: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The line of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in the first two.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        let [_, _, _, idle, iowait, _, _, stolen] = ticks[..] else { return None };
        let cpus =
            text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count() as u64;
        let all: u64 = ticks.iter().sum();
        Some(Self { cpus, all, busy: all - idle - iowait - stolen, stolen })
    }
}

/// What has been used so far by everybody who has a part in a run.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Parts {
    pub(super) workers: Option<Scheduled>,
    pub(super) router: Option<Scheduled>,
}

/// The counts at one moment.
#[derive(Debug)]
pub(super) struct Watch {
    at: Instant,
    ticks: Option<Ticks>,
    client: Option<Scheduled>,
    thread: Option<Scheduled>,
    parts: Parts,
}

impl Watch {
    /// The counts now. To be called by the thread that sends and receives.
    pub(super) fn begin(parts: Parts) -> Self {
        let client = process(std::process::id());
        Self { at: Instant::now(), ticks: Ticks::now(), client, thread: this_thread(), parts }
    }

    /// What the router's processes ran since then, in nanoseconds.
    pub(super) fn router_ran_ns(&self, parts: Parts) -> Option<u64> {
        Some(parts.router?.since(self.parts.router.unwrap_or_default()).ran_ns)
    }

    /// What has happened since, by the same thread.
    pub(super) fn end(&self, parts: Parts) -> Machine {
        let now = Self::begin(parts);
        let span_ns = (now.at - self.at).as_nanos() as u64;
        let since =
            |now: Option<Scheduled>, before: Option<Scheduled>| Some(now?.since(before.unwrap_or_default()));
        let thread = since(now.thread, self.thread);
        let workers = since(now.parts.workers, self.parts.workers);
        let router = since(now.parts.router, self.parts.router);
        let of_span = |ns: u64| (ns as f64 / span_ns.max(1) as f64).min(1.0);
        let ours = [since(now.client, self.client), workers, router];
        let ours_ns = ours.into_iter().flatten().map(|part| part.ran_ns).sum();
        let shares = shares(self.ticks, now.ticks, ours_ns, span_ns);
        // Who has the CPUs that a run may not use, as in a container with a share of the machine, is nothing to it.
        let has_all = now.ticks.is_some_and(|ticks| usable_cpus() >= ticks.cpus);
        Machine {
            span_ns,
            client_ran: thread.map(|thread| of_span(thread.ran_ns)),
            client_waited: thread.and_then(|thread| thread.waited_of(span_ns)),
            workers_waited: workers.and_then(Scheduled::waited),
            router_waited: router.and_then(Scheduled::waited),
            run_ran: shares.map(|shares| shares.run),
            others_ran: shares.map(|shares| shares.others).filter(|_| has_all),
            stolen: shares.map(|shares| shares.stolen),
        }
    }
}

/// How many CPUs this process may use.
fn usable_cpus() -> u64 {
    std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64)
}

/// Who had the time of all CPUs, each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shares {
    run: f64,
    others: f64,
    stolen: f64,
}

fn shares(before: Option<Ticks>, now: Option<Ticks>, ours_ns: u64, span_ns: u64) -> Option<Shares> {
    let (before, now) = (before?, now?);
    let all = now.all.checked_sub(before.all).filter(|all| *all > 0)? as f64;
    let busy = now.busy.saturating_sub(before.busy) as f64 / all;
    let run = (ours_ns as f64 / (span_ns.max(1) * now.cpus.max(1)) as f64).min(1.0);
    let stolen = now.stolen.saturating_sub(before.stolen) as f64 / all;
    Some(Shares { run, others: (busy - run).clamp(0.0, 1.0), stolen })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_the_kernel_are_read() {
        let stat =
            "cpu  10 1 4 70 5 1 2 7 0 0\ncpu0 5 1 2 35 2 1 1 3 0 0\ncpu1 5 0 2 35 3 0 1 4 0 0\nintr 5\n";
        assert_eq!(Ticks::parse(stat), Some(Ticks { cpus: 2, all: 100, busy: 18, stolen: 7 }));
        assert_eq!(Ticks::parse("intr 5\n"), None);
        assert_eq!(Scheduled::parse("12 34 5\n"), Some(Scheduled { ran_ns: 12, waited_ns: 34, turns: 5 }));
        let had = Scheduled { ran_ns: 600, waited_ns: 200, turns: 4 };
        assert_eq!(had.waited(), Some(Waited { share: 0.25, mean_ns: 50.0 }));
        assert_eq!(had.waited_of(1_000), Some(Waited { share: 0.2, mean_ns: 50.0 }));
        assert_eq!(Scheduled::default().waited(), None);
        assert_eq!(Scheduled::parse("nonsense"), None);
    }

    #[test]
    fn what_others_ran_is_what_is_left_of_the_busy_time() {
        let at = |all, busy, stolen| Some(Ticks { cpus: 2, all, busy, stolen });
        // 100 of 200 ticks were busy; we ran 0.6 s of 2 × 1 s.
        let seen = shares(at(0, 0, 0), at(200, 100, 20), 600_000_000, 1_000_000_000).unwrap();
        let near = |share: f64, expected: f64| (share - expected).abs() < 1e-9;
        assert!(near(seen.run, 0.3) && near(seen.others, 0.2) && near(seen.stolen, 0.1), "{seen:?}");
        let seen = shares(at(0, 0, 0), at(200, 10, 0), 600_000_000, 1_000_000_000).unwrap();
        assert_eq!((seen.others, seen.stolen), (0.0, 0.0));
        assert_eq!(shares(at(5, 5, 0), at(5, 5, 0), 0, 1), None);
    }

    #[test]
    fn this_process_has_had_something() {
        // Only where the kernel counts.
        let Some(before) = this_thread() else { return };
        let watch = Watch::begin(Parts::default());
        while this_thread().is_some_and(|now| now.ran_ns < before.ran_ns + 5_000_000) {}
        let seen = watch.end(Parts::default());
        assert!(seen.client_ran.is_some_and(|share| share > 0.0 && share <= 1.0), "{seen:?}");
        assert!(process(std::process::id()).is_some_and(|all| all.ran_ns >= 5_000_000));
        assert!(peak_bytes(std::process::id()).is_some_and(|peak| peak > 100_000));
    }
}
