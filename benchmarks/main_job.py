"""Wall times of the main job, from the commands as a user types them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from attnsvm.record import read
from attnsvm.sweeps.aggregate import load

SWEEPS = ("rank_vs_d", "correlation_vs_d")
BIN = Path(sys.executable).parent


def main() -> None:
    """Print the table of the README."""
    print("| what | measured |")
    print("|---|---|")
    _, seconds = timed("--help")
    print(f"| `attnsvm --help` | {seconds:.2f} s |")
    with tempfile.TemporaryDirectory() as folder:
        for name in SWEEPS:
            _, seconds = timed(f"sweep={name}", "hydra/launcher=joblib", cwd=folder)
            runs = load(Path(folder, "multirun", name)).runs
            drawn = int(runs["drawn"].sum())
            print(f"| `attnsvm sweep={name} hydra/launcher=joblib` | {seconds:.0f} s |")
            print(f"| ... instances drawn, of them per second | {drawn}, {drawn / seconds:.0f} |")
        frobenius, nuclear = solver_times(Path(folder, "multirun/rank_vs_d"))
        print(f"| Frobenius SVM, mean over `rank_vs_d` | {1e3 * frobenius:.2f} ms an instance |")
        print(f"| nuclear SVM, mean over `rank_vs_d` | {1e3 * nuclear:.2f} ms an instance |")


def timed(*arguments: str, cwd: str | None = None) -> tuple[str, float]:
    """Return the output of `attnsvm arguments` and its wall time in seconds."""
    begin = time.perf_counter()
    done = subprocess.run(
        [str(BIN / "attnsvm"), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout, time.perf_counter() - begin


def solver_times(sweep: Path) -> tuple[float, float]:
    """Return seconds an instance that each solver took on the instances of a sweep's runs."""
    from attnsvm import solve_svm

    totals, instances = {"frobenius": 0.0, "nuclear": 0.0}, 0
    for name in load(sweep).runs["run"]:
        stored = read(sweep / name)[0].solutions
        instances += len(stored["X"])
        for norm in totals:
            solution = solve_svm(stored["X"], stored["Z"], stored["selected"], norm=norm)
            totals[norm] += solution.solve_time_s
    return totals["frobenius"] / instances, totals["nuclear"] / instances


if __name__ == "__main__":
    main()
