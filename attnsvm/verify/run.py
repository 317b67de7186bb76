"""One run's record: every number in it is derived again and compared, or named as trusted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attnsvm.config.fields import OneOf
from attnsvm.config.groups import is_transformer, one_layer_problems
from attnsvm.record import CorruptRecordError, RunRecord
from attnsvm.record.columns import QUANTITIES, further_columns, key_columns
from attnsvm.record.run import recorded_config
from attnsvm.verify.comparison import Comparison, Sheet, sheet
from attnsvm.verify.config import config_refusals, with_files_beside
from attnsvm.verify.drawing import Drawing
from attnsvm.verify.layer import LayerProof
from attnsvm.verify.replay import VARIANTS, Replay
from attnsvm.verify.rows import Refusal, is_recorded, rejection_refusals, row_refusals
from attnsvm.verify.stored import (
    StoredRecord,
    StoredRows,
    arrays_refusal,
    key_of,
    opened,
    places_refusal,
    plain_rows,
)
from attnsvm.verify.trusted import Unknown, trusted

NOISES = range(6)
"""Seeds of the perturbations that show what rounding decides."""

AT_ONCE = 2**22
"""Most numbers of an array of what is compared at once."""

OF_HEAD = ("tie", "flat", "risk", "assumption_b1", "convergence")
"""Columns that hang on labels and head; hypotheses do too."""


@dataclass
class RunProof:
    """What was proved about a run.

    Attributes
    ----------
    instances : int
        Rows of the record.
    proved : Counter
        Number of proved SVMs of each status.
    refusals : list of (what, seed or None, reason)
        What does not follow.
    trusted : list of str
        What cannot be derived.
    close : int
        Instances that agree with their draw up to rounding only.
    retrained : int or None
        Rows that were trained again and compared; None if it was not asked for.
    repeated : int
        Of these, the rows that came out again, with weights equal in every bit.
    """

    instances: int
    proved: Counter[str] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    close: int = 0
    retrained: int | None = None
    repeated: int = 0


def prove(folder: Path) -> RunProof:
    """Derive everything in the record of a run again.

    Raises
    ------
    Exception
        Of any kind, if the record is malformed.
    """
    with opened(folder) as (record, run), np.errstate(all="ignore"):
        prover = _Prover(record, with_files_beside(run, folder))
        prover.prove(folder)
        return prover.proof


class _Prover:
    """The proof of one run, and what is known of the run."""

    def __init__(self, record: StoredRecord, run: Mapping[str, Any]) -> None:
        self.record, self.run, self.config = record, run, run["config"]
        self.tokens = str(self.config["selection"]["tokens"])
        self.layered = is_transformer(self.config["model"])
        self.rows, self.key = plain_rows(record.trials), key_columns(record.trials)
        self.proof = RunProof(len(self.rows))
        self.unknown = Unknown.of(run)
        self.replay = Replay(self.unknown.config(recorded_config(run)), self.unknown)
        self.replay.steps = self.steps = self._steps()
        self.drawing = Drawing(self.replay, run["hardware"]["machine"])
        self.drawing.check_size()
        self.further = further_columns(self.config, run["probes"])
        self.allowed: dict[str, Any] = {
            one.name: None if one.name in self.unknown.columns else one.allowed
            for one in (*QUANTITIES, *self.further)
        }
        steps: Any = tuple(map(float, self.steps))
        self.allowed["selected_since"] = OneOf(steps)
        self.undecided: set[str] = set()

    def _steps(self) -> list[float]:
        """Return the steps of the snapshots; those of a plug-in are read from the history."""
        if self.tokens == "optimal":
            return []
        if "optimizer" in self.unknown.groups:
            return [float(step) for step in np.unique(self.record.history["step"])]
        optimizer: Any = self.replay.objects.optimizer
        linear = getattr(optimizer, "record", None) == "linear"
        most = max(len(self.record.history), 10**6)
        if linear and optimizer.steps // optimizer.record_every > most:
            raise CorruptRecordError("history.parquet: has fewer rows than recorded steps")
        return list(optimizer.grid())

    def prove(self, folder: Path) -> None:
        """Collect what is proved, refused and trusted."""
        proof = self.proof
        proof.refusals += [("run.json", None, why) for why in config_refusals(self.run, folder)]
        wrong = list(row_refusals(self.run, self.rows, self.drawing.available()))
        proof.refusals += wrong
        if any(what == "rows" for what, *_ in wrong):
            return
        recorded = [key_of(row, self.key) for row in self.rows if is_recorded(row, self.tokens)]
        if reason := places_refusal(self.record.solutions, self.key, recorded):
            self._refuse("solutions.npz", None, reason)
            return
        if not set(self.record.history["seed"]) <= {row["seed"] for row in self.rows}:
            self._refuse("history.parquet", None, "it has curves of other instances")
        for rows, arrays in self._chunks():
            before = len(proof.refusals)
            self._prove(rows, arrays)
            proof.refusals[before:] = sorted(
                proof.refusals[before:], key=lambda one: -1 if one[1] is None else one[1]
            )
        proof.refusals += self.drawing.refusals
        proof.close = self.drawing.close
        open_ = bool(proof.proved["undecided"])
        proof.trusted += trusted(self.config, self.unknown, self.rows, self.steps, open_)
        proof.trusted += sorted(f"{name} where rounding decides it" for name in self.undecided)

    def _refuse(self, what: str, row: Mapping[str, Any] | None, reason: str) -> None:
        place = ""
        if row is not None and self.layered:
            place = f"layer {row['layer']}, head {row['attention_head']}: "
        seed = None if row is None else row["seed"]
        self.proof.refusals.append((what, seed, place + reason))

    # --- rows and arrays --------------------------------------------------------------------------

    def _chunks(self) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
        """Yield the rows of some seeds, and their arrays."""
        arrays = self.record.solutions
        sizes = [math.prod(arrays.shape(name)[1:]) for name in arrays]
        sizes += [math.prod(arrays.shape("X")[1:]) * len(self.steps)] if "X" in arrays else []
        each = one_layer_problems(self.config["model"]) if self.layered else 1
        count = each * max(1, min(500, AT_ONCE // max([1, *sizes]) // each))
        stored = zip(*arrays.values(), strict=True)
        for first in range(0, len(self.rows), count):
            rows = self.rows[first : first + count]
            found = [next(stored) for row in rows if is_recorded(row, self.tokens)]
            columns = zip(*found, strict=True) if found else ()
            yield rows, {n: np.stack(c) for n, c in zip(arrays, columns, strict=False)}
        for _ in stored:  # reads every array to its end: the archive's own checksums are verified
            pass

    # --- the proof --------------------------------------------------------------------------------

    def _prove(self, rows: list[dict[str, Any]], arrays: dict[str, Any]) -> None:
        """Prove some rows: by arithmetic of their own, and by computing them again."""
        recorded = [row for row in rows if is_recorded(row, self.tokens)]
        if recorded and self.tokens != "optimal" and "trained_W" not in arrays:
            self._refuse("solutions.npz", None, "missing: trained_W")
            return
        supports: dict[tuple[int, str], tuple[Any, Any]] = {}
        wrong = set()
        for k, row in enumerate(recorded):
            one = LayerProof(self.config, {name: array[k] for name, array in arrays.items()})
            wrong |= {(key_of(row, self.key), name) for name in self._prove_layer(row, one)}
            supports |= {(k, name): one.support(name) for name in one.svms}
        seeds = {row["seed"] for row in recorded}
        with_arrays = [row for row in rows if row["seed"] in seeds]
        rest = [row for row in rows if row["seed"] not in seeds]
        if with_arrays:
            self._compare(StoredRows(with_arrays, self.key, arrays, supports), wrong)
        if rest:
            self._compare_rejected(StoredRows(rest, self.key, {}))

    def _prove_layer(self, row: Mapping[str, Any], one: LayerProof) -> list[str]:
        """Prove the SVMs of a row, and what follows from them and W; return wrong columns."""
        self.proof.proved.update(
            one.svms[name].status for name, found in one.proofs.items() if found.proved
        )
        for name, reason in one.refusals():
            self._refuse(name, row, reason)
        wrong = {name: e for name, e in one.columns().items() if not e.allows(row[name])}
        for name, expected in wrong.items():
            self._refuse("table", row, f"{name} is {expected}, stated is {row[name]}")
        return list(wrong)

    def _is_drawn(self, stored: StoredRows) -> bool:
        """Return whether the instances are known: from their seeds, or as they are stored."""
        return not self.unknown.labels or (bool(stored.arrays) and not self.layered)

    def _again(self, stored: StoredRows, variant: int = 0, noise: int | None = None) -> RunRecord:
        """Return the record of the rows, computed again."""
        seeds = list(dict.fromkeys(row["seed"] for row in stored.rows))
        batch = self.drawing.batch(seeds, stored, self.layered, variant)
        return self.replay.again(batch, stored, variant, noise, self.drawing.error)

    def _comparison(self, variants: Sequence[RunRecord], stored: StoredRows) -> Comparison:
        def noisy() -> list[Sheet]:
            """Return the sheets of perturbed weights."""
            return [self._sheet(self._again(stored, k % 2, k)) for k in NOISES]

        return Comparison([self._sheet(one) for one in variants], self.allowed, noisy)

    def _sheet(self, found: RunRecord) -> Sheet:
        return sheet(found.trials, found.history, found.solutions, self.key)

    def _stated(self, stored: StoredRows) -> Sheet:
        """Return the sheet of what the record says of these rows."""
        trials, history = self.record.trials, self.record.history
        names = [name for name in trials if name not in self.unknown.columns]
        seeds = [row["seed"] for row in stored.rows]
        kept = history["seed"].isin(seeds) & ~history["quantity"].isin(self.unknown.columns)
        at = trials["seed"].isin(seeds)
        return sheet(trials[at][names], history[kept], stored.arrays, self.key)

    def _compare(self, stored: StoredRows, wrong: set[tuple[Any, str]]) -> None:
        """Compare rows with arrays, their history and their arrays.

        `wrong` are cells that are refused already: key of their row, and column.
        """
        if not self._is_drawn(stored):
            return
        found = self._again(stored)
        free = {"trained_K", "trained_Q"} if self.unknown.probes else set()
        if "head" in self.unknown.groups:
            free |= {"trained_v", "Y"} | {n for n in stored.arrays if n.startswith("network_head_")}
        if names := arrays_refusal(found.solutions, stored.arrays, free):
            self._refuse("solutions.npz", None, names)
            return
        variants = [found]
        if self.tokens != "optimal" and not self._everything_is_stored:
            variants += [self._again(stored, variant=k) for k in range(1, len(VARIANTS))]
        comparison, stated = self._comparison(variants, stored), self._stated(stored)
        if wrong_form := comparison.form_refusal(stated):
            self._refuse("record", None, wrong_form)
            return
        of_weights = self.replay.entered - {"training"}
        recorded = [row for row in stored.rows if is_recorded(row, self.tokens)]
        for part, name, k, reason in comparison.differences(stated, self._without()):
            row = stored.rows[k] if part == "table" else recorded[k]
            if part == "table" and (key_of(row, self.key), name) in wrong:
                continue
            of_table = part == "table" and name in of_weights
            if row["training"] == "diverged" and (of_table or part == "history"):
                continue  # numbers of weights that are not finite
            what = name if part == "arrays" else part
            self._refuse(what, row, reason or self._array_reason(name))
        self.undecided |= comparison.undecided

    @property
    def _everything_is_stored(self) -> bool:
        whole = bool(self.config["keep_path"]) and not self.unknown.labels
        whole &= not self.unknown.groups and not self.config["head"].get("train")
        return whole and not self.replay.objects.factors

    def _array_reason(self, name: str) -> str:
        if name.startswith("network_"):
            return "is not that of the other layers and heads"
        if self.layered and name in ("X", "Z", "mask"):
            return "is not the input of this layer"
        return "does not follow from seed, config and weights"

    def _without(self) -> set[str]:
        """Return the columns that do not follow from what is known."""
        names = set()
        if self.config["svm"]["published"] and self.tokens != "multi":
            names = {str(name) for name in self.record.trials if str(name).startswith("published_")}
        head = self.config["head"]
        stored = head["_target_"] == "attnsvm.head.Linear" and not self.layered
        if self.unknown.labels or (head.get("train") and not stored):
            names |= {*OF_HEAD, *self.config["hypotheses"]}
        if {"loss", "optimizer", "parameterization"} & self.unknown.groups:
            names |= {"risk", "aligned_gradient", "convergence", "flat"}
        return names

    def _compare_rejected(self, stored: StoredRows) -> None:
        """Compare rows without arrays: what does not hang on their weights."""
        positive: Sequence[bool | None] = [None] * len(stored.rows)
        if self._is_drawn(stored):
            comparison = self._comparison([self._again(stored)], stored)
            without = self._without() | self.replay.entered | {"status"}
            for part, _, k, reason in comparison.differences(self._stated(stored), without):
                self._refuse(part, stored.rows[k], reason)
            if not self.layered:
                Y = self.drawing.drawn([row["seed"] for row in stored.rows]).Y
                positive = (Y > 0).all(-1).tolist()
        ranges = {
            one.name: one.allowed.holds
            for one in self.further
            if one.name in self.replay.entered and one.allowed is not None and one.dtype != "str"
        }
        for row, one in zip(stored.rows, positive, strict=True):
            for reason in rejection_refusals(row, self.config, ranges, one):
                self._refuse("table", row, reason)
