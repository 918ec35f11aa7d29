#!/usr/bin/env python3
"""Whether `loadgen tune` finds a threshold that is known, and leaves alone what cannot matter.

Usage: scripts/performance/tune.py LOADGEN [SEEDS]

LOADGEN is the binary (a release build), SEEDS how many tunings there are of each kind, 10 by default. The known best is
the one of a grid of 17 thresholds with 400 seeds each: with 50, chance decides between those beside the best. A tuning is
right when its recommendation is at most one step of the grid away from it. Where the threshold cannot matter, because no
prompt has a prefix of another (`nothing shared`) or all share far more than any threshold that is tried (`far below`), it
is right when it says that things should be left as they are.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

SCENARIO = Path(__file__).with_name("tune.toml")
OPTION = "router.options.cache_aware.cache_threshold"
STEP = 0.05
GRID = [round(place * STEP, 2) for place in range(2, 19)]
GRID_SEEDS = 400
# Far from the seeds of the grid and from one another.
FIRST_SEEDS = 1_000

ENOUGH = 0.9


def loadgen(binary, out, *args):
    subprocess.run([binary, *args, "--out", out, "--quiet"], check=True)


def known_best(binary, out):
    values = ",".join(map(str, GRID))
    loadgen(binary, out, "sweep", SCENARIO, "--key", f"{OPTION}={values}", "--seeds", str(GRID_SEEDS))
    goodput = defaultdict(list)
    for run in json.loads((out / "summary.json").read_text())["runs"]:
        good = run["slo_attainment"] * run["requests"] / run["makespan_s"]
        goodput[run["params"]["cache_threshold"]].append(good)
    for threshold, figures in goodput.items():
        error = statistics.stdev(figures) / len(figures) ** 0.5
        print(f"  threshold {threshold}: goodput {statistics.mean(figures):.3f} ± {error:.3f} requests/s")
    return max(goodput, key=lambda threshold: statistics.mean(goodput[threshold]))


def tuned(binary, out, place, objective, space, *changes):
    sets = [word for change in (f"seed={(place + 1) * FIRST_SEEDS}", *changes) for word in ("--set", change)]
    loadgen(binary, out, "tune", SCENARIO, "--objective", objective, "--space", space, *sets)
    return json.loads((out / "tune.json").read_text())


def main():
    binary, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    right = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        print(f"a grid with {GRID_SEEDS} seeds")
        best = known_best(binary, out / "grid")
        print(f"  best: {best}")

        print("tunings from a present threshold of 0.9")
        space, right["near the known best"] = "cache_threshold=0.1..0.9", 0
        for place in range(count):
            found = tuned(binary, out / "known", place, "goodput", space)
            threshold = found["best"]["params"]["cache_threshold"]
            near = found["verdict"] == "change" and abs(threshold - best) <= STEP + 1e-9
            right["near the known best"] += near
            print(f"  {found['verdict']} to {threshold}, gain {found['gain']:+.1%}{'' if near else '  WRONG'}")

        for name, objective, ratios, space in (
            ("nothing shared", "goodput", "[0.0, 0.0]", "cache_threshold=0.1..0.9"),
            ("far below", "ttft_p90", "[0.85, 0.95]", "cache_threshold=0.1..0.7"),
        ):
            print(f"tunings of what cannot matter: {name}")
            right[f"left alone ({name})"] = 0
            for place in range(count):
                changes = (f"workload.match_ratio.uniform={ratios}", f"{OPTION}=0.3")
                found = tuned(binary, out / "unmoved", place, objective, space, *changes)
                left = found["verdict"] != "change"
                right[f"left alone ({name})"] += left
                print(f"  {found['verdict']}, gain {found['gain']:+.1%} {found['gain_interval']}{'' if left else '  WRONG'}")
    for what, times in right.items():
        print(f"{what}: {times} of {count}")
    sys.exit(0 if all(times >= ENOUGH * count for times in right.values()) else 1)


if __name__ == "__main__":
    main()
