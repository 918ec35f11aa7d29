"""What a proxy adds to single answers: to streams that are paced, and to small requests at a steady rate."""

import random
import statistics

from load import chat, connect, open_loop, read_stream
from processes import LabError
from report import Check, note, spread

STREAMS, CHUNKS = 24, 300
ROUNDS, SECONDS, RATE = 7, 2, 200


def pacing(lab):
    """One chunk a millisecond, a stream at a time on a kept-alive connection each: (rows, checks)."""
    workers = lab.workers(interval_ms=1)
    ports = start_all(lab, workers)
    links = {name: connect(port) for name, port in ports.items()}
    request = chat(workers.model, CHUNKS)
    for link in links.values():
        for _ in range(2):  # a fresh connection is acknowledged at once, and that hides held back writes
            read_stream(link, request)
    seen = {name: [] for name in ports}
    for turn in range(STREAMS):
        for name in random.Random(turn).sample(list(links), len(links)):
            stream, others = lab.bench.quiet(lambda name=name: read_stream(links[name], request))
            if stream[2] < CHUNKS:
                raise LabError(f"{name} lost chunks of a stream: {stream[2]} of {CHUNKS}")
            seen[name].append((*stream[:2], others))
        note(f"pacing {turn + 1}/{STREAMS}")
    figures = {name: paced(streams) for name, streams in seen.items()}
    rows = [{"program": name, "first byte ms": spread((first for first, _, _ in seen[name]), 2),
             **{key: f"{value:.2f}" for key, value in of.items() if key != "first byte"},
             "others": f"{max(others for *_, others in seen[name]):.2f}"} for name, of in figures.items()]
    checks = [Check(f"pacing, {what}, added to direct", figures["ours"][what] - figures["direct"][what], 1.0, "ms")
              for what in ("first byte", "p99 gap")]
    return rows, checks


def paced(streams):
    """Median time to the first byte, and the 99th percentile and the largest of all gaps."""
    gaps = sorted(gap for _, of, _ in streams for gap in of)
    return {"first byte": statistics.median(first for first, _, _ in streams),
            "p99 gap": gaps[int(0.99 * len(gaps))], "longest gap": gaps[-1]}


def latency(lab):
    """200 small requests a second, in alternating rounds: (rows, checks)."""
    workers = lab.workers()
    ports = start_all(lab, workers)
    request = chat(workers.model)
    rounds = {name: [] for name in ports}
    for turn in range(ROUNDS):
        for name in random.Random(turn).sample(list(ports), len(ports)):
            open_loop(ports[name], request, RATE, 0.5)
            took, others = lab.bench.quiet(lambda name=name: open_loop(ports[name], request, RATE, SECONDS))
            rounds[name].append((statistics.median(took), sorted(took)[int(0.99 * len(took))], others))
        note(f"latency {turn + 1}/{ROUNDS}")
    floor = [median for median, _, _ in rounds["direct"]]
    added = {name: [median - base for (median, _, _), base in zip(of, floor)] for name, of in rounds.items()}
    rows = [{"program": name, "median ms": spread((median for median, _, _ in of), 3),
             "added ms": spread(added[name], 3), "p99 ms": spread((p99 for _, p99, _ in of), 2),
             "others": f"{max(others for *_, others in of):.2f}"} for name, of in rounds.items()]
    ours, nginx = (statistics.median(added[name]) if name in added else None for name in ("ours", "nginx"))
    return rows, [Check("latency, added median against nginx", ours / nginx if nginx else None, 1.5, "x")]


def start_all(lab, workers):
    """Starts every subject; the port of each, and that of a worker as `direct`."""
    started = {s.name: s.start(lab.bench, workers, "round_robin").port for s in lab.subjects}
    return {"direct": workers.ports[0], **started}
