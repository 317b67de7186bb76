"""One run's record: every number in it is derived again and compared, or named as trusted."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnsvm.config import ConfigError
from attnsvm.config.transformer import is_transformer
from attnsvm.record import trial_columns
from attnsvm.record.columns import further_columns, key_columns
from attnsvm.verify.arrays import array_refusals
from attnsvm.verify.config import (
    config_refusals,
    files_are_here,
    recorded_config,
    recorded_steps,
    with_files_beside,
)
from attnsvm.verify.exact import Array
from attnsvm.verify.expected import NAN, Expected, Interval, Words, difference, whole
from attnsvm.verify.form import arrays_refusal, table_refusal
from attnsvm.verify.heads import DRAWN_ELSEWHERE, HeadAndLoss
from attnsvm.verify.history import History, Key, quantities
from attnsvm.verify.hypotheses import Deciding, decided, trusted_hypotheses
from attnsvm.verify.instance_proof import OF_TRAINING, InstanceProof, with_tokens
from attnsvm.verify.instances import (
    LARGEST,
    Draws,
    Instance,
    UnknownError,
    agreement,
    initial_weights,
    option,
)
from attnsvm.verify.layer_proof import LayerProof, Networks, of_network, samples
from attnsvm.verify.pretrained import SAME, Heads, other_heads, rows_refusals, with_scores
from attnsvm.verify.probes import foreign_probes, matrices, own_probes, ranges
from attnsvm.verify.rows import (
    Facts,
    Refusal,
    is_recorded,
    key_of,
    row_refusals,
    status_refusal,
)
from attnsvm.verify.start import aligned_weights
from attnsvm.verify.stored import StoredRecord, opened, plain_rows
from attnsvm.verify.tokens import Scores

OF_STATUS = (
    "seed",
    "status",
    "reason",
)
OF_NETWORK = ("positions_seen", "unseen_gradient", "selected_since")
VECTORS = ("AVX2", "AVX512")
"""Vector instructions with which torch draws the published instances bit for bit."""
TRAINING = "trained weights and how training ended (see --retrain)"
DIRECTION, SINCE = "direction_change", "selected_since"
BETWEEN = "history between its first and last step"
SETTLED_BY_TRAINING = (TRAINING, DIRECTION, BETWEEN, SINCE)
"""What need not be trusted where every row was trained again and came out equal."""


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

    instances: int = 0
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
        return _Prover(folder, record, run).result()


class _Prover:
    """The stages of the proof of one run."""

    def __init__(self, folder: Path, record: StoredRecord, run: Mapping[str, Any]) -> None:
        self.folder, self.record, self.run = folder, record, run
        self.config = run["config"]
        self.further = further_columns(self.config, run["probes"])
        self.proof = RunProof()
        self.tokens = str(self.config["selection"]["tokens"])
        self.layered = is_transformer(self.config["model"])
        self.place = ""  # the layer and head of the row that is proved
        self.networks: dict[int, Networks | None] = {}  # that of the present seed
        self.some_unseen_trusted = False

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
        self.proof.instances = len(self.rows)
        self.proof.refusals += row_refusals(self.run, self.rows, self._available())
        self.history = self._history()
        shape = None if self.draws is None else self.draws.shape()
        columns = zip(*self.recorded, strict=True) if self.recorded else [()] * len(self.key)
        stored = dict(zip(["seeds", *self.key[1:]], columns, strict=True))
        reason = arrays_refusal(
            self.record.solutions, self.config, stored, shape, len(self.history.steps)
        )
        if reason:
            self._refuse("solutions.npz", None, reason)
        else:
            self._prove_instances()
        self._name_what_is_trusted()
        return self.proof

    def _refuse(self, what: str, seed: int | None, reason: str) -> None:
        self.proof.refusals.append((what, seed, f"{self.place}{reason}"))

    # --- what is drawn ----------------------------------------------------------------------------

    @cached_property
    def draws(self) -> Draws | None:
        """The instances of the config; None if they cannot be drawn here."""
        try:
            return Draws(self.config, self.files_are_here)
        except UnknownError as unknown:
            if self.heads is None:
                self.proof.trusted.append(f"instances, labels and scores ({unknown})")
            return None

    @cached_property
    def heads(self) -> Heads | None:
        """The instances of data=pretrained; None of other data, or if they cannot be read here."""
        if not str(self.config["data"]["_target_"]).endswith(".data.Pretrained"):
            return None
        trusted = self.proof.trusted
        if not self.files_are_here:
            trusted.append("signature and rows: the model's files are not here as they were")
            return None
        try:
            return Heads(self.config)
        except UnknownError as unknown:
            trusted.append(f"rows of the model ({unknown})")
            return None

    @cached_property
    def files_are_here(self) -> bool:
        """Whether the files that the config names are those of the run."""
        return files_are_here(self.run)

    @cached_property
    def matrices(self) -> dict[str, Array]:
        """The matrices of distance probes whose files are here."""
        return matrices(self.config) if self.files_are_here else {}

    def _available(self) -> float:
        """Return how many instances the data file holds; NaN if it is not here."""
        if self.draws is not None:
            return self.draws.available
        return math.nan if "path" in self.config["data"] else math.inf

    def _head(self, close: bool, trained: bool) -> HeadAndLoss | None:
        """Return head and loss with known parameters: drawn ones, or those after training."""
        known = self.draws is not None or self.heads is not None
        if not known or (trained and self.config["head"].get("train")):
            return None
        try:
            return HeadAndLoss(self.config, self._head_error(close))
        except UnknownError:
            return None

    def _head_error(self, close: bool) -> float:
        """Return the relative error of the parameters of the head."""
        if self.heads is not None:
            return SAME  # derived from stored tokens
        return DRAWN_ELSEWHERE if close or self._drawn_elsewhere else 0.0

    def _start(self, seed: int, instance: Instance, close: bool) -> Array | None:
        if self.tokens == "optimal" or self.steps is None:
            return None
        if self.config["optimizer"].get("init") == "aligned":
            head = self._head(close, trained=False) if len(instance.head) else None
            return None if head is None else aligned_weights(self.config, instance, head)
        d = instance.X.shape[-1]
        if self.config["optimizer"].get("init") == "file" and not self.files_are_here:
            return None
        try:
            return initial_weights(self.config, seed, d)
        except UnknownError:
            return None

    @cached_property
    def steps(self) -> list[float] | None:
        """The steps of the snapshots; None for a plug-in."""
        if self.tokens == "optimal":
            return []
        return recorded_steps(
            self.config["optimizer"], at_most=max(len(self.record.history), 10**6)
        )

    # --- form -------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table."""
        return plain_rows(self.record.trials)

    @cached_property
    def recorded(self) -> list[Key]:
        """The rows whose arrays must be stored: seed and, of a network, layer and head."""
        return [key_of(row, self.key) for row in self.rows if is_recorded(row, self.tokens)]

    @cached_property
    def key(self) -> list[str]:
        """The columns that tell rows of the table apart."""
        return key_columns(self.record.trials)

    def _history(self) -> History:
        names = quantities(self.config)
        names += sorted(self.run["probes"]) if names else []
        steps = self.steps
        if steps is None and names:  # a plug-in decides when to record
            first = self.record.history
            one = first[(first["seed"] == first["seed"].min()) & (first["quantity"] == names[0])]
            steps = one["step"].tolist()
        rows = self.key, self.recorded
        history = History(self.record.history, *rows, names, steps or [], self._ranges())
        if reason := history.refusal():
            self._refuse("history.parquet", None, reason)
        return history

    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Return the possible values of the quantities of probes; a plug-in's may be any."""
        return dict.fromkeys(self.run["probes"], (-math.inf, math.inf)) | ranges(self.config)

    # --- instance by instance ---------------------------------------------------------------------

    def _prove_instances(self) -> None:
        arrays = self.record.solutions
        names = list(arrays)
        stored = zip(*(arrays[name] for name in names), strict=True)
        self._refuse_unrecorded_results()
        for row in self.rows:
            if self.layered:
                self.place = f"layer {row['layer']}, head {row['attention_head']}: "
            if is_recorded(row, self.tokens):
                self._prove_recorded(row, dict(zip(names, next(stored), strict=True)))
            else:
                self._prove_unrecorded(row)
        self.place = ""
        for _ in stored:  # reads every array to its end: the archive's own checksums are verified
            pass

    def _prove_recorded(self, row: Mapping[str, Any], at: Mapping[str, Any]) -> None:
        seed = row["seed"]
        one, known = self._of_layer(seed, at) if self.layered else self._of_instance(seed, at)
        self.proof.proved.update(
            one.svms[name].status for name, found in one.proofs.items() if found.proved
        )
        refused = list(array_refusals(one))
        for name, reason in refused:
            status = one.svms[name].status if name in one.svms else ""
            self._refuse(name, seed, f"{status}: {reason}" if status else reason)
        if any(name == "selected" for name, _ in refused):
            return
        facts = one.facts if known else _without_labels(one.facts)
        self._compare(row, {**self.defaults, **one.columns(row)}, facts)
        snapshots, curves = one.curves()
        for reason in self.history.refusals(
            key_of(row, self.key), snapshots, curves, at["X"].shape[1]
        ):
            self._refuse("history", seed, reason)

    def _of_instance(self, seed: int, at: Mapping[str, Any]) -> tuple[InstanceProof, bool]:
        """Return the proof of an instance, and whether its labels and scores are known."""
        instance, close, found = self._instance(seed, at)
        known = instance is not None
        if instance is None:
            nothing = np.full(len(at["Z"]), np.nan)
            instance = Instance(at["X"], at["Z"], nothing, at["mask"], {})
        after, before = (self._head(close, trained) if known else None for trained in (True, False))
        start = self._start(seed, instance, close)
        given = self.config, at, instance, after, before, start, self.steps, self.matrices
        return InstanceProof(*given, other_heads=found), known

    def _instance(
        self, seed: int, at: Mapping[str, Any]
    ) -> tuple[Instance | None, bool, dict[str, float]]:
        """Return stored tokens with labels and head, and correlations of other heads.

        None, if labels and head are not known; the second result is whether they are known to a
        few digits only.
        """
        if self.heads is None:
            drawn, close = self._drawn(seed, at)
            return None if drawn is None else with_tokens(drawn, at), close, {}
        rows = self.heads.instance(seed)
        refused = list(rows_refusals(rows, at, self._is_trained))
        for name, reason in refused:
            self._refuse(name, seed, reason)
        found = other_heads(rows, at, {n: at[f"{n}_W"] for n in self.config["svm"]["norms"]})
        return None if refused else with_scores(rows, at), True, found

    @property
    def _is_trained(self) -> bool:
        """Whether the stored weights are others than those that come with the instances."""
        asked = self.config["optimizer"]
        as_they_are = asked["init"] == "pretrained" and asked.get("steps") == 0
        return self.tokens == "optimal" or not as_they_are

    def _of_layer(self, seed: int, at: Mapping[str, Any]) -> tuple[LayerProof, bool]:
        """Return the proof of a layer and head, and whether its instance could be drawn."""
        if seed not in self.networks:
            self.networks = {seed: self._networks(seed, at)}
        networks = self.networks[seed]
        start = None
        if networks is not None:
            start = networks.start(int(at["layer"]), int(at["attention_head"]))
            for name, array in of_network(at).items():
                if not np.array_equal(networks.stored[name], array, equal_nan=True):
                    self._refuse(name, seed, "is not that of the other layers and heads")
        self.some_unseen_trusted |= networks is None or networks.unseen is None
        given = self.config, at, samples(at), None, None, start, self.steps, self.matrices
        one = LayerProof(*given, networks=networks)
        for name, reason in one.network_refusals():
            self._refuse(name, seed, reason)
        return one, networks is not None

    def _networks(self, seed: int, at: Mapping[str, Any]) -> Networks | None:
        """Return the network of a seed, of tokens that are drawn; None if they cannot be."""
        if self.draws is None:
            return None
        drawn = self.draws.instance(seed)
        n, T, d = drawn.X.shape
        elsewhere = self._drawn_elsewhere or drawn.unspecified
        error = drawn.uncertain if elsewhere else 0.0
        if elsewhere and at["layer"] == 0 and at["Z"].shape == (n * T, d):
            stored = at["Z"].reshape(n, T, d)
            close = agreement(stored, drawn.X, drawn.uncertain) == "close"
            self.proof.close += close
            drawn, error = (replace(drawn, X=stored), 0.0) if close else (drawn, 0.0)
        head = self._head(elsewhere, trained=False)
        return Networks.of(self.config, seed, drawn, head, of_network(at), error)

    def _drawn(self, seed: int, at: Mapping[str, Any]) -> tuple[Instance | None, bool]:
        """Return the drawn instance, and whether the stored one agrees to 1e-6 only."""
        if self.draws is None:
            return None, False
        drawn = self.draws.instance(seed)
        same = {
            name: agreement(at[name], getattr(drawn, name), drawn.uncertain)
            for name in ("X", "Z", "mask")
        }
        close = "close" in (same["X"], same["Z"])
        self.proof.close += close
        for name, how in same.items():
            allowed = self._drawn_elsewhere or drawn.unspecified
            if how == "different" or (how == "close" and not allowed):
                self._refuse(name, seed, "is not what the seed draws")
        return (drawn if drawn.X.shape == at["X"].shape else None), close

    @cached_property
    def _drawn_elsewhere(self) -> bool:
        """Whether this processor, or that of the record, may draw other last bits."""
        machine = self.run["hardware"]["machine"]
        capability = torch.backends.cpu.get_cpu_capability()
        return capability not in VECTORS or machine != platform.machine()

    def _prove_unrecorded(self, row: Mapping[str, Any]) -> None:
        """Compare a rejected row: its labels, and what its other columns say."""
        selection = self.config["selection"]
        columns: dict[str, Expected | None] = dict.fromkeys(OF_TRAINING)
        if row["training"] != "diverged":
            columns |= {
                "min_top_softmax": Interval(0.0, 1.0),
                "max_masked_softmax": Interval(0.0, selection["attended"]),
                "attended_tokens": Interval(0.0, math.inf),
                "risk": Interval(-math.inf, math.inf),
                "W_norm": Interval(0.0, math.inf),
            }
        if self.layered:
            columns["positions_seen"] = Interval(0.0, math.inf)
            columns["unseen_gradient"] = Interval(0.0, 1.0)
            columns["selected_since"] = Words(tuple(map(float, self.steps or ())))
        columns["saturated"] = Words((row["min_top_softmax"] >= selection["saturation"],))
        tied = None if row["tie"] else False
        facts = Facts(tied_softmax=tied, tied_scores=tied)
        if selection["reject_all_positive"] and (self.heads or self.draws is not None):
            positive = self.draws is None or bool((self.draws.labels(row["seed"]) > 0).all())
            facts = Facts(tied_softmax=tied, tied_scores=tied, all_positive=positive)
        ends = "saturated" if row["saturated"] else "unsaturated"
        columns["training"] = Words((ends, "stalled", "finite_optimum", "diverged"))
        self._compare(row, columns | self._hypotheses(row["seed"]), facts)

    def _hypotheses(self, seed: int) -> dict[str, Expected | None]:
        """Return the columns of the hypotheses of an instance that is not stored."""
        names = self.config["hypotheses"]
        head = self._head(close=False, trained=False)
        if not names or self.draws is None or head is None or self._drawn_elsewhere:
            return dict.fromkeys(names)
        drawn = self.draws.instance(seed)
        if drawn.unspecified:
            return dict.fromkeys(names)
        start = self._start(seed, drawn, close=False)
        return decided(names, Deciding(drawn, Scores.of(drawn, head), head, start))

    def _refuse_unrecorded_results(self) -> None:
        """Refuse results of rejected rows that only recorded ones have, a column at a time."""
        table = self.record.trials
        rest = table[[not is_recorded(row, self.tokens) for row in self.rows]]
        for name, (_, default) in trial_columns(self.further).items():
            hypotheses = self.config["hypotheses"]
            if name in (*OF_STATUS, *OF_TRAINING, *OF_NETWORK, "training", *hypotheses, *self.key):
                continue
            absent = default is None or isinstance(default, float)
            empty = rest[name].isna() if absent else rest[name] == default
            for seed in rest["seed"][~empty]:
                self._refuse("table", int(seed), f"{name} is stated for a rejected instance")

    def _compare(
        self, row: Mapping[str, Any], columns: Mapping[str, Expected | None], facts: Facts
    ) -> None:
        """Refuse status and columns of the row that are not as derived."""
        seed = row["seed"]
        if reason := status_refusal(row, facts, self.config):
            self._refuse("table", seed, reason)
        for name, expected in columns.items():
            if expected is not None and (reason := difference(name, row[name], expected)):
                self._refuse("table", seed, reason)

    @cached_property
    def defaults(self) -> dict[str, Expected | None]:
        """What a column holds that no stage has filled; None for those of the published solver."""
        of_plugins = set(self.run["probes"]) - set(ranges(self.config))
        columns: dict[str, Expected | None] = {
            name: NAN if isinstance(default, float) else Words((default,))
            for name, (_, default) in trial_columns(self.further).items()
            if name not in OF_STATUS and name not in of_plugins and name not in self.key
        }
        svm = self.config["svm"]
        for norm in svm["norms"] if svm["published"] and self.tokens != "multi" else ():
            columns[f"published_{norm}_status"] = None
            columns[f"published_{norm}_rank"] = whole(0, LARGEST)
        return columns

    # --- what is trusted --------------------------------------------------------------------------

    def _name_what_is_trusted(self) -> None:
        trusted, config = self.proof.trusted, self.config
        for group in ("parameterization", "optimizer", "loss"):
            try:
                option(config, group)
            except UnknownError as unknown:
                trusted.append(f"what follows from {unknown}")
        if self.tokens == "multi":
            trusted.append("that the margin gap of Gen-SVM is not smaller")
        if self.tokens != "optimal":
            if self.heads is None or self._is_trained:
                trusted.append(TRAINING)
            if self.config["optimizer"].get("init") == "pretrained" and self._is_trained:
                trusted.append("the start: the weights of a pretrained head")
            if not config["keep_path"] and len(self.history.steps) > 2:
                if self.tokens == "top":
                    trusted.append(DIRECTION)
                trusted.append(BETWEEN)
            if self.layered:
                trusted.append(SINCE)
            if self.some_unseen_trusted:
                trusted.append("unseen_gradient of some instances")
            if config["head"].get("train"):
                trusted.append("the trained head, and scores and risk by it")
            for name, target in foreign_probes(config).items():
                trusted.append(f"probe {name} ({target})")
            trusted += sorted(f"{name} where rounding decides it" for name in self._undecided())
            for name, kind in own_probes(config).items():
                if kind == "distance" and name not in self.matrices:
                    trusted.append(f"probe {name} (its file is not here)")
                if kind == "other_heads" and self.heads is None:
                    trusted.append(f"probe {name} (the weights of other heads)")
                if kind == "mixture":
                    trusted.append(f"probe {name} where rounding decides if a mixture is known")
                if kind == "balance" and len(self.history.steps) > 1:
                    trusted.append(f"history of probe {name} before its last step")
        trusted += trusted_hypotheses(config)
        if any(not is_recorded(row, self.tokens) for row in self.rows):
            trusted.append("softmax, norm and risk of rejected instances")
        if any(row["training"] == "diverged" for row in self.rows):
            trusted.append("softmax, norm and risk of diverged instances")
        if config["svm"]["published"] and self.tokens != "multi":
            trusted.append("results of the published solver")
        if self.proof.proved["undecided"]:
            trusted.append("that no more could be proved of undecided SVMs")

    def _undecided(self) -> set[str]:
        """Return the quantities without an error bound; those of balance are named by step."""
        probes = own_probes(self.config)
        balance = {f"{name}_gap" for name, kind in probes.items() if kind == "balance"}
        return self.history.undecided - balance


def _without_labels(facts: Facts) -> Facts:
    """Return the facts without what follows from labels and head."""
    return Facts(
        tied_softmax=facts.tied_softmax,
        some_negligible=facts.some_negligible,
        svms=facts.svms,
    )
