"""What every sweep has, whichever sweeper runs it: a folder of its own, and a report at its end."""

from __future__ import annotations

import itertools
import logging
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from attnsvm.cli.output import outcome
from attnsvm.cli.user_sweeps import config_folders

log = logging.getLogger(__name__)

FAILURES_LISTED = 20
"""Largest number of runs without a record that the summary lists; the report lists all."""

ADHOC = Path("multirun/adhoc")
"""The folder in conf/config.yaml; each plan without a name gets a folder of its own beside it."""


def sweep_folder(composed: DictConfig, digest: Callable[[], str]) -> Path:
    """Return the folder of a sweep: multirun/NAME, or one of its own named by `digest`."""
    folder = Path(composed.hydra.sweep.dir)
    given = composed.hydra.overrides.hydra
    if folder != ADHOC or any(one.lstrip("+").startswith("hydra.sweep.dir=") for one in given):
        return folder
    if composed.sweep is not None:
        return ADHOC.with_name(str(composed.sweep))
    return ADHOC.with_name(f"{ADHOC.name}-{digest()}")


def close_sweep(folder: Path, cells: Collection[str]) -> str:
    """Write tables, figures and report; return what is not complete, "" if everything is.

    `cells` are the folder names of the runs of this command.
    """
    from attnsvm.sweeps.aggregate import load
    from attnsvm.sweeps.report import write_report

    try:
        frames = load(folder)
    except FileNotFoundError as error:  # someone removed the records meanwhile
        log.error("no report: %s", error)
        return _incomplete(folder, cells, {}, ())
    files = write_report(frames, config_folders(sys.argv[1:]))
    outcome.info("wrote %s", files.html)
    for path in (*files.figures, *files.tables):
        log.info("wrote %s", path)
    found = {row["run"]: row for row in frames.runs.to_dict("records")}
    return _incomplete(folder, cells, found, files.failed)


def _incomplete(
    folder: Path, cells: Collection[str], found: dict[Any, dict[Any, Any]], failed: Iterable[str]
) -> str:
    """Return which of the cells have no complete record, and which figures failed.

    `found` are the runs of the plan on disk, which another command may have replaced.
    """
    from attnsvm.record import one_line, run_state

    same_plan = found.keys() == set(cells)
    if not same_plan:
        log.warning("%s: the plan, and so the report, is not that of this command", folder)
    rows = {name: found.get(name) or vars(run_state(folder / name)) for name in cells}
    missing = {name: row for name, row in rows.items() if row["state"] != "done"}
    lines = [
        one_line(f"  {row['state']} {name}: {row['reason']} ({row.get('place') or '-'})")
        for name, row in itertools.islice(missing.items(), FAILURES_LISTED)
    ]
    lines += [one_line(f"  not drawn {failure}") for failure in failed]
    if not missing:
        return "\n".join([f"{folder}: all runs are done", *lines]) if lines else ""
    states = Counter(str(row["state"]) for row in missing.values())
    counts = ", ".join(f"{n} {state}" for state, n in states.most_common())
    listed = "the report lists all of them; " if same_plan else ""
    summary = f"{counts} of {len(rows)} runs; {listed}run the same command again to resume"
    return "\n".join([f"{folder}: {summary}", *lines])
