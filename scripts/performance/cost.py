"""CPU microseconds that a proxy needs for a request, under full load."""

import random
import statistics

from load import answer_part, wrk
from processes import LabError
from report import Check, note, spread

# kind: policy, what bodies.lua makes, tokens to stream
KINDS = {
    "small": ("round_robin", {"KIND": "same", "LENGTH": "300"}, None),
    "32k": ("cache_aware", {"KIND": "own", "LENGTH": "32768"}, None),
    "shared8k": ("cache_aware", {"KIND": "shared", "LENGTH": "200"}, None),
    "stream100": ("round_robin", {"KIND": "same", "LENGTH": "300"}, 100),
}
# kind, the one we are compared with, largest ratio
TARGETS = [("small", "nginx", 2.0), ("small", "sglang-router", 0.4), ("32k", "sglang-router", 0.45),
           ("stream100", "nginx", 1.5)]
WARM_UP = 1


def measure(lab, workers, subject, kind, salt):
    """One run of one kind on a freshly started subject."""
    policy, bodies, tokens = KINDS[kind]
    bench, options = lab.bench, lab.options
    environment = {**bodies, "MODEL": workers.model, "ANSWER": answer_part(tokens)}
    process = subject.start(bench, workers, policy)

    def loaded(seconds, salt):
        return wrk(process.port, bench.load_cpu, seconds, options.connections, {**environment, "SALT": str(salt)})

    def timed():
        before = process.cpu_seconds()
        run = loaded(options.seconds, next(salt))
        used = process.cpu_seconds() - before
        if not run["answers"]:
            raise LabError(f"{subject.name} answered nothing ({kind})")
        run.update(cpu_us=1e6 * used / run["answers"], per_second=1e6 * run["answers"] / run["microseconds"],
                   resident_mb=process.resident_mb())
        return run

    try:
        loaded(WARM_UP, next(salt))
        run, run["others"] = bench.quiet(timed)
    finally:
        bench.stop(process)
    return run


def section(lab):
    """All kinds and subjects, in a new order each repeat: (rows, checks)."""
    workers = lab.workers()
    runs = {(kind, subject.name): [] for kind in KINDS for subject in lab.subjects}
    salt = iter(range(1, 1_000_000))
    for repeat in range(lab.options.repeats):
        for kind in KINDS:
            for subject in random.Random(repeat).sample(lab.subjects, len(lab.subjects)):
                run = measure(lab, workers, subject, kind, salt)
                runs[kind, subject.name].append(run)
                note(f"cost {repeat + 1}/{lab.options.repeats} {kind:9} {subject.name:13} {run['cpu_us']:7.1f} us, "
                     f"others used {run['others']:.2f} of a CPU")
    rows = [row(kind, name, of, runs.get((kind, "nginx"))) for (kind, name), of in runs.items()]
    return rows, judge(runs)


def row(kind, name, of, nginx):
    """A line of the table."""
    return {
        "kind": kind, "program": name, "CPU us/request": spread(run["cpu_us"] for run in of),
        "x nginx": f"{median(of) / median(nginx):.2f}" if nginx else "-",
        "requests/s": f"{statistics.median(run['per_second'] for run in of):.0f}",
        "p99 ms": f"{statistics.median(run['p99_us'] for run in of) / 1000:.2f}",
        "bytes/answer": f"{of[-1]['bytes'] / of[-1]['answers']:.0f}",
        "memory MB": f"{max(run['resident_mb'] for run in of):.0f}",
        "errors": sum(run["errors"] for run in of), "others": f"{max(run['others'] for run in of):.2f}", "runs": of,
    }


def median(of):
    """Median CPU of some runs."""
    return statistics.median(run["cpu_us"] for run in of)


def judge(runs):
    """The targets, each a ratio of medians, and that no request of ours failed."""
    checks = []
    for kind, other, limit in TARGETS:
        with_other = runs.get((kind, other))
        value = median(runs[kind, "ours"]) / median(with_other) if with_other else None
        checks.append(Check(f"cost, {kind}, against {other}", value, limit, "x"))
    failed = sum(run["errors"] for (_, name), of in runs.items() if name == "ours" for run in of)
    return [*checks, Check("cost, failed requests", failed, 0, "")]
