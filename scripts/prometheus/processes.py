"""Programs of a check: started, watched, and ended by their pid."""

import ctypes
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error

LIBC = ctypes.CDLL(None)
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
PATIENCE = 60


def free_ports(count):
    """Ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def die_with_parent():
    """So that nothing outlives this script, however that ends."""
    LIBC.prctl(SET_DEATH_SIGNAL, signal.SIGKILL)


class Programs:
    """Owns every program; leaving it ends them."""

    def __init__(self):
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _, child, _ in reversed(self.running):
            child.terminate()
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def start(self, name, command, folder):
        """Starts a program; gives the file that it writes to."""
        log = pathlib.Path(folder) / f"{name}-{len(self.running)}.log"
        with open(log, "wb") as out:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=die_with_parent)
        self.running.append((name, child, log))
        return log

    def wait_for(self, what, done):
        """Asks until the answer is true; a connection that fails is no answer yet."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for name, child, log in self.running:
                if child.poll() is not None:
                    raise SystemExit(f"{name} ended with {child.returncode}: {log.read_text()[-800:]}")
            try:
                if done():
                    return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.1)
        raise SystemExit(f"gave up waiting for {what}")
