"""One recorded instance: everything that follows from its seed, config and stored weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnsvm.verify.assumptions import assumption_b1
from attnsvm.verify.attained import attained_gap
from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.expected import NAN, Either, Expected, Interval, Words, number, truth
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.history import NORMS, Curve, correlation, svmeq_name
from attnsvm.verify.hypotheses import Deciding, decided
from attnsvm.verify.instances import Instance, UnknownError
from attnsvm.verify.norms import computed
from attnsvm.verify.probes import probe_curves, ranges
from attnsvm.verify.rows import Facts
from attnsvm.verify.stored import svms_of
from attnsvm.verify.svm import Proof, verify
from attnsvm.verify.svm_columns import Rows, refutes_b1, support, svm_columns
from attnsvm.verify.tokens import (
    Limit,
    Scores,
    convergence_types,
    norm_of_limit,
    share_by_chance,
)
from attnsvm.verify.weights import (
    Attention,
    Trained,
    one_minus_correlation,
    svmeq,
    svmeq_factors,
    svmeq_least_squares,
)

TABLED = {"objective": "objective", "lower_bound": "lower_bound", "gap": "duality_gap",
          "min_margin": "min_margin"}  # fmt: skip
"""Column of `trials.parquet`, without its norm -> number of `solutions.npz`."""

CLOSE = 1e-12
"""Relative error of initial weights."""


@dataclass
class InstanceProof:
    """What follows for one instance.

    Attributes
    ----------
    config : mapping
        The recorded config.
    at : mapping
        The stored arrays of the instance.
    instance : Instance
        Stored tokens with drawn labels and head.
    head : HeadAndLoss or None
        None if it, or its final parameters, are not known.
    drawn_head : HeadAndLoss or None
        With its drawn parameters; differs from `head` where that is trained.
    start : Array or None
        The drawn initial weights.
    steps : list of float or None
        The recorded steps; None for a plug-in.
    matrices : mapping of str to Array
        The matrices of distance probes whose files are here.
    other_heads : mapping of str to float
        Mean correlation of the other heads of a pretrained layer with the SVM of each norm.
    """

    config: Mapping[str, Any]
    at: Mapping[str, Any]
    instance: Instance
    head: HeadAndLoss | None
    drawn_head: HeadAndLoss | None
    start: Array | None
    steps: list[float] | None
    matrices: Mapping[str, Array] = field(default_factory=dict)
    other_heads: Mapping[str, float] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.svms = svms_of(self.at, self.config["svm"])
        self.proofs = {name: verify(svm) for name, svm in self.svms.items()}

    @property
    def tokens(self) -> str:
        """The selection: top, optimal or multi."""
        return str(self.config["selection"]["tokens"])

    @property
    def norms(self) -> list[str]:
        """The norms of the SVMs."""
        return list(self.config["svm"]["norms"])

    @cached_property
    def trained(self) -> Trained | None:
        """The trained weights; None without training, or where they diverged."""
        if self.tokens == "optimal" or not np.isfinite(self.at["trained_W"]).all():
            return None
        return Trained(self.instance, self.head, self.at["trained_W"])

    @property
    def diverged(self) -> bool:
        """Whether a trained weight is not finite."""
        return self.tokens != "optimal" and self.trained is None

    @cached_property
    def scores(self) -> Scores | None:
        """The scores by the head at the end of training."""
        return None if self.head is None else Scores.of(self.instance, self.head)

    @cached_property
    def facts(self) -> Facts:
        """What decides the status."""
        trained, scores, selection = self.trained, self.scores, self.config["selection"]
        negligible = None
        if trained is not None and self.tokens == "multi":
            some = trained.found.attended(selection["negligible"])
            kept = [bool((~part & self.instance.mask).any()) for part in some]
            negligible = kept[0] if kept[0] == kept[1] else None
        return Facts(
            tied_softmax=None if trained is None else trained.found.tied(),
            tied_scores=None if scores is None else scores.tied(),
            other_tokens=None if scores is None else scores.others_tie(self.instance.X),
            all_positive=bool((self.instance.Y > 0).all()),
            some_negligible=negligible,
            svms={name: svm.status for name, svm in self.svms.items()},
        )

    # --- the row ----------------------------------------------------------------------------------

    def columns(self, row: Mapping[str, Any]) -> dict[str, Expected | None]:
        """Return what the columns of the row may hold; None: it does not follow."""
        columns: dict[str, Expected | None] = {}
        if self.tokens == "optimal":
            columns["tie"] = truth(self.facts.tied_scores)
        elif self.trained is None:
            columns |= dict.fromkeys(OF_TRAINING) | {"training": Words(("diverged",))}
        else:
            ties = _either(self.facts.tied_softmax, self.facts.tied_scores)
            columns |= {"risk": None, "flat": None}
            columns |= self.trained.columns(self.config["selection"], ties)
            ends = "saturated" if row["saturated"] else "unsaturated"
            words = (ends, "stalled", "finite_optimum")
            trains_head = self.config["head"].get("train")
            columns["training"] = Words((*words, "diverged") if trains_head else words)
        for norm in self.config["svm"]["norms"]:
            svm = self.svms[norm]
            columns[f"{norm}_status"] = Words((svm.status,))
            for column, name in TABLED.items():
                columns[f"{norm}_{column}"] = number(getattr(svm, name))
            found = svm_columns(svm) if self.proofs[norm].proved else {}
            columns |= {f"{norm}_{name}": value for name, value in found.items()}
        columns |= self._hypotheses()
        if self.tokens != "multi":
            columns["assumption_b1"] = self._b1()
        if self.tokens == "top":
            columns["convergence"] = Words(self._convergence(row))
            columns["direction_change"] = self._direction_change()
            W = self.at["trained_W"]
            columns |= {
                f"{norm}_margin_gap": _at_end(self._margin_gap(norm, W)) for norm in self.norms
            }
        if self.tokens == "multi":
            columns |= self._attained()
        if self.tokens != "optimal":
            curves = self._correlations(self.at["trained_W"])
            columns |= {name: _at_end(curve) for name, curve in curves.items()}
            columns |= self._probes_at_end()
        return columns

    def _probes_at_end(self) -> dict[str, Expected | None]:
        """Return the columns of the probes; None: it does not follow."""
        names = ranges(self.config)
        if self.diverged:
            return dict.fromkeys(names, NAN)
        assert self.trained is not None
        W = self.at["trained_W"][None]
        found = self._probes(W, Trained(self.instance, None, W).found)
        return {name: _value(found[name]) if name in found else None for name in names}

    def _probes(self, W: Array, found: Attention) -> dict[str, Curve]:
        K, Q = self.at.get("trained_K"), self.at.get("trained_Q")
        factors = None if K is None or Q is None else (K, Q)
        further = None
        if self.head is not None and (held_out := self.instance.held_out) is not None:
            further = held_out, self.head
        drawn = None if self.drawn_head is None else (self.instance, self.drawn_head)
        given = self.matrices, self._margin_gap, self.other_heads, further, drawn
        selected = self.at["selected"]
        return probe_curves(self.config, W, found, factors, *given, selected, self._optimality)

    def _optimality(self) -> dict[str, tuple[float, float]]:
        """Return the shares of samples with optimal, and locally optimal tokens, and their errors.

        They are those after training, and those by chance; the former only if scores are known.
        """
        mask, selected = self.at["mask"], self.at["selected"]
        others = mask & (np.arange(mask.shape[1]) != selected[:, None])
        near = {"best": (others, others)}
        for norm in ("frobenius", "nuclear"):
            svm = self.svms.get(norm)
            if svm is not None and svm.status == "solved":
                rows = Rows(svm)
                if not rows.equality.any():
                    near[norm] = support(rows, rows.kappa())
        found, undefined = {}, (math.nan, 0.0)
        for name in ("best", "frobenius", "nuclear"):
            them = near.get(name)
            found[f"{name}_chance"] = share_by_chance(them) if them else undefined
            if self.scores is not None:
                found[name] = self.scores.share_above(selected, them) if them else undefined
        return found

    def _b1(self) -> Expected | None:
        if self.scores is None or self.scores.tied() is not False:
            return None
        proof = self.proofs.get("frobenius")
        same = proof is not None and (self.scores.best == self.at["selected"]).all()
        if proof is not None and same and proof.proved and refutes_b1(self.svms["frobenius"]):
            return truth(False)
        holds = assumption_b1(self.instance, self.scores.best)
        return None if holds is None else truth(holds)

    def _hypotheses(self) -> dict[str, Expected | None]:
        """Return the columns of the hypotheses; None: it does not follow."""
        names = self.config["hypotheses"]
        if self.scores is None or self.drawn_head is None:
            return dict.fromkeys(names)
        return decided(names, Deciding(self.instance, self.scores, self.drawn_head, self.start))

    def _convergence(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        if row["status"] in ("tie", "diverged"):
            return ("",)
        optimal = None if self.scores is None else self.scores.optimal(self.at["selected"])
        svms = {name: (svm.status, svm.objective) for name, svm in self.svms.items()}
        try:
            limits = [self._limit(row, norm_of_limit(self.config))]
        except UnknownError:
            limits = [self._limit(row, norm) for norm in (None, *self.norms)]
        found = (convergence_types(row["saturated"], svms, optimal, limit) for limit in limits)
        return tuple(dict.fromkeys(word for words in found for word in words))

    def _limit(self, row: Mapping[str, Any], norm: str | None) -> Limit:
        """Return what is known of the SVM in the norm of what was trained."""
        if norm not in self.norms:
            return Limit()
        svm, local = self.svms[norm], None
        if self.scores is not None and svm.status in ("solved", "unconstrained"):
            rows = Rows(svm)
            near = support(rows, rows.kappa())
            local = self.scores.above(self.at["selected"], near)
        threshold = self.config["selection"]["settled"]
        settled: bool | None = True
        for value in (row[correlation(norm)], row["direction_change"]):
            if not value <= threshold * (1 + CLOSE):
                return Limit(svm.status, local, False)
            if value > threshold * (1 - CLOSE):
                settled = None
        return Limit(svm.status, local, settled)

    def _direction_change(self) -> Expected | None:
        """Return 1 - correlation of W with W half-way, if that snapshot is known."""
        if self.steps is None:
            return None
        half = sum(step <= self.steps[-1] / 2 for step in self.steps) - 1
        if half in (-1, len(self.steps) - 1):
            return NAN
        if self.config["keep_path"]:
            return _at_end(one_minus_correlation(self.at["trained_W"], self.at["snapshots"][half]))
        if half > 0 or self.start is None:
            return Either((NAN, Interval(0.0, 2.0 + CLOSE)))
        if not self.start.any():
            return NAN
        value, apart = one_minus_correlation(self.at["trained_W"], self.start)
        return _at_end((value, apart + CLOSE))

    def _margin_gap(self, norm: str, W: Array) -> tuple[float, float]:
        """Return 1 - ||W_mm|| min_k d_k^T W z_k / ||W|| and its error bound."""
        svm = self.svms.get(norm)
        if svm is None or svm.status != "solved" or not (np.isfinite(W).all() and W.any()):
            return math.nan, 0.0
        W = W / max(float(np.abs(W).max()), np.finfo(float).tiny)  # its scale does not matter
        rows = Rows(replace(svm, W=W))
        margins, apart = rows.margins()
        size = computed(W, norm)
        ratio = svm.objective / size
        least = margins[rows.inequality].min()
        error = ratio * (apart.max() + 64 * len(W) * EPS * abs(least)) + 4 * EPS
        return float(1 - ratio * least), float(error)

    def _correlations(self, W: Array) -> dict[str, Curve]:
        """Return every 1 - correlation of W (..., d, d), with error bounds."""
        norms = self.config["svm"]["norms"]
        targets = {"one_minus_corr_1token": "one_token"} if self.tokens == "multi" else {}
        targets |= {correlation(norm): norm for norm in norms}
        curves = {
            column: one_minus_correlation(W, self.svms[name].W) for column, name in targets.items()
        }
        for norm in norms if self.tokens == "multi" else ():
            parts = self.svms[f"{norm}_fin"].W, self.svms[norm].W
            curves[svmeq_name(norm)] = one_minus_correlation(W, svmeq(W, *parts), SPAN)
            if norm == "frobenius":
                published = svmeq_least_squares(W, *parts)
                curves["one_minus_corr_svmeq_lsq"] = one_minus_correlation(W, published, SPAN)
        return curves

    def _attained(self) -> dict[str, Expected | None]:
        """Return C and the margin gap of every norm of Gen-SVM."""
        columns: dict[str, Expected | None] = {}
        W, one_token = self.at["trained_W"], self.svms["one_token"]
        for norm in self.norms:
            parts = self.svms[f"{norm}_fin"].W, self.svms[norm].W
            low, high = svmeq_factors(W, *parts, SPAN)
            columns[f"svmeq_C_{norm}"] = Interval(low, high)
            columns[f"{norm}_margin_gap"] = _at_end(attained_gap(self.at, norm, one_token))
        return columns

    # --- the history ------------------------------------------------------------------------------

    def curves(self) -> tuple[list[int], dict[str, Curve]]:
        """Return the snapshots whose weights are known, and the values of the history there."""
        if self.trained is None or self.steps is None:
            return [], {}
        last = len(self.steps) - 1
        if self.config["keep_path"]:
            known, W = list(range(last + 1)), self.at["snapshots"]
        elif self.start is None or last == 0:
            known, W = [last], self.at["trained_W"][None]
        else:
            known, W = [0, last], np.stack([self.start, self.at["trained_W"]])
        path = self._over(W)
        curves = self._correlations(W)
        curves |= {"max_softmax": path.max_softmax(), "W_norm": path.norm()}
        if (risk := path.risk()) is not None:
            curves["risk"] = risk
        curves |= self._probes(W, path.found)
        for norm in self.norms if self.tokens == "top" else ():
            if norm not in NORMS:
                pairs = np.array([self._margin_gap(norm, V) for V in W])
                curves[f"margin_gap_{norm}"] = pairs[:, 0], pairs[:, 1]
        if not self.config["keep_path"] and self.start is not None:
            curves = {name: _looser_first(curve) for name, curve in curves.items()}
        return known, curves

    def _over(self, W: Array) -> Trained:
        """Return what follows from the weights W (S, d, d) of the known snapshots."""
        return Trained(self.instance, self.head, W)


OF_TRAINING = ("tie", "saturated", "min_top_softmax", "max_masked_softmax", "attended_tokens",
               "flat", "risk", "W_norm")  # fmt: skip
SPAN = 1e-9
"""Relative error of the direction W_fin + C W_mm."""


def with_tokens(instance: Instance, at: Mapping[str, Any]) -> Instance:
    """Return the drawn instance with the stored X, Z and mask."""
    return replace(instance, X=at["X"], Z=at["Z"], mask=at["mask"])


def _looser_first(curve: Curve) -> Curve:
    """Return the curve with the rounding of initial weights K Q^T in its first value."""
    value, apart = curve
    apart = np.array(apart)
    if len(apart) > 1:
        apart[0] += CLOSE * (1 + np.abs(value[0]))
    return value, apart


def _value(curve: Curve) -> Expected:
    value, apart = curve
    return _at_end((value[-1], apart[-1]))


def _at_end(curve: tuple[Any, Any]) -> Expected:
    value, apart = (float(part) for part in curve)
    if np.isinf(apart):  # rounding decides even whether the number is defined
        return Either((NAN, number(value, apart)))
    return NAN if np.isnan(value) else number(value, apart)


def _either(a: bool | None, b: bool | None) -> bool | None:
    """Return a or b in three-valued logic."""
    if a or b:
        return True
    return None if a is None or b is None else False
