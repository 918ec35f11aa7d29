"""Start-up time, idle memory, and memory while clients do not read."""

import random
import socket
import statistics
import time

from load import chat, connect
from processes import LabError
from report import Check, note, spread

STARTS, SETTLE = 5, 0.5
READERS, STREAM_BYTES, CHUNK_BYTES, WATCH = 4, 10**9, 290, 6.0
RECEIVE_BUFFER = 64 * 1024


def idle(lab):
    """Five starts each, not pinned: time to the first answer through a worker, memory after: (rows, checks)."""
    workers = lab.workers()
    seen = {subject.name: [] for subject in lab.subjects}
    for turn in range(STARTS):
        for subject in random.Random(turn).sample(lab.subjects, len(lab.subjects)):
            process = subject.start(lab.bench, workers, "cache_aware", pinned=False)
            time.sleep(SETTLE)
            seen[subject.name].append((process.ready_ms, process.resident_mb()))
            lab.bench.stop(process)
        note(f"memory {turn + 1}/{STARTS}")
    rows = [{"program": name, "ready ms": spread((ready for ready, _ in of), 0),
             "idle MB": spread(mb for _, mb in of)} for name, of in seen.items()]
    ready, resident = map(statistics.median, zip(*seen["ours"]))
    return rows, [Check("memory, idle after start", resident, 30, "MB"), Check("time to the first answer", ready, 100, "ms")]


def slow_readers(lab):
    """Clients that ask for a stream of 1 GB and never read: (rows, checks)."""
    workers = lab.workers()
    rows, grown = [], {}
    for subject in lab.subjects:
        process = subject.start(lab.bench, workers, "round_robin", pinned=False)
        time.sleep(SETTLE)
        grown[subject.name], waiting = growth(process, chat(workers.model, STREAM_BYTES // CHUNK_BYTES))
        rows.append({"program": subject.name, "grown MB": f"{grown[subject.name]:.1f}", "streams held": waiting})
        lab.bench.stop(process)
        note(f"readers {subject.name}: {grown[subject.name]:.1f} MB")
        if subject.name == "ours" and waiting < READERS:
            raise LabError("the streams of the slow readers did not begin, or broke")
    return rows, [Check("readers, growth of memory", grown["ours"], 32, "MB")]


def growth(process, request):
    """Largest growth of a process's memory in MB while nobody reads, and the streams that are held up by then."""
    before = process.resident_mb()
    links = [connect(process.port, RECEIVE_BUFFER) for _ in range(READERS)]
    for link in links:
        link.sendall(request)
    most, deadline = before, time.perf_counter() + WATCH
    while time.perf_counter() < deadline:
        time.sleep(0.05)
        most = max(most, process.resident_mb())
    held = sum(is_held(link) for link in links)
    for link in links:
        link.close()
    return most - before, held


def is_held(link):
    """Whether a good answer waits to be read."""
    try:
        return link.recv(12, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"HTTP/1.1 200"
    except OSError:
        return False
