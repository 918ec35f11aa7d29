#!/usr/bin/env python3
"""Checks the KV events of a mock worker with libzmq and another msgpack than its own.

    scripts/kv_events/check.py target/debug/simworker

Needs the network once: pyzmq and msgpack go into a virtual environment that is thrown away. Two ranks serve requests in
a cache too small for them. A subscriber of each rank rebuilds the cache from the events, checks every hash with hashlib
and that no number is missing, and then compares what it saw with a replay from number 0.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import msgpack
    import zmq
except ImportError:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = os.path.join(folder, "bin", "python")
        packages = ["pyzmq==27.3.0", "msgpack==1.2.4"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)
        sys.exit(subprocess.run([python, *sys.argv]).returncode)

PAGE = 4
RANKS = 2
PATIENCE_S = 20
CONFIG = {"publisher": "zmq", "endpoint": "tcp://127.0.0.1:0", "bind": True,
          "replay_endpoint": "tcp://127.0.0.1:0", "topic": "kv", "buffer_steps": 10_000}


def post(url, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read()


def digest(before, tokens):
    return hashlib.sha256(before + b"".join(token.to_bytes(4, "little") for token in tokens)).digest()


def name(sha):
    return int.from_bytes(sha[:8], "big", signed=True)


class Mirror:
    """What is cached on one rank, by nothing but its events."""

    def __init__(self):
        self.digests = {}
        self.blocks = set()
        self.counts = {"BlockStored": 0, "BlockRemoved": 0, "AllBlocksCleared": 0}

    def apply(self, event):
        self.counts[event["type"]] += 1
        if event["type"] == "AllBlocksCleared":
            self.blocks.clear()
        elif event["type"] == "BlockRemoved":
            for block in event["block_hashes"]:
                self.blocks.remove(block)
        else:
            assert event["block_size"] == PAGE and event["medium"] == "GPU" and event["lora_id"] is None, event
            parent = event["parent_block_hash"]
            assert parent is None or parent in self.blocks, f"the parent {parent} is not cached"
            before = b"" if parent is None else self.digests[parent]
            if parent is None and "cache_salt" in event:
                before = hashlib.sha256(b"sglang-cache-salt-v1\0" + event["cache_salt"].encode()).digest()
            tokens = event["token_ids"]
            assert len(tokens) == PAGE * len(event["block_hashes"])
            for at, block in enumerate(event["block_hashes"]):
                before = digest(before, tokens[at * PAGE:(at + 1) * PAGE])
                assert name(before) == block, f"{block} is not the hash of its tokens"
                self.digests[block] = before
                assert block not in self.blocks, f"{block} is stored twice"
                self.blocks.add(block)


def subscribe(context, endpoint, url):
    """A socket whose subscription has arrived, with its first message: the worker flushes until one comes."""
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, b"kv")
    socket.connect(endpoint)
    deadline = time.monotonic() + PATIENCE_S
    while not socket.poll(20):
        assert time.monotonic() < deadline, f"nothing comes from {endpoint}"
        post(f"{url}/flush_cache", {})
    return socket


def replay(context, endpoint, start):
    socket = context.socket(zmq.REQ)
    socket.connect(endpoint)
    socket.send(start.to_bytes(8, "big"))
    dealer = []
    # A REQ socket takes one answer; the rest needs a DEALER.
    assert socket.poll(PATIENCE_S * 1000), "no replay for a REQ socket"
    dealer.append(socket.recv_multipart())
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    socket.send_multipart([b"", start.to_bytes(8, "big")])
    messages = []
    while True:
        assert socket.poll(PATIENCE_S * 1000), "the replay does not end"
        empty, topic, number, payload = socket.recv_multipart()
        assert empty == b""
        if int.from_bytes(number, "big", signed=True) == -1:
            assert messages[:1] == [tuple(dealer[0])]
            return messages
        messages.append((topic, number, payload))


def main():
    binary = sys.argv[1]
    flags = ["--port", "0", "--dp-size", str(RANKS), "--page-size", str(PAGE), "--kv-tokens", "400", "--speed", "50",
             "--kv-events-config", json.dumps(CONFIG), "--exit-with-stdin"]
    worker = subprocess.Popen([binary, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        check(json.loads(worker.stdout.readline()))
    finally:
        worker.stdin.close()
        worker.wait(PATIENCE_S)


def check(line):
    url, published = line["listening"][0], line["kv_events"][0]
    with urllib.request.urlopen(f"{url}/server_info", timeout=PATIENCE_S) as answer:
        described = json.load(answer)["kv_events"]
    assert described["block_size"] == PAGE and described["dp_size"] == RANKS, described
    base = described["endpoint_port_base"]
    assert [int(e.rsplit(":", 1)[1]) for e in published["endpoints"]] == [base + rank for rank in range(RANKS)]
    context = zmq.Context()
    sockets = [subscribe(context, endpoint, url) for endpoint in published["endpoints"]]
    for turn in range(24):
        prompt = list(range(turn % 3 * 1000, turn % 3 * 1000 + 40)) + list(range(turn * 5000, turn * 5000 + 30))
        body = {"input_ids": prompt, "routed_dp_rank": turn % RANKS,
                "sampling_params": {"max_new_tokens": 12, "ignore_eos": True}}
        if turn % 4 == 3:
            body["cache_salt"] = "tenantA"
        post(f"{url}/generate", body)
    for rank, socket in enumerate(sockets):
        mirror, seen = Mirror(), []
        while socket.poll(500):
            topic, number, payload = socket.recv_multipart()
            assert topic == b"kv"
            seen.append((topic, number, payload))
        numbers = [int.from_bytes(number, "big") for _, number, _ in seen]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "numbers are missing"
        for _, _, payload in seen:
            ts, events, of_rank = msgpack.unpackb(payload)
            assert of_rank == rank and abs(ts - time.time()) < 600
            for event in events:
                mirror.apply(event)
        assert mirror.counts["BlockRemoved"] > 0, "the cache was large enough for all"
        assert len(mirror.blocks) <= 100
        told = replay(context, published["replay_endpoints"][rank], 0)
        assert told[numbers[0]:] == seen, "the replay differs"
        print(f"rank {rank}: {len(seen)} batches from number {numbers[0]} on, {mirror.counts}, "
              f"{len(mirror.blocks)} blocks cached at the end; a replay from 0 has {len(told)} batches and agrees")
    print("all hashes, parents and numbers are right")


main()
