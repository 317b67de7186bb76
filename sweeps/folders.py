"""Which runs a folder consists of: those of its plan, or those on record in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnsvm.record import (
    PLAN_FILE,
    RUN_FILE,
    CorruptRecordError,
    Plan,
    kind_of,
    read_plan,
    recorded,
    shortened,
)


@dataclass(frozen=True)
class Content:
    """The runs of a folder.

    Attributes
    ----------
    directory : Path
        The folder.
    runs : list of Path
        The folders of its runs.
    plan : Plan
        Its plan, an empty one if it has none.
    damage : str
        What is wrong with the plan, "" if nothing is.
    elsewhere : int
        Number of records in the folder that are not in the plan.
    """

    directory: Path
    runs: list[Path]
    plan: Plan
    damage: str
    elsewhere: int

    @property
    def plan_file(self) -> Path:
        """The file of the plan."""
        return self.directory / PLAN_FILE


def content(directory: Path) -> Content:
    """Return the runs of a folder.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist or holds neither a plan nor a record.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such folder")
    plan, damage = Plan(), ""
    try:
        plan = read_plan(directory)
    except CorruptRecordError as error:
        damage = shortened(error)
    runs = _runs(directory, plan)
    if not runs and not damage:
        raise FileNotFoundError(f"{directory}: holds no record of a run (no */{RUN_FILE})")
    return Content(directory, runs, plan, damage, len(set(recorded(directory)) - set(runs)))


def _runs(directory: Path, plan: Plan) -> list[Path]:
    if kind_of(directory / RUN_FILE) != "nothing":
        return [directory.resolve()]  # "." has no name
    return [directory / name for name in plan.runs] or recorded(directory)


def each_once(contents: Sequence[Content]) -> dict[Path, Plan]:
    """Return the folder of every run with its plan, once if a folder is given twice."""
    found: dict[Path, tuple[Path, Plan]] = {}
    for one in contents:
        place = one.runs[0].parent.resolve() if one.runs else one.directory
        for run in one.runs:
            found.setdefault(place / run.name, (run, one.plan))
    return dict(found.values())


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the last words of every path, as many as tell all apart."""
    names: list[str] = []
    for depth in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        words = ("/".join(path.parts[-depth:]) for path in paths)
        names = [word.encode(errors="replace").decode() for word in words]  # need not be UTF-8
        if len(set(names)) == len(names):
            break
    return names
