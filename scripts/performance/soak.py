"""A million different prompts through our router with a bounded index: does memory stay within the bound?"""

import os

from load import answer_part, wrk
from report import Check, note
from subjects import Workers

PROMPTS, LENGTH = 1_000_000, 4096
WORKERS, TREE_CHARS = 8, 10_000_000
SLICE = 5
# Resident megabytes that are allowed beside twice the bound of all trees together.
BASE_MB = 100


def section(lab):
    """Not among the sections that run by themselves, as it takes a minute or more: (rows, checks)."""
    workers = Workers(lab.bench, lab.options.simworker, WORKERS)
    ours = lab.subjects[0]
    process = ours.start(lab.bench, workers, "cache_aware", extra=["--max-tree-size", str(TREE_CHARS)])
    environment = {"KIND": "own", "LENGTH": str(LENGTH), "MODEL": workers.model, "ANSWER": answer_part()}
    sent, most, errors, rows = 0, 0.0, 0, []
    while sent < PROMPTS:
        used = process.cpu_seconds()
        salt = str(1 + len(rows) + os.getpid())
        run = wrk(process.port, lab.bench.load_cpu, SLICE, lab.options.connections, {**environment, "SALT": salt})
        used = process.cpu_seconds() - used
        sent, errors, most = sent + run["answers"], errors + run["errors"], max(most, process.resident_mb())
        rows.append({"prompts": sent, "CPU us/request": f"{1e6 * used / run['answers']:.1f}",
                     "p99 ms": f"{run['p99_us'] / 1000:.2f}", "resident MB": f"{process.resident_mb():.0f}"})
        note(f"soak {sent:,} of {PROMPTS:,} prompts, {process.resident_mb():.0f} MB")
    bound_mb = WORKERS * TREE_CHARS / 1e6
    return rows, [Check("soak, resident memory", most, BASE_MB + 2 * bound_mb, "MB"),
                  Check("soak, failed requests", errors, 0, "")]
