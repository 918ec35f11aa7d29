"""A fleet that changes: workers that come, many workers, slow clients, lost caches. Ours alone; peers have no such routes."""

import http.client
import json
import random
import socket
import statistics
import threading
import time

from load import await_answer
from processes import LabError, free_ports
from report import Check, note

UNREACHABLE, MANY, FEW, SLOW_HEADS = 10, 500, 5, 200
ENGINES, CLIENTS, GROUPS, WARM_SECONDS, WATCHED = 4, 16, 200, 12, 10
LEARNING = 20
HEADERS = {"content-type": "application/json"}


def section(lab):
    """(rows, checks) of all figures."""
    ours = lab.subjects[0]
    figures = [arrival(lab, ours), *many(lab, ours), slow_heads(lab, ours), *changes(lab, ours)]
    return [{"figure": name, "value": f"{value:.2f}", "unit": unit} for name, value, unit, _ in figures], [
        Check(name, value, limit, unit) for name, value, unit, limit in figures if limit is not None]


def call(port, method, path, body=None):
    """One request on a connection of its own: the parsed answer."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        link.request(method, path, None if body is None else json.dumps(body), HEADERS)
        answer = link.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise LabError(f"{method} {path}: {answer.status} {text[:200]!r}")
        return json.loads(text) if text.startswith(b"{") else {}
    finally:
        link.close()


def arrival(lab, ours):
    """How long a worker takes to be ready that comes behind ten nobodies."""
    workers = lab.workers()
    process = ours.start(lab.bench, workers, "cache_aware")
    silent = [socket.create_server(("127.0.0.1", 0)) for _ in range(UNREACHABLE // 2)]
    absent = free_ports(UNREACHABLE - len(silent))
    nobody = [server.getsockname()[1] for server in silent]
    nobody += [absent + n for n in range(UNREACHABLE - len(silent))]
    own = lab.workers()
    for port in nobody:
        call(process.port, "POST", "/workers", {"url": f"http://127.0.0.1:{port}"})
    began = time.perf_counter()
    location = call(process.port, "POST", "/workers", {"url": own.urls()[0]})["location"]
    while call(process.port, "GET", location)["state"] != "ready":
        time.sleep(0.001)
        if time.perf_counter() - began > 30:
            raise LabError("the worker did not get ready")
    took = 1000 * (time.perf_counter() - began)
    lab.bench.stop(process)
    return ("a worker behind ten that cannot be reached is ready", took, "ms", 1000)


def many(lab, ours):
    """What hundreds of workers cost the operator's list and each request."""
    costs, listed = {}, []
    for count in (FEW, MANY):
        lab.options.workers, usual = count, lab.options.workers
        workers = lab.workers()
        lab.options.workers = usual
        process = ours.start(lab.bench, workers, "cache_aware")
        deadline = time.perf_counter() + 30
        while any(row["state"] != "ready" for row in call(process.port, "GET", "/workers")["workers"]):
            time.sleep(0.1)
            if time.perf_counter() > deadline:
                raise LabError(f"{count} workers did not get ready")
        latencies(process.port, 3000)
        before = process.cpu_seconds()
        latencies(process.port, 10_000)
        costs[count] = 1e6 * (process.cpu_seconds() - before) / 10_000
        for _ in range(50 if count == MANY else 0):
            began = time.perf_counter()
            call(process.port, "GET", "/workers")
            listed.append(1000 * (time.perf_counter() - began))
        lab.bench.stop(process)
        note(f"fleet {count} workers: {costs[count]:.1f} us a request")
    return [(f"/workers with {MANY}, median of 50", statistics.median(listed), "ms", 20),
            (f"/workers with {MANY}, slowest", max(listed), "ms", None),
            (f"CPU for a request one at a time, {FEW} workers", costs[FEW], "us", None),
            (f"CPU for a request one at a time, {MANY} workers", costs[MANY], "us", None)]


def latencies(port, count):
    """Milliseconds of so many small requests, one after the other, in order of length."""
    link, seen = http.client.HTTPConnection("127.0.0.1", port, timeout=30), []
    for _ in range(count):
        began = time.perf_counter()
        link.request("POST", "/generate", b'{"text":"a"}', HEADERS)
        link.getresponse().read()
        seen.append(1000 * (time.perf_counter() - began))
    link.close()
    return sorted(seen)


def slow_heads(lab, ours):
    """By how much clients that send their heads byte by byte move the 99th percentile of another one."""
    process = ours.start(lab.bench, lab.workers(), "round_robin")
    moved = []
    for _ in range(3):
        alone = latencies(process.port, 3000)[2970]
        links, stop = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(SLOW_HEADS)], threading.Event()

        def trickle():
            for byte in b"POST /generate HTTP/1.1\r\nHost: a\r\nX-Slow: " + b"a" * 1000:
                for link in links:
                    link.send(bytes([byte]))
                if stop.wait(0.05):
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        moved.append(latencies(process.port, 3000)[2970] - alone)
        stop.set()
        thread.join()
        for link in links:
            link.close()
    lab.bench.stop(process)
    return (f"{SLOW_HEADS} slow heads move another client's p99 by", statistics.median(moved), "ms", 5)


class Traffic:
    """Clients that send prompts of shared prefixes in a closed loop."""

    def __init__(self, port):
        words = random.Random(1)
        self.port, self.log, self.lock, self.failed = port, [], threading.Lock(), 0
        self.prefixes = [" ".join(f"word{words.randrange(10**6)}" for _ in range(600)) for _ in range(GROUPS)]
        self.on, self.over = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(n,)) for n in range(CLIENTS)]
        self.on.set()
        for thread in self.threads:
            thread.start()

    def client(self, number):
        """Sends until it is over, and notes (time, worker, prompt tokens, predicted, found)."""
        draw, link = random.Random(number), http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.over.is_set():
            self.on.wait()
            text = f"{draw.choice(self.prefixes)} q{draw.random()}"
            body = json.dumps({"text": text, "sampling_params": {"max_new_tokens": 32}})
            link.request("POST", "/generate", body, HEADERS)
            answer = link.getresponse()
            told = json.loads(answer.read())
            with self.lock:
                if answer.status != 200:
                    self.failed += 1
                    continue
                meta = told["meta_info"]
                row = (time.perf_counter(), int(answer.getheader("x-router-worker")), meta["prompt_tokens"],
                       int(answer.getheader("x-router-predicted-tokens") or 0), meta["cached_tokens"])
                self.log.append(row)

    def end(self):
        """Waits for all clients."""
        self.over.set()
        self.on.set()
        for thread in self.threads:
            thread.join()


def changes(lab, ours):
    """A fifth engine beside four under load, and a cache that is flushed behind the router's back."""
    base = free_ports(ENGINES + 1)
    command = [lab.options.simworker, "--port", str(base), "--workers", str(ENGINES + 1), "--speed", "4"]
    engines = lab.bench.start("simworker", command, base)
    engines.model = await_answer(engines, None)
    port = free_ports()
    urls = [f"http://127.0.0.1:{base + n}" for n in range(ENGINES + 1)]
    command = [*ours.argv, "--host", "127.0.0.1", "--port", str(port), "--prometheus-host", "127.0.0.1",
               "--prometheus-port", str(free_ports()), "--log-level", "error", "--decision-headers", "--policy",
               "cache_aware", "--worker-urls", *urls[:ENGINES]]
    await_answer(lab.bench.start("ours", command, port), engines.model)
    traffic = Traffic(port)
    time.sleep(WARM_SECONDS)
    joined = time.perf_counter()
    call(port, "POST", "/workers", {"url": urls[ENGINES]})
    time.sleep(WARM_SECONDS)
    traffic.on.clear()
    time.sleep(3)  # engines refuse to flush while they are busy
    call(base + 1, "POST", "/flush_cache")
    flushed = time.perf_counter()
    traffic.on.set()
    time.sleep(WARM_SECONDS)
    traffic.end()
    tokens = [(worker, count) for at, worker, count, _, _ in traffic.log if joined <= at < joined + WATCHED]
    share = sum(count for worker, count in tokens if worker == ENGINES) / sum(count for _, count in tokens)
    judged = [(predicted, found) for at, worker, _, predicted, found in traffic.log if at > flushed and worker == 1]
    late = judged[LEARNING:LEARNING + 100]
    wrong = sum(predicted > 300 and found < 100 for predicted, found in late)
    return [(f"part of all tokens that the others keep in {WATCHED} s after a fifth worker came", 100 * (1 - share), "%", 85),
            (f"of the 100 requests after the first {LEARNING} since a flush, predicted to find what was not there", float(wrong), "", 5),
            ("requests that failed meanwhile", float(traffic.failed), "", 0)]
