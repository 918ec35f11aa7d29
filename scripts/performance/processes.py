"""Programs under measurement: starting, watching and ending them, and the noise of everything else."""

import ctypes
import os
import random
import signal
import socket
import subprocess
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None)
SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class LabError(Exception):
    """A program that cannot be measured, with the end of what it said."""


def free_ports(count=1):
    """The first of `count` free ports in a row, below those that the system gives to clients."""
    for _ in range(200):
        base = random.randrange(20000, 32000)
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise LabError("no free ports")


class Process:
    """A started program, known by its pid."""

    def __init__(self, name, command, port, cpus, log):
        self.name, self.port, self.log = name, port, log

        def prepare():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            LIBC.prctl(SET_DEATH_SIGNAL, signal.SIGKILL)  # it does not outlive this script, however that ends
            os.sched_setaffinity(0, cpus)

        self.started = time.perf_counter()
        with open(log, "wb") as out:
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          preexec_fn=prepare, start_new_session=True)

    def cpu_seconds(self):
        """User and system time so far."""
        with open(f"/proc/{self.child.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def resident_mb(self):
        """Resident memory in MB of 1024 KB."""
        with open(f"/proc/{self.child.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

    def assert_alive(self):
        """Complains with the last lines of its output when it has ended."""
        if self.child.poll() is not None:
            raise self.complaint(f"ended with {self.child.returncode}")

    def complaint(self, what):
        """An error about this program."""
        with open(self.log, "rb") as log:
            return LabError(f"{self.name} {what}: {log.read()[-600:].decode(errors='replace').strip()}")

    def stop(self):
        """Ends it. Nothing that matters is in flight, and some programs linger for seconds when asked politely."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()


class Bench:
    """Owns every process and file of a run; leaving it ends and removes them."""

    def __init__(self, noise):
        self.noise = noise
        self.cpus = os.sched_getaffinity(0)
        if len(self.cpus) < 2:
            raise LabError("two CPUs are needed: one for the routers, one for the load")
        self.load_cpu, self.router_cpu = sorted(self.cpus)[:2]
        self.processes, self.logs = [], 0

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="compare-")
        os.sched_setaffinity(0, {self.load_cpu})  # our own clients share the CPU of the workers and of wrk
        return self

    def __exit__(self, *_):
        for process in list(self.processes):
            self.stop(process)
        self.folder.cleanup()

    def start(self, name, command, port, cpu=None):
        """Starts a program, pinned to `cpu` if given, else free to run on every CPU."""
        self.logs += 1
        log = os.path.join(self.folder.name, f"{self.logs}.log")
        process = Process(name, command, port, self.cpus if cpu is None else {cpu}, log)
        self.processes.append(process)
        return process

    def stop(self, process):
        """Ends one program."""
        process.stop()
        self.processes.remove(process)

    def ours(self):
        """CPU seconds used so far by the programs, by ended children and by this script."""
        mine = os.times()
        return sum(process.cpu_seconds() for process in self.processes) + sum(mine[:4])

    def quiet(self, measure, attempts=3):
        """Calls `measure` until others used little CPU meanwhile: the quietest result, and the share they used."""
        best = None
        for _ in range(attempts):
            busy, ours, began = busy_seconds(), self.ours(), time.perf_counter()
            result = measure()
            spent = time.perf_counter() - began
            others = max(0.0, (busy_seconds() - busy) - (self.ours() - ours)) / spent
            if best is None or others < best[1]:
                best = (result, others)
            if others <= self.noise:
                break
        return best


def busy_seconds():
    """What all CPUs did so far, interrupts left out: those of the loopback are caused by the measurement."""
    with open("/proc/stat") as stat:
        user, nice, system, _idle, _wait, _irq, _soft, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + steal) / TICK
