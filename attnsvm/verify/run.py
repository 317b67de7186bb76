"""One run's record: every number in it is derived again and compared, or named as trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from attnsvm.config import ConfigError
from attnsvm.config.fields import OneOf
from attnsvm.config.groups import is_transformer, one_layer_problems
from attnsvm.record import CorruptRecordError, RunRecord
from attnsvm.record.columns import QUANTITIES, further_columns, key_columns
from attnsvm.verify.comparison import Comparison, Sheet, sheet
from attnsvm.verify.config import (
    config_refusals,
    files_are_here,
    plug_ins,
    recorded_config,
    with_files_beside,
)
from attnsvm.verify.drawing import Drawing
from attnsvm.verify.layer import LayerProof
from attnsvm.verify.proof import RunProof
from attnsvm.verify.replay import VARIANTS, Replay
from attnsvm.verify.rows import is_recorded, key_of, rejection_refusal, row_refusals
from attnsvm.verify.stored import (
    StoredRecord,
    StoredRows,
    arrays_refusal,
    opened,
    places_refusal,
    plain_rows,
    table_refusal,
)
from attnsvm.verify.trusted import (
    TRAINING,
    Unknown,
    known_config,
    not_drawn,
    rejected_ranges,
    trusted_names,
)

__all__ = ["TRAINING", "RunProof", "prove"]

NOISES = range(6)
"""Seeds of the perturbations that show what rounding decides."""

AT_ONCE = 2**22
"""Most numbers of an array of what is compared at once."""

OF_HEAD = ("tie", "flat", "risk", "assumption_b1", "convergence")
"""Columns that hang on labels and head; hypotheses do too."""


def prove(folder: Path) -> RunProof:
    """Derive everything in the record of a run again.

    Raises
    ------
    Exception
        Of any kind, if the record is malformed.
    """
    with opened(folder) as (record, run), np.errstate(all="ignore"):
        return _Prover(folder, record, run).result()


class _Prover:
    """The stages of the proof of one run."""

    def __init__(self, folder: Path, record: StoredRecord, run: Mapping[str, Any]) -> None:
        self.folder, self.record, self.run = folder, record, run
        self.further = further_columns(run["config"], run["probes"])
        self.proof = RunProof()
        self.undecided: set[str] = set()

    def result(self) -> RunProof:
        """Run all stages."""
        try:
            _, options = recorded_config(self.run)
        except (ConfigError, TypeError, ValueError) as error:
            self._refuse("run.json", None, f"config: {error}")
            return self.proof
        self.run = with_files_beside(self.run, self.folder)
        self.config = self.run["config"]
        for reason in config_refusals(self.run, options, self.folder):
            self._refuse("run.json", None, reason)
        if reason := table_refusal(self.record.trials, self.further):
            self._refuse("trials.parquet", None, reason)
            return self.proof
        self.tokens = str(self.config["selection"]["tokens"])
        self.layered = is_transformer(self.config["model"])
        self.rows = plain_rows(self.record.trials)
        self.key = key_columns(self.record.trials)
        self.proof.instances = len(self.rows)
        self._prepare()
        wrong = list(row_refusals(self.run, self.rows, self.drawing.available()))
        self.proof.refusals += wrong
        if any(what == "rows" for what, *_ in wrong):
            return self.proof
        recorded = [key_of(row, self.key) for row in self.rows if is_recorded(row, self.tokens)]
        if reason := places_refusal(self.record.solutions, self.key, recorded):
            self._refuse("solutions.npz", None, reason)
            return self.proof
        if not set(self.record.history["seed"]) <= {row["seed"] for row in self.rows}:
            self._refuse("history.parquet", None, "it has curves of other instances")
        for rows, arrays in self._chunks():
            before = len(self.proof.refusals)
            self._prove(rows, arrays)
            self.proof.refusals[before:] = sorted(
                self.proof.refusals[before:], key=lambda one: -1 if one[1] is None else one[1]
            )
        self.proof.refusals += self.drawing.refusals
        self.proof.close = self.drawing.close
        rounded = sorted(f"{name} where rounding decides it" for name in self.undecided)
        self.proof.trusted += [*not_drawn(self), *trusted_names(self), *rounded]
        return self.proof

    def _refuse(self, what: str, seed: int | None, reason: str) -> None:
        self.proof.refusals.append((what, seed, reason))

    # --- what is known ----------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the replay of the config, with what is known of it here."""
        config = recorded_config(self.run)[0]
        groups = frozenset(plug_ins(self.config))
        probes = self.config["probe"]
        self.skipped = [
            name for name, node in probes.items()
            if node["_target_"].split(".")[0] != "attnsvm"
            or (node.get("path") is not None and not self.files_are_here)
        ]  # fmt: skip
        needs_file = any(self.config["data"].get(name) for name in ("path", "transformer"))
        self.known = not groups & {"data", "head", "model"}
        self.known &= self.files_are_here or not needs_file
        if not self.known:
            of_data = ("attnsvm.probe.HeldOut", "attnsvm.probe.OtherHeads")
            self.skipped += [n for n, node in probes.items() if node["_target_"] in of_data]
        of_file = self.config["optimizer"].get("init") == "file" and not self.files_are_here
        unknown = Unknown(groups, labels=not self.known, start=of_file)
        known = known_config(config, unknown, self.skipped)
        self.replay = Replay(known, unknown)
        self.replay.steps = self.steps = self._steps(groups)
        machine = self.run["hardware"]["machine"]
        self.drawing = Drawing(known, self.replay, self.known, machine)
        self.drawing.check_size()
        columns = [*QUANTITIES, *self.further]
        self.allowed: dict[str, Any] = {one.name: one.allowed for one in columns}
        steps: tuple[Any, ...] = tuple(map(float, self.steps))
        self.allowed["selected_since"] = OneOf(steps)
        self.allowed |= {name: None for name in self.run["probes"] if self._is_skipped(name)}

    @cached_property
    def files_are_here(self) -> bool:
        """Whether the files that the config names are those of the run."""
        return files_are_here(self.run)

    def _is_skipped(self, column: str) -> bool:
        return any(column.startswith(f"{name}_") for name in self.skipped)

    def _steps(self, groups: frozenset[str]) -> list[float]:
        """Return the steps of the snapshots; those of a plug-in are read from the history."""
        if self.tokens == "optimal":
            return []
        if "optimizer" in groups:
            return [float(step) for step in np.unique(self.record.history["step"])]
        optimizer: Any = self.replay.objects.optimizer
        linear = getattr(optimizer, "record", None) == "linear"
        most = max(len(self.record.history), 10**6)
        if linear and optimizer.steps // optimizer.record_every > most:
            raise CorruptRecordError("history.parquet: has fewer rows than recorded steps")
        return list(optimizer.grid())

    @property
    def trained_head_is_stored(self) -> bool:
        """Whether the last parameters of the head are known."""
        train = bool(self.config["head"].get("train"))
        linear = self.config["head"]["_target_"] == "attnsvm.head.Linear"
        return self.known and (not train or (linear and not self.layered))

    # --- rows and arrays --------------------------------------------------------------------------

    def _chunks(self) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
        """Yield the rows of some seeds, and their arrays."""
        arrays = self.record.solutions
        names = list(arrays)
        sizes = [math.prod(arrays.header(name)[0][1:]) for name in names]
        sizes += [math.prod(arrays.header("X")[0][1:]) * len(self.steps)] if "X" in names else []
        each = one_layer_problems(self.config["model"]) if self.layered else 1
        count = each * max(1, min(500, AT_ONCE // max([1, *sizes]) // each))
        stored = zip(*(arrays[name] for name in names), strict=True)
        for first in range(0, len(self.rows), count):
            rows = self.rows[first : first + count]
            found = [next(stored) for row in rows if is_recorded(row, self.tokens)]
            columns = zip(*found, strict=True) if found else ()
            yield rows, {n: np.stack(c) for n, c in zip(names, columns, strict=False)}
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
        for k, row in enumerate(recorded):
            one = LayerProof(self.config, {name: array[k] for name, array in arrays.items()})
            self._prove_layer(row, one)
            supports |= {(k, name): one.support(name) for name in one.svms}
        seeds = {row["seed"] for row in recorded}
        with_arrays = [row for row in rows if row["seed"] in seeds]
        rest = [row for row in rows if row["seed"] not in seeds]
        stored = StoredRows(with_arrays, self.key, arrays, supports)
        if with_arrays:
            self._compare(stored)
        if rest:
            self._compare_rejected(rest)

    def _prove_layer(self, row: Mapping[str, Any], one: LayerProof) -> None:
        """Prove the SVMs of a row, and what follows from them and W."""
        self.proof.proved.update(
            one.svms[name].status for name, found in one.proofs.items() if found.proved
        )
        for name, reason in one.refusals():
            self._refuse(name, row["seed"], self._place(row) + reason)
        for name, expected in one.columns().items():
            if not expected.allows(row[name]):
                why = f"{name} is {expected}, stated is {row[name]}"
                self._refuse("table", row["seed"], self._place(row) + why)

    def _place(self, row: Mapping[str, Any]) -> str:
        return f"layer {row['layer']}, head {row['attention_head']}: " if self.layered else ""

    def _again(
        self, stored: StoredRows, variant: int = 0, noise: int | None = None
    ) -> RunRecord | None:
        """Return the record of the rows, computed again; None if nothing is known of them."""
        seeds = list(dict.fromkeys(row["seed"] for row in stored.rows))
        batch = self.drawing.batch(seeds, stored, self.layered, variant)
        if batch is None:
            return None
        recorded = bool(stored.arrays)
        return self.replay.again(batch, stored, variant, noise, recorded, self.drawing.error)

    def _compare(self, stored: StoredRows) -> None:
        """Compare rows with arrays, their history and their arrays."""
        found = self._again(stored)
        if found is None:
            return
        free = {"trained_K", "trained_Q"} if self.skipped else set()
        if "head" in plug_ins(self.config):
            free |= {"trained_v", "Y"} | {n for n in stored.arrays if n.startswith("network_head_")}
        names = arrays_refusal(found.solutions, stored.arrays, free)
        if names:
            self._refuse("solutions.npz", None, names)
            return
        variants = [found]
        if self.tokens != "optimal" and not self._everything_is_stored:
            variants += [self._made(stored, variant=k) for k in range(1, len(VARIANTS))]
        sheets = [self._sheet(one) for one in variants]
        stated = self._stated(stored)
        if wrong_form := self._form_refusal(stated, sheets[0]):
            self._refuse("record", None, wrong_form)
            return
        comparison = Comparison(sheets, self.allowed, partial(self._noisy, stored, {}))
        of_weights = self.replay.entered - {"training"}
        done = {(seed, why.split(" is ")[0]) for _, seed, why in self.proof.refusals}
        for k, reason in comparison.table(stated, self._without()):
            row = stored.rows[k]
            if row["training"] == "diverged" and reason.split(" is ")[0] in of_weights:
                continue  # numbers of weights that are not finite
            if (row["seed"], (self._place(row) + reason).split(" is ")[0]) not in done:
                self._refuse("table", row["seed"], self._place(row) + reason)
        recorded = [row for row in stored.rows if is_recorded(row, self.tokens)]
        for k, reason in comparison.history(stated):
            if recorded[k]["training"] == "diverged":
                continue
            self._refuse("history", recorded[k]["seed"], self._place(recorded[k]) + reason)
        for k, name in comparison.arrays(stated):
            why = self._place(recorded[k]) + self._array_reason(name)
            self._refuse(name, recorded[k]["seed"], why)
        self.undecided |= comparison.undecided

    def _made(self, stored: StoredRows, variant: int = 0, noise: int | None = None) -> RunRecord:
        made = self._again(stored, variant, noise)
        assert made is not None
        return made

    def _noisy(self, stored: StoredRows, made: dict[str, list[Sheet]]) -> list[Sheet]:
        """Return the sheets of perturbed weights, made once."""
        if "sheets" not in made:
            made["sheets"] = [
                self._sheet(self._made(stored, variant=k % 2, noise=k)) for k in NOISES
            ]
        return made["sheets"]

    @property
    def _everything_is_stored(self) -> bool:
        whole = bool(self.config["keep_path"]) and self.known and not plug_ins(self.config)
        return whole and not self.config["head"].get("train") and not self.replay.objects.factors

    def _sheet(self, found: RunRecord) -> Sheet:
        return sheet(found.trials, found.history, found.solutions, self.key)

    def _stated(self, stored: StoredRows) -> Sheet:
        """Return the sheet of what the record says of these rows."""
        trials = self.record.trials
        names = [str(n) for n in trials if not self._is_skipped(str(n))]
        seeds = [row["seed"] for row in stored.rows]
        at = trials["seed"].isin(seeds)
        history = self.record.history
        kept = history["seed"].isin(seeds)
        kept &= ~history["quantity"].map(self._is_skipped).astype(bool)
        return sheet(trials[at][names], history[kept], stored.arrays, self.key)

    def _form_refusal(self, stated: Sheet, again: Sheet) -> str:
        """Return what a record has more or less than it must have; empty if nothing."""
        for part in ("table", "history"):
            names = set(getattr(stated, part)) ^ set(getattr(again, part))
            if names:
                return f"{part}: missing or too many: {', '.join(sorted(names))}"
        if not np.array_equal(stated.steps, again.steps):
            return "history: its steps are not those of the config"
        return ""

    def _array_reason(self, name: str) -> str:
        if name.startswith("network_"):
            return "is not that of the other layers and heads"
        if self.layered and name in ("X", "Z", "mask"):
            return "is not the input of this layer"
        return "does not follow from seed, config and weights"

    def _without(self) -> set[str]:
        """Return the columns that do not follow from what is known."""
        names = {name for name in self.record.trials if str(name).startswith("published_")}
        if not self.config["svm"]["published"] or self.tokens == "multi":
            names = set()
        if not self.trained_head_is_stored:
            names |= {*OF_HEAD, *self.config["hypotheses"]}
        if {"loss", "optimizer", "parameterization"} & set(plug_ins(self.config)):
            names |= {"risk", "aligned_gradient", "convergence", "flat"}
        return {str(name) for name in names}

    def _compare_rejected(self, rows: list[dict[str, Any]]) -> None:
        """Compare rows without arrays: what does not hang on their weights."""
        stored = StoredRows(rows, self.key, {})
        found = self._again(stored)
        positive: Sequence[bool | None] = [None] * len(rows)
        if found is not None:
            again, stated = self._sheet(found), self._stated(stored)
            without = self._without() | self.replay.entered | {"status"}
            comparison = Comparison([again], self.allowed, partial(self._noisy, stored, {}))
            for k, reason in comparison.table(stated, without):
                self._refuse("table", rows[k]["seed"], self._place(rows[k]) + reason)
            if not self.layered:
                Y = self.drawing.drawn([row["seed"] for row in rows]).Y
                positive = (Y > 0).all(-1).tolist()
        ends = ("stalled", "finite_optimum", "diverged")
        for row, one in zip(rows, positive, strict=True):
            for name, allowed in rejected_ranges(self).items():
                value = row[name]
                if row["training"] != "diverged" and not allowed(value):
                    self._refuse("table", row["seed"], f"{name}: {value} is impossible")
            end = "saturated" if row["saturated"] else "unsaturated"
            saturated = row["min_top_softmax"] >= self.config["selection"]["saturation"]
            if row["training"] not in (end, *ends) or row["saturated"] != saturated:
                why = f"training {row['training']}, saturated {row['saturated']}: is impossible"
                self._refuse("table", row["seed"], why)
            if reason := rejection_refusal(row, self.config, one):
                self._refuse("table", row["seed"], self._place(row) + reason)
