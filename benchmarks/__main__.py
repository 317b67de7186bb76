"""`python -m benchmarks [NAME[.LIST] ...] [seconds=S] [to=FILE]`: run benchmarks, or all of them.

A module has its works in WORKS, some further ones in LIST, as in `svm.large`. Each work is
measured for about `seconds`; the rows go to the CSV file FILE, by default that of docs/speed.md
where all are run.
"""

import importlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pandas as pd

from attnsvm import __version__
from benchmarks._measure import measure

NAMES = "svm", "least_norm", "training", "depth", "attention", "neighbours", "main_job"
PAGE = Path("docs/tables/speed.csv")


def machine() -> str:
    """Return the processor, and the versions that matter."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    packages = f"attnsvm {__version__}, torch {version('torch')}, cvxpy {version('cvxpy')}"
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores; {packages}"


def main(words: list[str]) -> None:
    """Run the benchmarks that the words name."""
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    names = [word for word in words if "=" not in word]
    to, rows = fields.get("to", "" if names else PAGE), []
    for name in names or NAMES:
        module, _, further = name.partition(".")
        if module not in NAMES:
            sys.exit(f"{module}: must be {' | '.join(NAMES)}")
        works = importlib.import_module(f"benchmarks.{module}")
        for work in getattr(works, further.upper() or "WORKS"):
            for row in measure(work, float(fields.get("seconds", 1))):
                rows.append(row)
                cells = (f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.values())
                print(" | ".join(cells), flush=True)
            if to:
                table = pd.DataFrame(rows).to_csv(index=False, float_format="%.4g")
                Path(to).write_text(f"# {machine()}\n{table}")


if __name__ == "__main__":
    main(sys.argv[1:])
