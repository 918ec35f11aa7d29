"""Prefill and decode workers behind the router: how late the first byte is, and what is left when a worker dies."""

import collections
import http.client
import json
import socketserver
import statistics
import threading
import time

from fleet import HEADERS, call
from load import connect
from processes import LabError, free_ports
from report import Check, note

ROUNDS, CLIENTS, HELD, IN_FLIGHT = 20, 5, (0.0, 2.0), 100
DECODE_DELAY = 0.05
SETTLED = 2.0
CUT = "200 cut after the first token"


def section(lab):
    """(rows, checks) of all figures."""
    figures = [*first_bytes(lab), *deaths(lab)]
    return [{"figure": name, "value": f"{value:.2f}", "unit": unit} for name, value, unit, _ in figures], [
        Check(name, value, limit, unit) for name, value, unit, limit in figures if limit is not None]


class Mock(socketserver.ThreadingTCPServer):
    """A worker of one role that answers every request alike and notes when it sent the first byte of a body."""

    allow_reuse_address = daemon_threads = True
    request_queue_size = 256

    def __init__(self, role, held):
        self.role, self.held, self.first = role, held, {}
        super().__init__(("127.0.0.1", 0), MockHandler)
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()


class MockHandler(socketserver.StreamRequestHandler):
    """Connections are kept; a request is read by its length."""

    disable_nagle_algorithm = True

    def handle(self):
        while line := self.rfile.readline():
            path, length = line.split()[1].decode(), 0
            while (field := self.rfile.readline().strip()):
                name, _, value = field.lower().partition(b":")
                length = int(value) if name == b"content-length" else length
            self.answer(path, json.loads(self.rfile.read(length)) if length else None)

    def answer(self, path, body):
        """A generation by its role, anything else from the table."""
        if path != "/generate":
            info = {"/v1/models": {"object": "list", "data": [{"id": "m"}]}}.get(path, {
                "disaggregation_mode": self.server.role, "dp_size": 1, "model_path": "m", "served_model_name": "m"})
            return self.whole(info)
        if self.server.role == "prefill":
            time.sleep(self.server.held)
            return self.whole({"text": "", "meta_info": {"id": "x"}})
        time.sleep(DECODE_DELAY)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        piece = b'data: {"text":"a"}\n\n'
        self.server.first[body["text"]] = time.perf_counter()
        self.wfile.write(head + b"%x\r\n%s\r\n" % (len(piece), piece))
        time.sleep(0.02)
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def whole(self, value):
        """An answer with a length."""
        text = json.dumps(value).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                         % (len(text), text))


def start(lab, prefill, decode, *more):
    """Our router before prefill and decode workers, once all of them are ready."""
    port, argv = free_ports(), list(lab.subjects[0].argv)
    argv += ["--host", "127.0.0.1", "--port", str(port), "--prometheus-host", "127.0.0.1", "--prometheus-port",
             str(free_ports()), "--log-level", "error", "--pd-disaggregation", *more]
    for url, bootstrap in prefill:
        argv += ["--prefill", url, str(bootstrap)]
    for url in decode:
        argv += ["--decode", url]
    process = lab.bench.start("ours", argv, port, lab.bench.router_cpu)
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        process.assert_alive()
        try:
            rows = call(port, "GET", "/workers")["workers"]
            if len(rows) == len(prefill) + len(decode) and all(row["state"] == "ready" for row in rows):
                return process
        except OSError:
            pass
        time.sleep(0.02)
    raise process.complaint("did not find its workers ready")


def first_bytes(lab):
    """How long after decode's first byte the client has it, with prefill's answer there and held back."""
    figures = []
    for held in HELD:
        prefill, decode = Mock("prefill", held), Mock("decode", 0)
        process = start(lab, [(f"http://127.0.0.1:{prefill.port}", "none")], [f"http://127.0.0.1:{decode.port}"])
        late, failures = [], []

        def client(number, rounds=3 if held else ROUNDS):
            link = connect(process.port)
            for turn in range(rounds):
                key = f"{number}-{turn}"
                text = json.dumps({"text": key, "stream": True})
                link.sendall(f"POST /generate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                             f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
                answer, first = b"", None
                while not answer.endswith(b"\r\n0\r\n\r\n"):
                    piece = link.recv(65536)
                    now = time.perf_counter()
                    if not piece:
                        return failures.append(answer)
                    answer += piece
                    if first is None and b"data:" in answer:
                        first = now
                late.append(1000 * (first - decode.first[key]))
            link.close()

        threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lab.bench.stop(process)
        if failures:
            raise LabError(f"pairs: {failures[0][:200]!r}")
        name = f"first byte after decode's, prefill answers after {held:g} s"
        figures += [(f"{name}: median of {len(late)}", statistics.median(late), "ms", None),
                    (f"{name}: latest", max(late), "ms", 5)]
        prefill.shutdown()
        decode.shutdown()
    return figures


def engine(lab, role, *more):
    """A worker of a role in a process of its own: the process, its URL and its bootstrap port."""
    port = free_ports(2)
    command = [lab.options.simworker, "--port", str(port), "--speed", "4", "--disaggregation-mode", role,
               "--disaggregation-bootstrap-port", str(port + 1), *more]
    process = lab.bench.start(f"simworker {role}", command, port, lab.bench.load_cpu)
    process.bootstrap = port + 1
    return process


def deaths(lab):
    """A worker that dies with many requests in flight, and transfers that fail: what the clients get, and what stays."""
    figures = []
    for name, broken, fault in [("prefill dies", "prefill", None), ("decode dies", "decode", None),
                                ("transfers fail", "prefill", ("--fault", "0:kv-fail=on"))]:
        engines = {role: [engine(lab, role, *(fault if fault and role == broken and not n else ())) for n in range(2)]
                   for role in ("prefill", "decode")}
        url = "http://127.0.0.1:{}".format
        process = start(lab, [(url(one.port), one.bootstrap) for one in engines["prefill"]],
                        [url(one.port) for one in engines["decode"]])
        statuses, lock = [], threading.Lock()

        def client(number):
            body = {"text": f"{number} " + "word " * 1500, "sampling_params": {"max_new_tokens": 32},
                    "stream": number % 2 == 0}
            got = ask(process.port, body)
            with lock:
                statuses.append(got)

        threads = [threading.Thread(target=client, args=(n,)) for n in range(IN_FLIGHT)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        began = time.perf_counter()
        if not fault:
            lab.bench.stop(engines[broken][0])
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        time.sleep(SETTLED)
        left = sum(sum(load["num_running_reqs"] + load["num_waiting_reqs"] + sum(load["queues"].values())
                       for load in call(one.port, "GET", "/v1/loads")["loads"])
                   for role in engines for one in engines[role] if one.child.poll() is None)
        rows = call(process.port, "GET", "/workers")["workers"]
        leases = sum(row["load"] for row in rows)
        other = "decode" if broken == "prefill" else "prefill"
        blamed = sum(row["circuit_breaker"] != "closed" for row in rows if row["worker_type"] == other)
        fine = ("200", CUT) if broken == "decode" else ("200",)
        odd = [status for status in statuses if status not in fine and not status.startswith(f"502 {broken}")]
        note(f"pairs {name}: {dict(collections.Counter(statuses))}, {took:.1f} s")
        figures += [(f"{name}: answered with success, of {IN_FLIGHT}", float(statuses.count("200")), "", None),
                    (f"{name}: answered with anything else than success or 502 of that leg", float(len(odd)), "", 0),
                    (f"{name}: without an answer", float(IN_FLIGHT - len(statuses)), "", 0),
                    (f"{name}: requests left on workers after {SETTLED:g} s", float(left), "", 0),
                    (f"{name}: leases left", float(leases), "", 0),
                    (f"{name}: breakers of the other leg that are not closed", float(blamed), "", 0)]
        for one in [process, *(one for role in engines for one in engines[role] if one.child.poll() is None)]:
            lab.bench.stop(one)
    return figures


def ask(port, body):
    """The status of a request and, unless it succeeded in full, its code or how it ended."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request("POST", "/generate", json.dumps(body), HEADERS)
        answer = link.getresponse()
        text = answer.read()
        if answer.status == 200:
            whole = text.rstrip().endswith(b"[DONE]" if body["stream"] else b"}") and b'"abort"' not in text
            return "200" if whole else "200 with an error inside"
        return f"{answer.status} {answer.getheader('x-router-error-code') or text[:100]}"
    except http.client.IncompleteRead as cut:
        return CUT if b"output_ids" in cut.partial else f"200 cut: {cut.partial[:200]!r}"
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {error!r}"
    finally:
        link.close()
