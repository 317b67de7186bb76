"""`python -m sweeps.overview`: every experiment at full size, and one page with all the figures.

What is on record already is not computed again, so that a second call only draws.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweeps.page import Markup

EXPERIMENTS = (
    "trajectories",
    "rank_vs_d",
    "correlation_vs_d",
    "local_convergence",
    "convergence_types",
    "convergence_types_m",
    "phase_transition",
    "gradient_floor",
    "ridge_vs_path",
    "regularization_path",
    "token_count_vs_lambda",
    "sequence",
    "real_tokens",
)
"""The sweeps of `conf/sweep` in the order of the page."""


@dataclass(frozen=True)
class Outcome:
    """How the run of one experiment ended."""

    name: str
    exit_code: int
    wall_s: float


def run_experiment(name: str, directory: Path, overrides: Sequence[str]) -> Outcome:
    """Run the sweep `name` into `directory`/name in a process of its own; its log stays visible."""
    command = [sys.executable, "-m", "attnsvm", f"sweep={name}"]
    command += [f"hydra.sweep.dir={directory / name}", *overrides]
    begin = time.perf_counter()
    code = subprocess.run(command, check=False).returncode
    return Outcome(name, code, time.perf_counter() - begin)


def write_overview(directory: Path, outcomes: Sequence[Outcome]) -> Path:
    """Write `directory`/overview.html with every figure of every experiment on disk.

    Returns
    -------
    Path
        The page.
    """
    from attnsvm.storage import write_atomically
    from sweeps import page

    sections = [part for outcome in outcomes for part in _section(directory, outcome)]
    contents = page.element(
        "ul",
        *(page.element("li", page.element("a", o.name, href=f"#{o.name}-sweep")) for o in outcomes),
    )
    total = page.seconds(sum(outcome.wall_s for outcome in outcomes))
    head = [page.element("h1", "Attention as a support vector machine: all experiments")]
    intro = f"{len(outcomes)} experiments, {total} in this call."
    text = page.document(
        "attnsvm: all experiments",
        [*head, page.element("p", intro, class_="lead"), contents, *sections],
    )
    target = directory / "overview.html"
    write_atomically(target, text.encode())
    return target


def _section(directory: Path, outcome: Outcome) -> list[Markup]:
    """Return the part of the page on one experiment; what is wrong with it stands there too."""
    from sweeps import page
    from sweeps.aggregate import load
    from sweeps.figures import figure_module
    from sweeps.report import figure_section, lost_runs, write_report

    folder = directory / outcome.name
    parts = [
        page.element("h2", outcome.name, id=f"{outcome.name}-sweep"),
        page.element("p", figure_module(outcome.name).QUESTION, class_="lead"),
    ]
    try:
        frames = load(folder)
    except FileNotFoundError as error:
        return [*parts, page.element("p", str(error), class_="warning")]
    files = write_report(frames)
    if lost := lost_runs(frames):
        parts.append(page.element("p", lost, class_="warning"))
    for name, caption in files.captions.items():
        kinds = {
            kind: (folder / "figures" / f"{name}.{kind}").read_bytes()
            for kind in ("png", "pdf", "gif")
            if folder / "figures" / f"{name}.{kind}" in files.figures
        }
        parts.append(figure_section(name, caption, kinds, folder=f"{outcome.name}/"))
    link = page.element("a", "full report", href=f"{outcome.name}/report.html")
    command = f"attnsvm sweep={outcome.name}"
    wall = f"{page.seconds(outcome.wall_s)} in this call. "
    return [*parts, page.element("p", wall, page.element("code", command), ", ", link)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiments and write the page.

    Returns
    -------
    int
        0 if every experiment is complete, 1 if one is not: the page says which.
    """
    parser = argparse.ArgumentParser(
        prog="python -m sweeps.overview", description="Run every experiment, draw all on one page."
    )
    parser.add_argument("--directory", type=Path, default=Path("multirun"), help="where runs lie")
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, metavar="NAME", help="these only")
    parser.add_argument("overrides", nargs="*", help="for all of them, e.g. trials=20")
    chosen = parser.parse_args(argv)
    names = chosen.only or EXPERIMENTS
    outcomes = [run_experiment(name, chosen.directory, chosen.overrides) for name in names]
    chosen.directory.mkdir(parents=True, exist_ok=True)
    page = write_overview(chosen.directory, outcomes)
    for outcome in outcomes:
        state = "complete" if outcome.exit_code == 0 else f"exit code {outcome.exit_code}"
        sys.stdout.write(f"{outcome.name:24} {outcome.wall_s:7.1f} s  {state}\n")
    sys.stdout.write(f"overview {page}\n")
    return int(any(outcome.exit_code for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
