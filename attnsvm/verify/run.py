"""One run's record: every number in it is derived again and compared, or named as trusted."""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attnsvm.config.fields import OneOf
from attnsvm.config.groups import is_transformer, one_layer_problems
from attnsvm.config.version import CHANGED
from attnsvm.display.pace import each
from attnsvm.record import CorruptRecordError, columns
from attnsvm.record.folder import read_record
from attnsvm.record.run import recorded_config
from attnsvm.record.schema import RunRecord
from attnsvm.verify import stored as tables
from attnsvm.verify.comparison import Comparison, Mask, Sheet, sheet
from attnsvm.verify.drawing import Drawing
from attnsvm.verify.layer import LayerProof
from attnsvm.verify.replay import VARIANTS, Replay
from attnsvm.verify.retrain import Retrained
from attnsvm.verify.trusted import Unknown, config_refusals, trusted, with_files_beside

HEADS = 24
"""Random heads in the place of an unknown one. Few would give some shares of samples by chance."""

NOISES = range(6)
"""Seeds of the perturbations that show what rounding decides."""

AT_ONCE = 2**22
"""Most numbers of an array of what is compared at once."""

STEPS = {"history at its first step": slice(1), "history at its last step": slice(-1, None),
         "history between its first and last step": slice(1, -1)}  # fmt: skip
"""Parts of a curve, each of which may be proved or not."""

COMPARED_AS = {"training": (), "status": ("status", "reason")}
"""Columns that a comparison of this name proves: how training ended is partly taken as recorded."""

OF_HEAD = ("tie", "flat", "risk", "assumption_b1", "convergence")
"""Columns that hang on labels and head; hypotheses do too."""


@dataclass
class RunProof:
    """What was proved about a run.

    It has `instances` rows. `proved` counts the proved SVMs of each status; `refusals` (what, seed
    or None, reason) are what does not follow, and `trusted` what cannot be derived. `close` is how
    many instances agree with their draw up to rounding only. `retrained` is what came out of
    training again, None if it was not asked for. `stated` counts the values of each column, and of
    each part of each curve: ("", column) or (part, quantity); `derived` those of them that follow.
    """

    instances: int
    proved: Counter[str] = field(default_factory=Counter)
    refusals: list[tables.Refusal] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    close: int = 0
    retrained: Retrained | None = None
    stated: Counter[tuple[str, str]] = field(default_factory=Counter)
    derived: Counter[tuple[str, str]] = field(default_factory=Counter)


def prove(folder: Path) -> RunProof:
    """Derive everything in the record of a run again; a malformed one raises any exception."""
    record, run = read_record(folder)
    with np.errstate(all="ignore"):
        prover = _Prover(record, with_files_beside(run, folder))
        prover.prove(folder)
        return prover.proof


class _Prover:
    """The proof of one run, and what is known of the run."""

    def __init__(self, record: RunRecord, run: Mapping[str, Any]) -> None:
        self.record, self.run, self.config = record, run, run["config"]
        self.whole = tables.StoredRows(record)
        self.tokens = str(self.config["selection"]["tokens"])
        self.layered = is_transformer(self.config["model"])
        self.key = self.whole.key
        self.proof = RunProof(len(record.trials))
        names = [str(name) for name in record.trials if name not in record.lacking]
        self.proof.stated.update({("", name): len(record.trials) for name in names})
        for name, curves in record.history.groupby("quantity"):
            count = len(curves[self.key].drop_duplicates())
            self.proof.stated.update({(part, str(name)): count for part in STEPS})
        stated = recorded_config(run)
        self.unknown = Unknown.of(run)
        self.replay = Replay(self.unknown.config(stated), self.unknown)
        self.replay.steps = self.steps = self._steps()
        self.drawing = Drawing(self.replay, run["hardware"]["machine"])
        self.drawing.check_size()
        self.further = columns.further_columns(self.config, run["probes"])
        self.allowed: dict[str, Any] = {
            one.name: None if one.name in self.unknown.columns else one.allowed
            for one in (*columns.TRIAL_COLUMNS, *columns.QUANTITIES, *self.further)
        }
        steps: Any = tuple(map(float, self.steps))
        self.allowed["selected_since"] = OneOf(steps)
        self.undecided: set[str] = set()
        ends = tuple(end for k, ends in CHANGED.items() if k > run["numbers"] for end in ends)
        changed = (str(name) for name in record.trials if str(name).endswith(ends))
        self.newer = {*record.lacking, *changed}

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
        available = self.drawing.available()
        wrong = list(tables.row_refusals(self.run, self.whole.rows, available))
        proof.refusals += wrong
        if any(what == "rows" for what, *_ in wrong):
            return
        if reason := self.whole.places_refusal(self.tokens):
            self._refuse("solutions.npz", None, reason)
            return
        if not set(self.record.history["seed"]) <= set(self.whole.seeds):
            self._refuse("history.parquet", None, "it has curves of other instances")
        for part in self._parts():
            before = len(proof.refusals)
            self._prove(part)
            by_seed = sorted(proof.refusals[before:], key=lambda one: (one[1] is not None, one[1]))
            proof.refusals[before:] = by_seed
        proof.refusals += self.drawing.refusals
        proof.close = self.drawing.close
        open_ = bool(proof.proved["undecided"])
        proof.trusted += trusted(self.config, self.unknown, open_)
        proof.trusted += sorted(f"{name} where rounding decides it" for name in self.undecided)
        proof.trusted += sorted(f"{name}, of another version" for name in self.newer)

    def _refuse(self, what: str, row: Mapping[str, Any] | None, reason: str) -> None:
        if row and self.layered:
            reason = f"layer {row['layer']}, head {row['attention_head']}: {reason}"
        self.proof.refusals.append((what, row["seed"] if row else None, reason))

    # --- the proof --------------------------------------------------------------------------------

    def _parts(self) -> Iterator[RunRecord]:
        """Yield the record in parts of some instances."""
        arrays, seeds = self.whole.arrays, self.whole.seeds
        sizes = [array[:1].size for array in arrays.values()]
        sizes += [arrays["X"][:1].size * len(self.steps)] if "X" in arrays else []
        layers = one_layer_problems(self.config["model"]) if self.layered else 1
        count = max(1, min(500, AT_ONCE // max([1, *sizes]) // layers))
        for first in each("part", range(0, len(seeds), count)):
            yield self.record.of_seeds(seeds[first : first + count])

    def _prove(self, part: RunRecord) -> None:
        """Prove some rows: by arithmetic of their own, and by computing them again."""
        stored = tables.StoredRows(part)
        recorded = stored.recorded(self.tokens)
        if recorded and self.tokens != "optimal" and "trained_W" not in stored.arrays:
            self._refuse("solutions.npz", None, "missing: trained_W")
            return
        proofs, wrong = [], set()
        for k, row in enumerate(recorded):
            one = LayerProof(self.config, {n: array[k] for n, array in stored.arrays.items()})
            wrong |= {(tables.key_of(row, self.key), name) for name in self._prove_layer(row, one)}
            proofs.append(one)
        supports = {
            name: np.array([one.support(name) for one in proofs]) for name in proofs[0].svms
        } if proofs else {}  # fmt: skip
        stored = dataclasses.replace(stored, supports=supports)
        without = [row for row in stored.rows if (row["seed"],) not in stored.place]
        positive: Mapping[int, bool] = {}
        if self.unknown.labels:  # the others cannot be drawn
            known = [seed for seed in stored.seeds if (seed,) in stored.place]
            stored = dataclasses.replace(stored, record=part.of_seeds(known))
        elif not self.layered and without:
            Y = self.drawing.drawn(stored.seeds).Y
            positive = dict(zip(stored.seeds, (Y > 0).all(-1).tolist(), strict=True))
        if stored.rows and not (self.unknown.labels and self.layered):
            self._compare(stored, wrong)
        of_weights = {  # further columns that hang on trained weights
            one.name: one.allowed.holds
            for one in self.further
            if one.name in self.replay.entered - self.newer
            if one.allowed is not None and one.dtype != "str"
        }
        for row in without:
            found = positive.get(row["seed"])
            for reason in tables.rejection_refusals(row, self.replay.config, of_weights, found):
                self._refuse("table", row, reason)

    def _prove_layer(self, row: Mapping[str, Any], one: LayerProof) -> list[str]:
        """Prove the SVMs of a row, and what follows from them and W; return the wrong columns."""
        self.proof.proved.update(
            one.svms[name].status for name, found in one.proofs.items() if found.proved
        )
        for name, reason in one.refusals():
            self._refuse(name, row, reason)
        wrong = {
            name: e
            for name, e in one.columns().items()
            if name not in self.newer and not e.allows(row[name])
        }
        for name, expected in wrong.items():
            self._refuse("table", row, f"{name} is {expected}, stated is {row[name]}")
        return list(wrong)

    def _again(
        self, stored: tables.StoredRows, variant: int = 0, noise: int | None = None
    ) -> Sheet:
        """Return the sheet of the rows, computed again."""
        report = variant == 0 and noise is None
        batch = self.drawing.batch(stored, self.layered, variant, report)
        found = self.replay.again(batch, stored, variant, noise, self.drawing.error)
        return sheet(found.trials, found.history, found.solutions, self.key)

    def _stated(self, part: RunRecord) -> Sheet:
        """Return the sheet of what the record says of some instances."""
        names = [name for name in part.trials if name not in self.unknown.columns | self.newer]
        known = ~part.history["quantity"].isin(self.unknown.columns)
        return sheet(part.trials[names], part.history[known], part.solutions, self.key)

    def _compare(self, stored: tables.StoredRows, wrong: set[tuple[Any, str]]) -> None:
        """Compare rows, their history and their arrays with what is computed again.

        `wrong` are cells that are refused already: key of their row, and column.
        """
        unknown = self.unknown.labels or self.unknown.groups or self.config["head"].get("train")
        all_stored = self.config["keep_path"] and not (unknown or self.replay.objects.factors)
        count = 1 if self.tokens == "optimal" or all_stored else len(VARIANTS)
        count = HEADS if self.unknown.labels and count > 1 else count
        comparison = Comparison(
            [self._again(stored, k) for k in range(count)],
            self.allowed,
            lambda: [self._again(stored, k % 2, k) for k in NOISES],
        )
        names = {"trained_K", "trained_Q"} if self.unknown.probes else set()
        if "head" in self.unknown.groups:
            of_network = [name for name in stored.arrays if name.startswith("network_head_")]
            names |= {"trained_v", "Y", *of_network}
        stated = self._stated(stored.record)
        if self.run["stale"]:
            self.newer |= {name for _, name in comparison.variants[0].keys() - stated.keys()}
            names |= self.newer
        if reason := comparison.form_refusal(stated, names):
            self._refuse("record", None, reason)
            return
        recorded = stored.recorded(self.tokens)
        without, of_weights = self._without(), self.replay.entered - {"training"}
        of_svm = {f"{norm}_{one}" for norm in self.replay.norms for one in ("kappa", "rank_bound")}
        keys = [tables.key_of(row, self.key) for row in stored.rows]

        def underived(part: str, name: str) -> Mask:
            """Return of which rows a column, curve or array does not follow from what is known.

            Where weights are not finite nothing follows from them.
            """
            if part != "table":
                lost = [part == "history" and row["training"] == "diverged" for row in recorded]
                return np.array(lost, dtype=bool)
            return np.array([
                name in without
                or (row["training"] == "diverged" and name in of_weights)
                or (key[:1] not in stored.place and name in {*self.replay.entered, "status"})
                for key, row in zip(keys, stored.rows, strict=True)
            ], dtype=bool)  # fmt: skip

        def free(part: str, name: str) -> Mask:
            """Return which rows are refused or proved already, or do not follow."""
            done = [
                (key, name) in wrong or (name in of_svm and key in stored.place) for key in keys
            ]
            return underived(part, name) | (done if part == "table" else False)

        for part, name, k, reason in comparison.differences(stated, free):
            row = stored.rows[k] if part == "table" else recorded[k]
            what = name if part == "arrays" else part
            self._refuse(what, row, reason or self._array_reason(name))
        self.undecided |= comparison.undecided
        for part, name, known in comparison.derived(stated):
            follows = known & ~underived(part, name).reshape(-1, *[1] * (known.ndim - 1))
            if part == "history":
                counts = {(at, name): follows[:, of].all(1) for at, of in STEPS.items()}
            else:
                counts = {("", one): follows for one in COMPARED_AS.get(name, (name,))}
            self.proof.derived.update({key: int(rows.sum()) for key, rows in counts.items()})

    def _array_reason(self, name: str) -> str:
        if name.startswith("network_"):
            return "is not that of the other layers and heads"
        if self.layered and name in ("X", "Z", "mask"):
            return "is not the input of this layer"
        return "does not follow from seed, config and weights"

    def _without(self) -> set[str]:
        """Return the columns that do not follow from what is known."""
        names: set[str] = set()
        if self.config["svm"]["published"] and self.tokens != "multi":
            names |= {n for n in map(str, self.record.trials) if n.startswith("published_")}
        head = self.config["head"]
        stored = head["_target_"] in columns.TRAINED_LINEAR and not self.layered
        if self.unknown.labels or (head.get("train") and not stored):
            names |= {*OF_HEAD, *self.config["hypotheses"]}
        if {"loss", "optimizer", "parameterization"} & self.unknown.groups:
            names |= {"risk", "aligned_gradient", "convergence", "flat"}
        return names
