"""Wall times of the main job, from the commands as a user types them."""

import subprocess
import sys
import tempfile
from pathlib import Path

from attnsvm.sweeps.aggregate import load
from benchmarks._measure import print_head, print_row, seconds

SWEEPS = ("rank_vs_d", "correlation_vs_d")
BIN = Path(sys.executable).parent


def main() -> None:
    """Print the table."""
    print_head("what", "measured")
    print_row("`attnsvm --help`", f"{seconds_of('--help'):.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        for name in SWEEPS:
            took = seconds_of(f"sweep={name}", "hydra/launcher=joblib", cwd=folder)
            drawn = int(load(Path(folder, "multirun", name)).runs["drawn"].sum())
            print_row(f"`attnsvm sweep={name} hydra/launcher=joblib`", f"{took:.0f} s")
            print_row("... instances drawn, of them per second", f"{drawn}, {drawn / took:.0f}")


def seconds_of(*arguments: str, cwd: str | None = None) -> float:
    """Return the wall time of `attnsvm arguments`, seconds."""
    command, quiet = [str(BIN / "attnsvm"), *arguments], subprocess.DEVNULL
    return seconds(lambda: subprocess.run(command, cwd=cwd, stdout=quiet, check=True))[0]
