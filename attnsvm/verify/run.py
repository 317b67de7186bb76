"""One run's record: its SVMs are proved, its instances are run again and compared."""

import copy
import dataclasses
import platform
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch

from attnsvm.config import ConfigError, RunConfig
from attnsvm.config import data as schemas
from attnsvm.config.identity import folder_name, named_files
from attnsvm.config.version import CHANGED
from attnsvm.display.pace import each
from attnsvm.experiment import MAX_DRAWS_PER_TRIAL
from attnsvm.record.columns import key_columns
from attnsvm.record.run import counts_of, identity, recorded_config
from attnsvm.record.schema import RunRecord
from attnsvm.record.stored import StoredRun
from attnsvm.verify.constraints import StoredSvm
from attnsvm.verify.rerun import ROUNDS, Rerun, compare, places
from attnsvm.verify.svm import verify

LONG_S = 60.0
"""Seconds that a run may take here; a longer one is run again on a sample of its instances."""

VECTORS = ("AVX2", "AVX512")
"""Vector instructions with which torch draws instances bit for bit as published."""

DECOMPOSED = (
    schemas.OrthonormalConfig,
    schemas.PlantedConfig,
    schemas.PretrainedConfig,
    schemas.SphereInSpanConfig,
    schemas.VocabularyConfig,
)
"""Data from a matrix decomposition, whose last bits differ between linear algebra libraries."""

TABLED = ("status", "objective", "lower_bound", "gap", "min_margin", "rank")
"""Columns of a norm that say the same as the arrays of its SVM."""


@dataclass
class RunProof:
    """What is proved and reproduced of a run of so many `instances`.

    `proved` counts the proved SVMs of each status. `reproduced` instances have the numbers of the
    record when they are run again, and `left_out` says why the others were not run, or left open.
    `differences` are what does not follow: seed, or None, and the reason.
    """

    instances: int
    proved: Counter[str] = field(default_factory=Counter)
    reproduced: int = 0
    left_out: str = ""
    differences: list[tuple[int | None, str]] = field(default_factory=list)

    def refuse(self, reason: str, seed: int | None = None) -> None:
        """Add a difference."""
        self.differences.append((seed, reason))

    def __add__(self, other: Self) -> Self:
        """Return the proof of the runs of both."""
        notes = dict.fromkeys(filter(None, (self.left_out, other.left_out)))
        return type(self)(
            self.instances + other.instances,
            self.proved + other.proved,
            self.reproduced + other.reproduced,
            "; ".join(notes),
            [*self.differences, *other.differences],
        )

    def __str__(self) -> str:
        """Return what is proved, reproduced, and differs, in one line."""
        proved = [f"{count} {status} proved" for status, count in sorted(self.proved.items())]
        note = f" ({self.left_out})" if self.left_out else ""
        reproduced = f"reproduced on {self.reproduced} of {self.instances} instances{note}"
        return ", ".join([*proved, reproduced, f"{len(self.differences)} differ"])


def prove(folder: Path, instances: int | None = None) -> RunProof:
    """Prove the SVMs of the record in `folder`, and run `instances` of it again.

    None: all, or a sample of a run that took longer than `LONG_S`. A malformed record raises any
    exception.
    """
    stored = StoredRun(folder)
    record, run = stored.record(), _with_files_beside(stored.content, folder)
    proof = RunProof(record.trials["seed"].nunique())
    for name, count in counts_of(record.trials["status"], run["config"]).items():
        if run.get(name, count) != count:
            proof.refuse(f"{name}={run[name]}: must be {count}, as in trials.parquet")
    _prove_svms(record, run["config"], proof)
    if any(seed is None for seed, _ in proof.differences):  # of rows that are not those of arrays
        return proof
    missing = [
        f"{key}={part[key]} is not here"
        for part, key, content in named_files(run["config"])
        if content is None
    ]
    name = folder_name(run["options"], run["config"], run["signature"])
    if not (missing or identity(run)):
        proof.refuse("signature: is not that of the config and the files that it names")
    elif re.search("-[0-9a-f]{12}$", folder.name) and folder.name != name:
        proof.refuse(f"folder: its name must be {name}")
    elif missing:
        proof.left_out = "; ".join(missing)
    elif run["config"]["extensions"]:
        proof.left_out = "the code of a plug-in is not run"
    else:
        with np.errstate(all="ignore"):
            _reproduce(record, run, instances, proof)
    return proof


def _prove_svms(record: RunRecord, config: Mapping[str, Any], proof: RunProof) -> None:
    """Prove every stored SVM from its arrays, and the columns that say the same."""
    norms, arrays = config["svm"]["norms"], record.solutions
    key = key_columns(record.trials)
    solved = record.trials[record.trials[f"{norms[0]}_status"] != ""]
    if not np.array_equal(places(arrays, solved[key]) if arrays else [], np.arange(len(solved))):
        proof.refuse("solutions.npz: must have the rows of trials.parquet with an SVM, in order")
        return
    rows = solved.to_dict("records")
    for k, row in enumerate(each("SVM", rows)):
        at = {name: array[k] for name, array in arrays.items()}
        svms = StoredSvm.all_of(at, config)
        for name, svm in svms.items():
            result = verify(svm)
            proof.proved[svm.status] += result.proved
            if not result.proved:
                proof.refuse(f"{name}: {svm.status}: {result.reason}", row["seed"])
        for norm in norms:
            for column in TABLED:
                value = getattr(svms[norm], column.replace("gap", "duality_gap"))
                stated = row[f"{norm}_{column}"]
                unknown = pd.isna(stated)
                if unknown != (column == "rank" and value < 0) or not (unknown or stated == value):
                    proof.refuse(f"{norm}_{column} is {value}, stated is {stated}", row["seed"])


def _reproduce(
    record: RunRecord, run: Mapping[str, Any], instances: int | None, proof: RunProof
) -> None:
    """Run some instances again, which follow each other, and compare every number of them."""
    config, n = recorded_config(run), proof.instances
    trials = n if config.selection.until_accepted else config.trials
    selection = dataclasses.replace(config.selection, until_accepted=False)
    try:
        rerun = Rerun(
            dataclasses.replace(config, device="auto", selection=selection, trials=trials)
        )
        size = max(1, rerun.chunk_size(rerun.whole) // (1 + ROUNDS[1][0]))
    except (ConfigError, ImportError) as error:  # a package that is not installed
        proof.left_out = str(error)
        return
    seconds = sum(run["timings_s"].values())
    if reason := _difference_in_rows(record, config, rerun.total):
        proof.refuse(reason)
        return
    if instances is None:
        instances = n if seconds <= LONG_S else max(1, int(n * LONG_S / seconds))
        proof.left_out = "--all runs all again" if instances < n else ""
    count, undecided = min(instances, n), 0
    first = int(np.random.default_rng().integers(n - count + 1))
    elsewhere = (
        torch.backends.cpu.get_cpu_capability() not in VECTORS
        or run["hardware"]["machine"] != platform.machine()
        or isinstance(config.data, DECOMPOSED)
    )
    ends = tuple(end for k, ends in CHANGED.items() if k > run["numbers"] for end in ends)
    for start in each("part", range(first, first + count, size)):
        stop = min(start + size, first + count)
        outcome = compare(
            rerun,
            rerun.instances(start, stop),
            record.of_seeds(range(config.seed + start, config.seed + stop)),
            free=lambda name: name in record.lacking or name.endswith(ends),
            older=bool(run["stale"]),
            elsewhere=elsewhere,
        )
        proof.differences += [(seed, why) for seed, reasons in outcome.items() for why in reasons]
        undecided += sum(not reasons for reasons in outcome.values())
        proof.reproduced += stop - start - len(outcome)
    if undecided:
        proof.left_out = f"rounding decides {undecided}"


def _difference_in_rows(record: RunRecord, config: RunConfig, available: int) -> str:
    """Return why the rows are not those of the config; empty if they are."""
    seeds, accepted = record.trials["seed"].unique(), record.trials["status"] == "ok"
    count, last = len(seeds), min(config.trials, available)
    if seeds.tolist() != [*range(config.seed, config.seed + count)]:
        return f"rows: their seeds must be {config.seed}, {config.seed + 1}, ... in order"
    if not config.selection.until_accepted:
        return "" if count == last else f"rows: of {count} instances, must be of {last}"
    done = accepted.sum() == config.trials and accepted.iloc[-1]
    if not done and count < MAX_DRAWS_PER_TRIAL * config.trials:
        return f"rows: {accepted.sum()} are accepted; must end with number {config.trials}"
    return ""


def _with_files_beside(run: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return a `run.json`; a file that is not at its path is looked for beside the record.

    Its name counts there, in the folder of the run or of its sweep. The signature says whether it
    is the same file.
    """
    moved = copy.deepcopy(dict(run))
    for fields in (moved["config"], moved["as_written"]):
        for part, key, content in named_files(fields):
            if content is None:
                near = (place / Path(part[key]).name for place in (folder, folder.parent))
                part[key] = next((str(path) for path in near if path.exists()), part[key])
    return moved
