"""What the client talks to: the router, simworkers, and a worker that says exactly what a test wants."""

import http.server
import json
import socket
import subprocess
import threading


class Process:
    """A binary that prints one line of JSON when it listens. It ends with its standard input, or is ended by its id."""

    def __init__(self, *command):
        self.child = subprocess.Popen(
            [*command, "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{command[0]} did not start: exit code {self.child.wait()}")
        self.said = json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.kill()
        self.child.wait()


class Router(Process):
    def __init__(self, binaries, workers, *flags):
        super().__init__(
            f"{binaries}/router",
            *("--host", "127.0.0.1", "--port", "0", "--prometheus-host", "127.0.0.1", "--prometheus-port", "0"),
            *("--worker-urls", *workers),
            *flags,
        )

    @property
    def base_url(self):
        return self.said["listening"] + "/v1"


class Simworker(Process):
    def __init__(self, binaries, *flags):
        super().__init__(f"{binaries}/simworker", "--port", "0", *flags)

    @property
    def urls(self):
        listening = self.said["listening"]
        return listening if isinstance(listening, list) else [listening]


class Scripted:
    """A worker whose answers to POST are written by `script(handler, body)`; `model` is what it says it serves."""

    def __init__(self, script, model=None):
        self.seen = []
        worker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                known = {"/health": {}}
                if model is not None:
                    known["/v1/models"] = {"object": "list", "data": [{"id": model, "object": "model"}]}
                answer_json(self, 200 if self.path in known else 404, known.get(self.path, {}))

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                worker.seen.append((self.path, body))
                script(self, json.loads(body))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def answer_json(handler, status, value, **headers):
    body = json.dumps(value).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    for name, text in headers.items():
        handler.send_header(name.replace("_", "-"), text)
    handler.end_headers()
    handler.wfile.write(body)


def answer_stream(handler, pieces, whole=True):
    """Each piece is one chunk; a stream that is not whole ends without its last chunk."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for piece in pieces:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.flush()
    if whole:
        handler.wfile.write(b"0\r\n\r\n")
    handler.close_connection = not whole


def dead_url():
    """Where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
