"""What a run leaves on disk: its schema, written so that it is there whole or not at all.

A run's folder holds `trials.parquet` (a row for every instance), `history.parquet` (long: seed,
step, quantity, value), `solutions.npz` (weights and multipliers, from which every certificate can
be proved again) and `run.json` (identity, provenance, sha256 of the other files and of itself).
`run.json` is written last: its presence means complete.
"""

from __future__ import annotations

import dataclasses
import io
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnsvm.claim import CLAIM_FILE, HeldError, claimed
from attnsvm.state import PLAN_FILE, RUN_FILE, TABLES, run_state
from attnsvm.storage import (
    CorruptRecordError,
    read_json,
    read_verified,
    remove_orphans,
    replacing,
    verify_file,
    write_json,
)
from attnsvm.stream import Arrays, Rows


@dataclass(frozen=True)
class NormColumns:
    """Columns of one SVM in `TrialRow`, prefixed by the norm's name."""

    status: str = ""
    objective: float = float("nan")
    lower_bound: float = float("nan")
    gap: float = float("nan")
    min_margin: float = float("nan")
    kappa: float = float("nan")
    rank: int | None = None
    rank_bound: int | None = None
    support: int | None = None


NAN = float("nan")


@dataclass(frozen=True)
class TrialRow:
    """Columns of `trials.parquet`; the columns of `NormColumns` follow for each norm."""

    seed: int
    status: str = "ok"  # or rejected, tie, unsaturated, diverged, stalled, infeasible, ...
    reason: str = ""  # why the status is not ok
    training: str = ""  # saturated | unsaturated | finite_optimum | stalled | diverged
    convergence: str = ""  # global | local | not_local | unsaturated | infeasible | undecided
    tie: bool = False  # two tokens share the best score or the largest softmax
    saturated: bool = False  # min_top_softmax >= selection.saturation
    min_top_softmax: float = NAN
    max_masked_softmax: float = NAN  # largest softmax below selection.attended
    assumption_b1: bool | None = None  # all margins at the optimal tokens equal 1
    attended_tokens: float = NAN  # mean over the samples of |O_i|, softmax >= selection.attended
    flat: bool | None = (
        None  # the head's gradient is zero for some sample: nothing pulls its tokens
    )
    risk: float = NAN
    W_norm: float = NAN  # Frobenius norm of the trained W
    one_minus_corr_w_mm: float = NAN
    one_minus_corr_w_star_mm: float = NAN
    one_minus_corr_svmeq: float = NAN
    one_minus_corr_svmeq_lsq: float = NAN
    one_minus_corr_1token: float = NAN
    published_frobenius_status: str = ""
    published_frobenius_rank: int | None = None
    published_nuclear_status: str = ""
    published_nuclear_rank: int | None = None


@dataclass(frozen=True)
class RunRecord:
    """Everything that a run computed.

    Attributes
    ----------
    trials : DataFrame
        One row per instance, columns of `TrialRow`.
    history : DataFrame
        Columns seed, step, quantity, value.
    solutions : mapping of str to array
        Weights and multipliers of the SVMs, instance axis first.
    timings : mapping of str to float
        Wall seconds of each stage.
    """

    trials: pd.DataFrame
    history: pd.DataFrame
    solutions: Mapping[str, np.ndarray]
    timings: Mapping[str, float] = field(default_factory=dict)


def dtype_of(annotation: str) -> str:
    """Return the pandas dtype of a column declared with `annotation`."""
    return {
        "int": "int64",
        "int | None": "Int64",
        "bool": "bool",
        "bool | None": "boolean",
        "float": "float64",
        "str": "str",
    }[annotation]


def trial_columns(norms: tuple[str, ...] = ("frobenius", "nuclear")) -> dict[str, tuple[str, Any]]:
    """Return name -> (dtype, default) of every column of `trials.parquet`."""
    columns = {f.name: (dtype_of(str(f.type)), f.default) for f in dataclasses.fields(TrialRow)}
    for norm in norms:
        for f in dataclasses.fields(NormColumns):
            columns[f"{norm}_{f.name}"] = (dtype_of(str(f.type)), f.default)
    return columns


def trial_table(seeds: Any, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table of instances `seeds`; columns that are not given hold their default."""
    schema = trial_columns()
    unknown = set(columns) - set(schema)
    if unknown:
        raise ValueError(f"no such trial columns: {sorted(unknown)}")
    data = {"seed": pd.Series(np.asarray(seeds), dtype="int64")}
    for name, (dtype, default) in schema.items():
        if name != "seed":
            values = columns.get(name)
            values = [default] * len(data["seed"]) if values is None else list(values)
            data[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(data)


# --- write ---------------------------------------------------------------------------------------


def write(folder: Path, parts: Iterable[RunRecord], origin: Mapping[str, Any]) -> Mapping[str, int]:
    """Write a record, part after part, to `folder`, `run.json` last; return the statuses' counts.

    The files do not depend on how the record is cut into parts; one part is in memory at a time.

    Raises
    ------
    OSError
        If the folder cannot be written; a record already complete there stays as it was until
        the new files are whole.
    """
    parts = iter(parts)
    first = next(parts)
    counts: Counter[str] = Counter()
    timings: Counter[str] = Counter()
    with ExitStack() as stack:
        sinks = stack.enter_context(replacing([folder / name for name in TABLES]))
        trials = stack.enter_context(closing(Rows(sinks[0], first.trials)))
        history = stack.enter_context(closing(Rows(sinks[1], first.history)))
        solutions = stack.enter_context(closing(Arrays(folder)))
        for part in chain([first], parts):
            trials.add(part.trials)
            history.add(part.history)
            solutions.add(part.solutions)
            counts.update(part.trials["status"])
            timings.update(part.timings)
        trials.finish()
        history.finish()
        solutions.write(sinks[2])
        (folder / RUN_FILE).unlink(missing_ok=True)
    outcome = {
        "state": "done",
        "wanted": origin["config"]["trials"],
        "drawn": counts.total(),
        "accepted": counts["ok"],
        "statuses": dict(counts),
        "timings_s": dict(timings),
        "files": {name: sink.sha256() for name, sink in zip(TABLES, sinks, strict=True)},
    }
    write_json(folder / RUN_FILE, {**origin, **outcome})
    return dict(sorted(counts.items()))


def write_failure(
    folder: Path, origin: Mapping[str, Any], error: BaseException, state: str = "failed"
) -> None:
    """Write that the run in `folder` ended without a result, where and why.

    `state` is `failed`, or `interrupted` for a run that a signal ended.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    reason = f"{type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    failure = {"state": state, "reason": reason, "place": place, "traceback": trace}
    write_json(folder / RUN_FILE, {**origin, **failure, "files": {}})


def write_plan(folder: Path, cells: Mapping[str, list[str]]) -> None:
    """Write which runs (folder name -> overrides) the sweep in `folder` consists of now."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / PLAN_FILE, {"command": sys.argv[1:], "runs": dict(cells)})


def tidy(folder: Path) -> None:
    """Remove what a writer that was killed left beside a record."""
    remove_orphans(folder)
    if (folder / CLAIM_FILE).exists():
        with suppress(HeldError), claimed(folder, patience_s=0):
            pass  # letting go of a claim removes it


# --- read ----------------------------------------------------------------------------------------


def read(folder: Path) -> tuple[RunRecord, dict[str, Any]]:
    """Return the record in `folder` and the content of its `run.json`, checksums verified.

    Raises
    ------
    FileNotFoundError
        If there is no `run.json`: the run is not complete.
    CorruptRecordError
        If a file is missing or differs from what was written.
    """
    run = read_json(folder / RUN_FILE)
    if run["state"] != "done":
        raise CorruptRecordError(f"{folder}: the run is {run['state']}, it has no tables")
    content = {name: read_verified(folder / name, run["files"][name]) for name in TABLES}
    with np.load(io.BytesIO(content["solutions.npz"]), allow_pickle=False) as archive:
        solutions = {name: archive[name] for name in archive.files}
    record = RunRecord(
        trials=pd.read_parquet(io.BytesIO(content["trials.parquet"])),
        history=pd.read_parquet(io.BytesIO(content["history.parquet"])),
        solutions=solutions,
        timings=run["timings_s"],
    )
    return record, run


def read_tables(folder: Path, run: Mapping[str, Any]) -> tuple[pa.Table, pa.Table]:
    """Return trials and history of the run in `folder`, whose `run.json` holds `run`.

    All checksums are verified, also those of the arrays, which are not returned.

    Raises
    ------
    CorruptRecordError
        If a file is missing or differs from what was written.
    """
    verify_file(folder / "solutions.npz", run["files"]["solutions.npz"])
    trials, history = (
        pq.read_table(
            pa.BufferReader(read_verified(folder / name, run["files"][name])),
            use_threads=False,
            pre_buffer=False,
        )
        for name in ("trials.parquet", "history.parquet")
    )
    return trials, history


def is_done(folder: Path) -> bool:
    """Whether `folder` holds a complete, undamaged record of a run that did not fail."""
    return run_state(folder).state == "done"
