"""Solvers on difficult instances with exact truth: `benchopt run benchmarks/nasty`, as a table.

Right: the norm of the stated W is within 1e-6, or 64 eps kappa. Silent error: it is not, or the
instance is infeasible. Without a statement an infeasible instance is right, another has no answer.
"""

import subprocess
import sys

import pandas as pd

from benchmarks._measure import print_head, print_row
from benchmarks.nasty.benchmark_utils import CLASSES, FOLDER, WORDS


def main() -> None:
    """Run the solvers that are installed, and print one table per norm."""
    words = ["run", str(FOLDER.parent), "--no-display", "--output", "trust"]
    subprocess.run([sys.executable, "-m", "benchopt", *words], check=True)
    outputs = (FOLDER.parent / "outputs").glob("trust*.parquet")
    found = pd.read_parquet(max(outputs, key=lambda path: path.stat().st_mtime))
    for norm, table in found.groupby("p_obj_norm"):
        print(f"\n### {norm}: {' / '.join(WORDS)}\n")
        print_head("method", *CLASSES, f"median gap, {CLASSES[1]}", "silent errors")
        for solver, rows in table.groupby("solver_name", sort=False):
            of = rows.set_index("p_dataset_conditioning")
            counts = of[[f"objective_{word}" for word in WORDS]]
            cells = [" / ".join(map(str, counts.loc[name])) for name in CLASSES]
            share = counts["objective_silent error"].sum() / counts.to_numpy().sum()
            print_row(solver, *cells, f"{of['objective_gap'][CLASSES[1]]:.0e}", f"{share:.1%}")
