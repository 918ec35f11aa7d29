"""Clients: wrk for cost, and blocking sockets with exact clocks where single answers are timed."""

import http.client
import json
import os
import select
import socket
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REQUEST = ("POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
           "Content-Length: {length}\r\n\r\n{body}")
PROMPT = "the quick brown fox jumps over the lazy dog while seventeen patient engineers watch the counters go up and up "


def answer_part(tokens=None):
    """What follows the messages in a body: a stream of so many tokens, or a whole answer."""
    return f',"temperature":0.7,"max_tokens":{tokens or 16},"stream":{"true" if tokens else "false"}'


def chat(model, tokens=None):
    """The bytes of a small chat request; with `tokens` it asks for a stream of so many."""
    body = (f'{{"model":"{model}","messages":[{{"role":"user","content":"{PROMPT}"}}]' + answer_part(tokens) + "}")
    return REQUEST.format(length=len(body), body=body).encode()


def connect(port, receive_buffer=None):
    """A connection to a port of this machine."""
    sock = socket.socket()
    if receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(30)
    sock.connect(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def await_answer(process, model, patience=40):
    """Asks until a request succeeds: the time of that, or, without `model`, the name of the worker's model."""
    deadline = time.perf_counter() + patience
    while time.perf_counter() < deadline:
        process.assert_alive()
        try:
            link = http.client.HTTPConnection("127.0.0.1", process.port, timeout=5)
            if model is None:
                link.request("GET", "/v1/models")
            else:
                link.request("POST", "/v1/chat/completions", chat(model).split(b"\r\n\r\n", 1)[1],
                             {"content-type": "application/json"})
            answer = link.getresponse()
            body = answer.read()
            link.close()
            if answer.status == 200:
                return time.perf_counter() if model else json.loads(body)["data"][0]["id"]
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.001)
    raise process.complaint(f"gave no good answer within {patience} s")


def wrk(port, cpu, seconds, connections, environment):
    """Drives a port with wrk and returns what `bodies.lua` counted."""
    command = ["taskset", "-c", str(cpu), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s",
               "-s", os.path.join(HERE, "bodies.lua"), f"http://127.0.0.1:{port}"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))[7:])


def is_whole(answer):
    """Whether the bytes are a complete answer."""
    head, blank, body = answer.partition(b"\r\n\r\n")
    if not blank:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line[15:])
    return body.endswith(b"0\r\n\r\n")


def open_loop(port, request, rate, seconds, links=4):
    """Sends at intended times whatever the answers do: milliseconds from intended send to last byte, one a request."""
    free, waiting, took = [connect(port) for _ in range(links)], {}, []
    every, total = 1 / rate, int(rate * seconds)
    begin, sent = time.perf_counter() + 0.02, 0
    while sent < total or waiting:
        due = begin + sent * every if sent < total and free else None
        if due is not None and time.perf_counter() >= due - 0.00015:
            while time.perf_counter() < due:
                pass
            link = free.pop(0)
            link.sendall(request)
            waiting[link] = (due, b"")
            sent += 1
            continue
        rest = None if due is None else max(0.0, due - time.perf_counter() - 0.00012)
        for link in select.select(list(waiting), [], [], rest)[0]:
            intended, answer = waiting.pop(link)
            piece = link.recv(65536)
            now = time.perf_counter()
            answer += piece
            if not piece:
                raise OSError("a connection broke under the open loop")
            if is_whole(answer):
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise OSError(answer[:60].decode(errors="replace"))
                took.append(1000 * (now - intended))
                free.append(link)
            else:
                waiting[link] = (intended, answer)
    for link in free:
        link.close()
    return took


def read_stream(link, request):
    """One stream on a kept-alive connection: (ms to the first byte of the body, gaps in ms, events).

    Events that arrive together have gaps of zero between them, so what is held back shows as one long gap."""
    began = time.perf_counter()
    link.sendall(request)
    first, last, gaps, events, tail, head = None, None, [], 0, b"", b""
    while True:
        piece = link.recv(65536)
        now = time.perf_counter()
        if not piece:
            raise OSError("the stream broke")
        if first is None:
            head += piece
            _, blank, piece = head.partition(b"\r\n\r\n")
            if not blank or not piece:
                continue
            if not head.startswith(b"HTTP/1.1 200"):
                raise OSError(head[:60].decode(errors="replace"))
            first = now
        fresh = (tail + piece).count(b"data: ") - tail.count(b"data: ")
        if fresh:
            gaps += [0.0] * (fresh - 1) + ([1000 * (now - last)] if last else [])
            last, events = now, events + fresh
        tail = (tail + piece)[-8:]
        if tail.endswith(b"\n0\r\n\r\n"):
            return 1000 * (first - began), gaps, events
