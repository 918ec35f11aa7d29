#!/usr/bin/env python3
"""Measures whether mock workers keep their engines' time: streams at speed 1, seen by a client of ours.

  cargo build --release -p simworker
  python3 scripts/performance/live.py [--frames 1000,4000,8000] [--seconds 20] [--watched] [--json FILE]

Eight workers in one process share the machine's CPUs with the client. Each stream asks for the next reply when one has
ended, so the number of streams sets the rate. Frames are counted where they arrive, and what arrives in one read has one
time. Judged is the difference between the client's medians and the engines' own, which the workers tell in /metrics
(simworker_time_to_first_token_seconds, simworker_inter_token_seconds), worker by worker: at most 2 ms or 3 %. Rates above
--judged are for finding the limit, and there the workers must say that they are late. --watched takes the path on which
faults happen. Where others keep the CPUs busy, `chrt -f 10 python3 scripts/performance/live.py --noise 9` shows what a
quiet machine would. Exit codes: 0 all judged targets are met, 1 one is missed, 2 it could not be measured.
"""

import argparse
import gc
import json
import math
import os
import platform
import random
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import report  # noqa: E402
from compare import end, release  # noqa: E402
from load import await_answer  # noqa: E402
from processes import Bench, LabError, free_ports  # noqa: E402
from report import Check, note  # noqa: E402

WORKERS = 8
PROMPT_CHARACTERS = 800
# Of the default preset with a few requests running; only to choose how many streams make a rate.
STEP_SECONDS = 0.0125
# Seconds over which the streams start.
RAMP = 3
ALLOWED_MS, ALLOWED_SHARE = 2.0, 0.03
FRAME = b"data: {"
DONE, LAST = b"data: [DONE]", b"0\r\n\r\n"


class Stream:
    """A connection that asks for one reply after the other."""

    def __init__(self, port, tokens, seed, start):
        self.tokens, self.draw = tokens, random.Random(seed)
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.start, self.first, self.gaps, self.frames, self.replies = start, [], [], 0, 0
        self.ask_at, self.sent, self.last, self.tail, self.done = start, None, None, b"", False

    def ask(self):
        """Sends the next request: a prompt that no cache knows."""
        text = self.draw.randbytes(PROMPT_CHARACTERS // 2).hex()
        body = json.dumps({"text": text, "stream": True,
                           "sampling_params": {"max_new_tokens": self.tokens, "ignore_eos": True}})
        self.tail, self.last, self.done, self.ask_at = b"", None, False, None
        self.sent = time.perf_counter()
        self.sock.sendall(f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                          f"Content-Length: {len(body)}\r\n\r\n{body}".encode())

    def take(self):
        """Reads what is there: whether the reply has ended."""
        data = self.sock.recv(1 << 20)
        now = time.perf_counter()
        if not data:
            raise LabError("a worker closed a connection")
        data = self.tail + data
        self.tail = data[-len(FRAME) + 1:]  # shorter than what is looked for, so that nothing counts twice
        frames = data.count(FRAME)
        if frames:
            if self.last is None:
                self.first.append(now - self.sent)
                self.gaps.extend([0.0] * (frames - 1))
            else:
                self.gaps.append(now - self.last)
                self.gaps.extend([0.0] * (frames - 1))
            self.frames += frames
            self.last = now
        self.done = self.done or DONE in data[-64:]
        return self.done and data.endswith(LAST)


def drive(ports, per_worker, tokens, seconds):
    """Keeps the streams busy and lets the last replies end: the streams of each worker, and the rate while all ran."""
    began, draw, steady = time.perf_counter(), random.Random(1), 0
    streams = [[Stream(port, tokens, at * 1000 + n, began + draw.uniform(0, RAMP)) for n in range(per_worker)]
               for at, port in enumerate(ports)]
    poll, by_fd = select.epoll(), {}
    idle = sorted((stream for of in streams for stream in of), key=lambda stream: -stream.start)
    for stream in idle:
        by_fd[stream.sock.fileno()] = stream
        poll.register(stream.sock, select.EPOLLIN)
    busy, deadline = 0, began + seconds
    while idle or busy:
        now = time.perf_counter()
        while idle and idle[-1].ask_at <= now:
            idle.pop().ask()
            busy += 1
        if now > deadline + 60:
            raise LabError("the streams do not end")
        for fd, _ in poll.poll(max(0.0, min(idle[-1].ask_at - now, 1.0)) if idle else 1.0):
            stream = by_fd[fd]
            before, is_over = stream.frames, stream.take()
            if began + RAMP < now < deadline:
                steady += stream.frames - before
            if is_over:
                stream.replies += 1
                if time.perf_counter() < deadline:
                    stream.ask()
                else:
                    busy -= 1
    poll.close()
    for stream in by_fd.values():
        stream.sock.close()
    return streams, steady / (seconds - RAMP)


def metrics(port):
    """The series of a worker by name and labels."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: sock.recv(1 << 16), b"")).decode()
    return {name: float(value) for name, value in re.findall(r"^(\w[^ \n]*(?:\{.*\})?) ([-+\w.]+)$", text, re.M)}


def own(series, name, quantile):
    """A quantile as a worker tells it, in ms; None where it tells none."""
    found = [value for key, value in series.items()
             if key.startswith(f"simworker_{name}{{") and f'quantile="{quantile}"' in key]
    return 1000 * found[0] if found else None


def total(told, name):
    """The sum of a series over all workers."""
    return sum(value for series in told for key, value in series.items() if key.startswith(f"simworker_{name}{{"))


def measure(bench, options, frames):
    """One rate in a process of its own: (row, checks)."""
    per_worker = max(1, math.ceil(frames * STEP_SECONDS / WORKERS))
    base = free_ports(WORKERS + 1)
    ports = range(base, base + WORKERS)
    command = [options.simworker, "--workers", str(WORKERS), "--port", str(base), "--enable-metrics"]
    if options.watched:
        command += ["--control-port", str(base + WORKERS)]
    process = bench.start("simworker", command, base)
    await_answer(process, None)
    cpu, mine = process.cpu_seconds(), sum(os.times()[:2])
    began = time.perf_counter()
    streams, rate = drive(ports, per_worker, options.tokens, options.seconds)
    took = time.perf_counter() - began
    cpu, mine = process.cpu_seconds() - cpu, sum(os.times()[:2]) - mine
    told = [metrics(port) for port in ports]
    with open(process.log) as log:
        lines = sum("is late" in line for line in log)
    bench.stop(process)
    got = sum(stream.frames for of in streams for stream in of)
    expected = sum(stream.replies for of in streams for stream in of) * options.tokens
    row = {"asked": frames, "streams": per_worker * WORKERS, "frames/s": f"{rate:.0f}",
           "merged %": f"{100 * (1 - got / expected):.1f}", "worker CPU": f"{cpu / took:.2f}",
           "client CPU": f"{mine / took:.2f}", "CPU us/frame": f"{1e6 * cpu / got:.1f}"}
    checks = []
    for what, name, pick in [("TTFT", "time_to_first_token_seconds", "first"), ("ITL", "inter_token_seconds", "gaps")]:
        seen = [1000 * statistics.median([x for s in of for x in getattr(s, pick)]) for of in streams]
        cores = [own(series, name, 0.5) for series in told]
        row |= {f"{what} ms": f"{statistics.median(seen):.2f}"}
        if None in cores:
            row |= {f"{what} engine": "-", f"{what} off": "-"}
            continue
        off = max((a - b for a, b in zip(seen, cores)), key=abs)
        limit = max(ALLOWED_MS, ALLOWED_SHARE * statistics.median(cores))
        row |= {f"{what} engine": f"{statistics.median(cores):.2f}", f"{what} off": f"{off:+.2f}"}
        if frames <= options.judged:
            checks.append(Check(f"{frames} frames/s, median {what}, worst worker against its engine", abs(off), limit, "ms"))
    row |= {"late s": f"{total(told, 'saturated_seconds_total') / WORKERS:.1f}", "lines": lines}
    if frames == options.judged:
        # Below the rate the row would not be about it.
        checks.append(Check(f"{frames} frames/s, short of it", max(0.0, 1 - rate / frames), 0.0, ""))
    return row, checks


def arguments():
    """What was typed, checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simworker", default=release("simworker"), help="the workers' binary")
    parser.add_argument("--frames", default="1000,2000,4000,8000", help="rates to ask for, separated by commas")
    parser.add_argument("--judged", type=int, default=8000, help="the highest rate that must be kept")
    parser.add_argument("--seconds", type=float, default=20, help="length of each run")
    parser.add_argument("--tokens", type=int, default=200, help="length of each reply")
    parser.add_argument("--watched", action="store_true", help="with a control port, as for faults")
    parser.add_argument("--noise", type=float, default=0.2, metavar="SHARE",
                        help="of a CPU that others may use before a run is repeated, twice at most")
    parser.add_argument("--json", metavar="FILE", help="write everything there too")
    options = parser.parse_args()
    if not os.access(options.simworker, os.X_OK):
        parser.error(f"{options.simworker} is not there: cargo build --release -p simworker")
    if options.seconds <= RAMP:
        parser.error(f"--seconds must be above {RAMP}, over which the streams start")
    options.frames = [int(text) for text in options.frames.split(",")]
    return options


def run(options):
    """Measures every rate and prints: whether all judged targets were met."""
    print(f"{os.cpu_count()} CPUs, {platform.system()} {platform.release()}; {options.simworker}")
    rows, checks = [], []
    gc.disable()
    with Bench(options.noise) as bench:
        for frames in options.frames:
            (row, judged), others = bench.quiet(lambda frames=frames: measure(bench, options, frames))
            rows.append({**row, "others": f"{others:.2f}"})
            checks += judged
            note(f"{frames} frames/s measured")
    report.table(f"live timing at speed 1: {WORKERS} workers, replies of {options.tokens} tokens, medians", rows)
    met = report.targets(checks) if checks else True
    if any(float(row["others"]) > options.noise for row in rows):
        print(f"\nNOISY: others used more than {options.noise:g} of a CPU: measure again")
    if options.json:
        report.write_json(options.json, {"machine": platform.release(), "watched": options.watched}, {"live": rows}, checks)
    return met


def main():
    """Runs it, ends what was started in any case, and returns the exit code."""
    options = arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        return 0 if run(options) else 1
    except (LabError, OSError, subprocess.CalledProcessError) as error:
        print(f"could not measure: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
