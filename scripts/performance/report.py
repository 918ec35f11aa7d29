"""Tables, targets and progress."""

import json
import statistics
import sys
from dataclasses import asdict, dataclass


@dataclass
class Check:
    """A target: `value` must not be above `limit`; None was not measured."""

    name: str
    value: float | None
    limit: float
    unit: str

    def verdict(self):
        """pass, MISS or not judged."""
        if self.value is None:
            return "not judged"
        return "pass" if self.value <= self.limit else "MISS"


def note(line):
    """Progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def spread(values, digits=1):
    """Median and range."""
    values = list(values)
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def table(title, rows):
    """Prints rows, all with the same keys; what is not a figure or a text is for the JSON file only."""
    keys = [key for key, value in rows[0].items() if not isinstance(value, list)]
    cells = [keys] + [[str(row[key]) for key in keys] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    print(f"\n{title}")
    for line in cells:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def targets(checks):
    """Prints the verdicts; whether none was missed."""
    rows = [{"verdict": check.verdict(), "target": check.name,
             "value": "-" if check.value is None else f"{check.value:.2f} {check.unit}".strip(),
             "at most": f"{check.limit:g} {check.unit}".strip()} for check in checks]
    table("targets", rows)
    return all(check.verdict() != "MISS" for check in checks)


def write_json(path, header, sections, checks):
    """Everything, for machines."""
    whole = {**header, "sections": sections, "targets": [{**asdict(c), "verdict": c.verdict()} for c in checks]}
    with open(path, "w") as out:
        json.dump(whole, out, indent=1)
        out.write("\n")
