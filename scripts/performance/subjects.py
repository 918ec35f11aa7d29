"""What is compared: our router, nginx and the released peers, all started the same way in front of the workers."""

import os
import shutil
import subprocess

from load import await_answer
from processes import free_ports

NGINX = """\
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log warn; worker_rlimit_nofile 16384;
events {{ worker_connections 8000; }}
http {{
  access_log off; client_max_body_size 1g; client_body_buffer_size 512k; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream workers {{ {servers} keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://workers; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


class Subject:
    """A proxy that can be started in front of workers; `argv` is None when it is not there."""

    def __init__(self, name, argv, version, takes_policy=True, level="warn"):
        self.name, self.argv, self.version, self.takes_policy, self.level = name, argv, version, takes_policy, level

    def start(self, bench, workers, policy, pinned=True, extra=()):
        """Starts it and waits until it has answered a request through a worker."""
        port = free_ports()
        command = [*self._command(bench, port, workers, policy), *extra]
        process = bench.start(self.name, command, port, bench.router_cpu if pinned else None)
        process.ready_ms = 1000 * (await_answer(process, workers.model) - process.started)
        return process

    def _command(self, bench, port, workers, policy):
        if not self.takes_policy:
            return [*self.argv, "-c", self._nginx_conf(bench, port, workers)]
        return [*self.argv, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *workers.urls(), "--policy",
                policy, "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_ports()), "--log-level",
                self.level]

    @staticmethod
    def _nginx_conf(bench, port, workers):
        folder = os.path.join(bench.folder.name, f"nginx-{port}")
        os.mkdir(folder)
        servers = " ".join(f"server 127.0.0.1:{at};" for at in workers.ports)
        with open(os.path.join(folder, "conf"), "w") as conf:
            conf.write(NGINX.format(folder=folder, port=port, servers=servers))
        return conf.name


class Workers:
    """Instant workers: one simworker process on several ports."""

    def __init__(self, bench, simworker, count, interval_ms=0):
        base = free_ports(count)
        self.ports = range(base, base + count)
        command = [simworker, "--instant", "--port", str(base), "--workers", str(count)]
        if interval_ms:
            command += ["--instant-interval-ms", str(interval_ms)]
        self.process = bench.start("simworker", command, base, bench.load_cpu)
        self.model = await_answer(self.process, None)

    def urls(self):
        """Their base URLs."""
        return [f"http://127.0.0.1:{port}" for port in self.ports]


def find(router, peers):
    """Every subject that is there, ours first, and what is said about the absent ones."""
    found = [Subject("ours", [router], said([router, "--version"]))]
    missing = []
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if nginx:
        found.append(Subject("nginx", [nginx], said([nginx, "-v"]), takes_policy=False))
    else:
        missing.append("nginx is not installed: left out, and no target that names it is judged")
    for name, argv, level in [("sglang-router", ["python", "-m", "sglang_router.launch_router"], "warn"),
                              ("smg", ["smg", "launch"], "warn"), ("vllm-router", ["vllm-router"], "warning")]:
        program = os.path.join(peers, name, "bin", argv[0]) if peers else ""
        if os.access(program, os.X_OK):
            python = os.path.join(peers, name, "bin", "python")
            code = f"import importlib.metadata as m; print({name!r}, m.version({name!r}))"
            found.append(Subject(name, [os.path.abspath(program), *argv[1:]], said([python, "-c", code]), level=level))
        else:
            missing.append(f"{name}: " + (f"no {program}" if peers else "no --peers folder given") + ", left out")
    return found, missing


def said(command):
    """What a program says in one line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return ((done.stdout + done.stderr).strip().splitlines() or ["unknown version"])[-1]
