#!/usr/bin/env python3
"""What virtual time costs: a million requests, a thousand workers, a sweep of 200 cells.

    cargo build --release -p loadgen
    python3 scripts/performance/virtual.py --trace conversation_trace.jsonl

Without --trace it repeats the small trace of scenarios/, whose prompts are shorter. Each measurement is a process of its own; wall
time and memory are the whole program's, all output files included. The exit code is 1 when a target is missed.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MILLION = 1_000_000

REPLAY = """
schema = 1
name = "virtual"
mode = "virtual"
[workload]
kind = "trace"
path = "{trace}"
jitter = "grid"
repeat = {repeat}
speedup = {speedup}
[arrival]
kind = "trace"
[fleet]
workers = {workers}
page = 64
[router]
policies = ["{policy}"]
[slo]
ttft = "5s"
tpot = "50ms"
"""

# 10 thresholds x 5 sizes of the tree x 4 rates: 200 cells of multi_prefix.
SWEEP = """
[sweep]
"router.options.cache_aware.cache_threshold" = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
"router.options.cache_aware.max_tree_size" = [10_000, 100_000, 1_000_000, 10_000_000, 100_000_000]
"arrival.over" = ["0.5s", "1s", "1.5s", "3s"]
"""


class Measured:
    """Wall time in seconds, CPU time in seconds, peak memory in MB."""

    def __init__(self, command, cores):
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            # The asserts of multi_prefix do not hold in every cell of the sweep, and need not.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.sched_setaffinity(0, cores)
            try:
                os.execv(command[0], command)
            finally:
                os._exit(127)
        _, status, usage = os.wait4(pid, 0)
        self.wall_s = time.monotonic() - begin
        self.cpu_s = usage.ru_utime + usage.ru_stime
        self.peak_mb = usage.ru_maxrss / 1024
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            sys.exit(f"{' '.join(command)}: exit code {os.waitstatus_to_exitcode(status)}")


class Bench:
    """The measurements, each a row of the table."""

    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)
        self.rows = sum(1 for line in open(args.trace) if line.strip())
        self.missed = []

    def run(self, text, cores, *options):
        scenario = self.folder / "scenario.toml"
        scenario.write_text(text)
        out = ["--out", str(self.folder / "out"), "--quiet"]
        return Measured([self.args.loadgen, "run", str(scenario), *options, *out], cores)

    def replay(self, requests, workers, policy):
        """`requests` of the trace; the arrivals are as much faster as there are more workers."""
        repeat = -(-requests // self.rows)
        text = REPLAY.format(
            trace=self.args.trace, repeat=repeat, speedup=self.args.speedup * workers / 8, workers=workers, policy=policy
        )
        return self.run(text, {0}), repeat * self.rows

    def tell(self, what, measured, target_s=None, target_mb=None, work=None):
        per = f"{measured.cpu_s / work * 1e6:.1f}" if work else ""
        targets = ([f"{target_s:g} s"] if target_s else []) + ([f"{target_mb:,} MB"] if target_mb else [])
        print(
            f"| {what} | {measured.wall_s:.1f} | {measured.cpu_s:.1f} | {per} | {measured.peak_mb:,.0f} "
            f"| {', '.join(targets)} |",
            flush=True,
        )
        if target_s and measured.wall_s > target_s or target_mb and measured.peak_mb > target_mb:
            self.missed.append(what)

    def all(self):
        print("| | wall, s | CPU, s | CPU per request, µs | peak, MB | target |\n|---|---|---|---|---|---|")
        for policy in ["round_robin", "cache_aware"]:
            measured, count = self.replay(MILLION, 8, policy)
            self.tell(f"{count:,} requests, 8 workers, {policy}, 1 core", measured, 60, 4_096, count)
        for part in [16, 4]:
            measured, count = self.replay(MILLION // part, 8, "cache_aware")
            self.tell(f"{count:,} requests, 8 workers, cache_aware, 1 core", measured, work=count)
        for policy in ["round_robin", "power_of_two", "cache_aware"]:
            measured, count = self.replay(100_000, 1_000, policy)
            self.tell(f"{count:,} requests, 1,000 workers, {policy}, 1 core", measured, 120, work=count)
        multi_prefix = (ROOT / "scenarios/multi_prefix.toml").read_text()
        cores = set(sorted(os.sched_getaffinity(0))[:2])
        options = ["--mode", "virtual", "--policy", "cache_aware"]
        cells = 200
        measured = self.run(multi_prefix + SWEEP, cores, *options)
        self.tell(f"{cells} cells of multi_prefix, {len(cores)} cores", measured, 60, work=cells * 1024)
        measured = self.run(multi_prefix, cores, *options, "--seeds", "20")
        self.tell(f"multi_prefix, 20 seeds, {len(cores)} cores", measured, work=20 * 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=pathlib.Path, default=ROOT / "scenarios/mooncake_small.jsonl")
    parser.add_argument("--loadgen", default=str(ROOT / "target/release/loadgen"))
    parser.add_argument("--speedup", type=float, default=0.8, help="of the arrivals, with 8 workers")
    args = parser.parse_args()
    args.trace = args.trace.resolve()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        bench.all()
    for what in bench.missed:
        print(f"missed: {what}")
    sys.exit(1 if bench.missed else 0)


if __name__ == "__main__":
    main()
