#!/usr/bin/env python3
"""Measures the router beside nginx and released peers, in one run on the same instant workers, and judges its targets.

  cargo build --release -p router -p simworker
  python3 scripts/performance/compare.py [--peers DIR] [--only cost,latency] [--json FILE]

Sections: cost (CPU per request), pacing (are streams held back), latency (added to small requests), memory (idle, and
time to the first answer), readers (memory while clients do not read); and by name only, fleet (workers that come and
go), pairs (prefill and decode) and soak (a million prompts). Linux, two CPUs, wrk; everything on loopback.
--peers names a folder with a Python environment for each released peer: DIR/sglang-router, DIR/smg, DIR/vllm-router.
Exit codes: 0 all judged targets are met, 1 one is missed, 2 it could not be measured.
"""

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import cost  # noqa: E402
import fleet  # noqa: E402
import memory  # noqa: E402
import pairs  # noqa: E402
import report  # noqa: E402
import soak  # noqa: E402
import subjects  # noqa: E402
import timing  # noqa: E402
from processes import Bench, LabError  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SECTIONS = {
    "cost": ("cost: CPU of the proxy per request, median (least-most)", cost.section),
    "pacing": (f"pacing: {timing.STREAMS} streams of one chunk a millisecond", timing.pacing),
    "latency": (f"latency: {timing.RATE} small requests a second, open loop", timing.latency),
    "memory": (f"memory: {memory.STARTS} starts", memory.idle),
    "readers": (f"readers: {memory.READERS} clients that never read a stream of 1 GB", memory.slow_readers),
    "fleet": ("fleet: workers that come and go, ours alone", fleet.section),
    "pairs": ("pairs: prefill and decode workers, ours alone", pairs.section),
    "soak": (f"soak: {soak.PROMPTS:,} different prompts of {soak.LENGTH} characters", soak.section),
}
BY_DEFAULT = [name for name in SECTIONS if name not in ("fleet", "pairs", "soak")]


class Lab:
    """What a section gets: options, subjects, and a bench that is emptied after each section."""

    def __init__(self, bench, options, found):
        self.bench, self.options, self.subjects = bench, options, found

    def workers(self, interval_ms=0):
        """Starts the instant workers of a section."""
        return subjects.Workers(self.bench, self.options.simworker, self.options.workers, interval_ms)


def release(name):
    """Where cargo puts a release build."""
    return os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"), "release", name)


def arguments():
    """What was typed, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--router", default=release("router"), help="our router's binary")
    parser.add_argument("--simworker", default=release("simworker"), help="the workers' binary")
    parser.add_argument("--peers", help="folder with the peers' environments")
    parser.add_argument("--only", default=",".join(BY_DEFAULT), help="sections, separated by commas")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of the cost section")
    parser.add_argument("--seconds", type=int, default=3, help="length of a cost run")
    parser.add_argument("--connections", type=int, default=32, help="connections of a cost run")
    parser.add_argument("--workers", type=int, default=4, help="workers behind every proxy")
    parser.add_argument("--noise", type=float, default=0.2, metavar="SHARE",
                        help="of a CPU that others may use before a run is repeated, twice at most")
    parser.add_argument("--json", metavar="FILE", help="write everything there too")
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(SECTIONS):
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    for program in (options.router, options.simworker):
        if not os.access(program, os.X_OK):
            parser.error(f"{program} is not there: cargo build --release -p router -p simworker")
    if {"cost", "soak"} & set(options.only) and not shutil.which("wrk"):
        parser.error("the sections cost and soak need wrk")
    return options


def run(options, bench):
    """Measures the sections and prints: whether all judged targets were met."""
    began = time.monotonic()
    found, missing = subjects.find(options.router, options.peers)
    header = {"machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
              "programs": {subject.name: subject.version for subject in found}, "missing": missing}
    print(header["machine"] + "; " + "; ".join(f"{name}: {version}" for name, version in header["programs"].items()))
    for line in missing:
        print("MISSING " + line)
    lab, sections, checks = Lab(bench, options, found), {}, []
    for name in options.only:
        title, measure = SECTIONS[name]
        rows, judged = measure(lab)
        for process in list(bench.processes):
            bench.stop(process)
        report.table(title, rows)
        sections[name], checks = rows, checks + judged
    met = report.targets(checks)
    noisy = [name for name, rows in sections.items() if any(float(row.get("others", 0)) > options.noise for row in rows)]
    if noisy:
        print(f"\nNOISY: others used more than {options.noise:g} of a CPU during {', '.join(noisy)}: measure again")
    seconds = time.monotonic() - began
    print(f"\n{seconds:.0f} s in all")
    if options.json:
        report.write_json(options.json, {**header, "seconds": round(seconds), "noisy": noisy}, sections, checks)
    return met


def end(number, _frame):
    """On a signal: leaves by way of the bench, which ends what was started; further signals do not disturb it."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    """Runs it, ends what was started in any case, and returns the exit code."""
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        with Bench(options.noise) as bench:
            return 0 if run(options, bench) else 1
    except (LabError, OSError, subprocess.CalledProcessError) as error:
        print(f"could not measure: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
