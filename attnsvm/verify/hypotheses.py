"""Hypotheses of theorems, decided again from tokens, scores and initial weights in NumPy.

The SVMs of selections of tokens are solved here by non-negative least squares (Lawson and Hanson,
chapter 23), whatever the selection, and independently of the solvers of a run. Each function
returns the verdicts that a record may hold: one, or more where rounding decides; with None that the
record may leave it undecided.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import Array
from attnsvm.verify.expected import Expected, Words
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.instances import Instance
from attnsvm.verify.tokens import Scores

Verdicts = tuple[bool | None, ...]
ANY: Verdicts = (True, False, None)

UNDECIDED = 1e-12
"""Differences below this, relative to the largest number, are undecided in a record."""

UNCLEAR = 10.0
"""Factor within which rounding may decide whether a number is above a threshold."""

SELECTIONS = 4096
"""Largest number of selections that a run lists."""

NEIGHBOUR = 1e-6
"""Largest excess over 1 of the margin of a neighbour."""

RAY = 1e-10
"""Residual of the least-squares problem up to which no W separates the tokens."""


@dataclass(frozen=True)
class Deciding:
    """What decides the hypotheses of one instance.

    Attributes
    ----------
    instance, scores, head
        With the drawn parameters of the head.
    start : Array or None
        The initial weights, (d, d).
    """

    instance: Instance
    scores: Scores
    head: HeadAndLoss
    start: Array | None

    @cached_property
    def optimal(self) -> NDArray[np.int64]:
        """The tokens of highest score, (n,)."""
        return self.scores.best

    @cached_property
    def others(self) -> NDArray[np.bool_]:
        """The admissible tokens besides these, (n, T)."""
        others = self.instance.mask.copy()
        np.put_along_axis(others, self.optimal[:, None], False, 1)
        return others

    @cached_property
    def size(self) -> float:
        """The largest score."""
        return float(np.abs(self.scores.gamma[self.instance.mask]).max())

    @property
    def error(self) -> float:
        """The largest error of a score."""
        return float(self.scores.error.max())

    # --- the hypotheses ---------------------------------------------------------------------------

    def unique_optimum(self) -> Verdicts:
        """Every sample has one token of highest score."""
        gamma, others = self.scores.gamma, self.others
        if not others.any():
            return (True,)
        best = np.take_along_axis(gamma, self.optimal[:, None], 1)
        gap = (best - gamma)[others].min()
        return positive(gap, self.size, 2 * self.error)

    def assumption_b2(self) -> Verdicts:
        """The other tokens of each sample share one score, below the best."""
        rows = [gamma[others] for gamma, others in zip(self.scores.gamma, self.others, strict=True)]
        spread = max((float(np.ptp(row)) for row in rows if row.size), default=0.0)
        differ = positive(spread, self.size, 2 * self.error)
        pairs = itertools.product(differ, self.unique_optimum())
        found = (_and(None if one is None else not one, two) for one, two in pairs)
        return tuple(dict.fromkeys(found))

    def overparameterized(self) -> Verdicts:
        """D >= max(T - 1, n)."""
        n, _, d = self.instance.X.shape
        return (bool(d >= max(int(self.instance.mask.sum(1).max()) - 1, n)),)

    def optimum_feasible(self) -> Verdicts:
        """Some W separates the optimal tokens."""
        return _separable(self.instance, self.optimal)[0]

    def assumption_d(self) -> Verdicts:
        """Every other feasible selection has a neighbour that is optimal where it is not."""
        unclear = False
        for alpha in self._selections():
            if (alpha == self.optimal).all():
                continue
            seen = self._sees(alpha)
            if seen == (False,):
                return (False, None) if unclear else (False,)
            unclear |= seen != (True,)
        verdicts: Verdicts = (True,) if self._few else (None,)
        return ANY if unclear and self._few else (False, None) if unclear else verdicts

    @property
    def _few(self) -> bool:
        """Whether a run lists every selection."""
        return bool(math.prod(self.instance.mask.sum(1).tolist()) <= SELECTIONS)

    def _selections(self) -> Iterator[NDArray[np.int64]]:
        """Yield every selection; if they are too many, those that leave out one optimal token."""
        if self._few:
            lists = [np.flatnonzero(row) for row in self.instance.mask]
            yield from map(np.array, itertools.product(*lists))
            return
        for sample, token in np.argwhere(self.others):
            alpha = self.optimal.copy()
            alpha[sample] = token
            yield alpha

    def _sees(self, alpha: NDArray[np.int64]) -> Verdicts:
        """Whether alpha is infeasible or has an optimal token as neighbour where it differs."""
        feasible, margins = _separable(self.instance, alpha)
        if feasible == (False,):
            return (True,)
        left_out = np.flatnonzero(alpha != self.optimal)
        excess = margins[left_out, self.optimal[left_out]] - 1
        if (excess <= NEIGHBOUR / UNCLEAR).any():
            return (True,)
        if feasible == (True,) and (excess > UNCLEAR * NEIGHBOUR).all():
            return (False,)
        return ANY

    def runner_up_local(self) -> Verdicts:
        """The optimal tokens, but in the first sample the second best, are locally optimal."""
        gamma, alpha = self.scores.gamma, self.optimal.copy()
        if self.others[0].any():
            alpha[0] = np.where(self.others[0], gamma[0], -np.inf).argmax()
        feasible, margins = _separable(self.instance, alpha)
        if feasible != (True,):
            return (False,) if feasible == (False,) else ANY
        there = self.instance.mask & (np.arange(gamma.shape[1]) != alpha[:, None])
        above = np.take_along_axis(gamma, alpha[:, None], 1) - gamma
        near, far = margins - 1 <= NEIGHBOUR / UNCLEAR, margins - 1 > UNCLEAR * NEIGHBOUR
        if (there & near & (above < -2 * self.error)).any():
            return (False,)
        clear = far | (near & (above > 2 * self.error))
        return (True,) if clear[there].all() else ANY

    def aligned_gradient(self) -> Verdicts | None:
        """The step -grad L at the initial weights separates the optimal tokens."""
        X, Z, mask = self.instance.X, self.instance.Z, self.instance.mask
        if self.start is None or self.head.error:
            return None
        logits = np.where(mask, np.einsum("ntd,de,ne->nt", X, self.start, Z), -np.inf)
        s = np.exp(logits - logits.max(1, keepdims=True))
        s /= s.sum(1, keepdims=True)
        outputs = np.einsum("nt,ntd->nd", s, X)
        slopes = self.head.gradient(outputs, self.instance.head)
        if slopes is None:
            return None
        value, _ = self.head.value(outputs, 0.0, self.instance.head)
        weights = self.head.slope(self.instance.Y * value) * self.instance.Y
        scores = -np.einsum("ntd,nd->nt", X, slopes * weights[:, None])
        q = s * (scores - (s * scores).sum(1, keepdims=True))
        step = np.einsum("nt,ntd,ne->de", q, X, Z)
        moved = np.einsum("ntd,de,ne->nt", X, step, Z)
        if not self.others.any():
            return (True,)
        ahead = np.take_along_axis(moved, self.optimal[:, None], 1) - moved
        size = float(np.abs(moved).max())
        return positive(float(ahead[self.others].min()), size, UNCLEAR * UNDECIDED * size)

    def order_preserving(self) -> Verdicts | None:
        """No mixture of a sample's tokens scores above its best token."""
        if self.head.kind == "Linear":
            return (True,)
        if self.head.kind not in ("Relu", "Quadratic"):
            return (None,)
        if self.head.error:
            return None
        X, Y = self.instance.X, self.instance.Y
        best = np.take_along_axis(X, self.optimal[:, None, None], 1)
        slopes = self.head.gradient(best[:, 0], self.instance.head)
        if slopes is None:  # a token on a kink
            return ANY
        concave = Y < 0 if self.head.kind == "Relu" else Y > 0
        rise = np.einsum("ntd,nd->nt", X - best, slopes * Y[:, None])
        rises = rise[self.instance.mask & concave[:, None]]
        size = self.size + float(np.abs(rise).max())
        above = positive(float(rises.max(initial=-np.inf)), size, UNCLEAR * UNDECIDED * size)
        if self.head.kind == "Relu" and self._near_a_kink(best[:, 0], concave):
            return ANY
        return tuple(None if one is None else not one for one in above)

    def _near_a_kink(self, best: Array, concave: NDArray[np.bool_]) -> bool:
        projections = best[concave] @ self.instance.head["V"]
        near = UNCLEAR * UNDECIDED * np.linalg.norm(best[concave], axis=1, keepdims=True)
        return bool((np.abs(projections) <= near).any())


DECIDED: dict[str, Callable[[Deciding], Verdicts | None]] = {
    "unique_optimum": Deciding.unique_optimum,
    "assumption_b2": Deciding.assumption_b2,
    "assumption_d": Deciding.assumption_d,
    "overparameterized": Deciding.overparameterized,
    "optimum_feasible": Deciding.optimum_feasible,
    "order_preserving": Deciding.order_preserving,
    "runner_up_local": Deciding.runner_up_local,
    "aligned_gradient": Deciding.aligned_gradient,
}


def decided(names: Iterable[str], deciding: Deciding) -> dict[str, Expected | None]:
    """Return what the columns of these hypotheses may hold; None: it does not follow."""
    found = {name: DECIDED[name](deciding) for name in names}
    return {name: None if one is None else Words(one) for name, one in found.items()}


def trusted_hypotheses(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the hypotheses of a config that cannot be decided again."""
    known = str(config["head"]["_target_"]).rpartition(".")[2] in ("Linear", "Relu", "Quadratic")
    if "aligned_gradient" in config["hypotheses"] and not known:
        yield "aligned_gradient (of a head whose gradient is not known here)"


def positive(value: float, size: float, error: float) -> Verdicts:
    """Return what a record may say of value > 0, known to `error`; 0 is not positive."""
    found: list[bool | None] = []
    if value + error > 0:
        found.append(True)
    if value - error <= 0:
        found.append(False)
    if abs(value) <= UNCLEAR * UNDECIDED * size + error:
        found.append(None)
    return tuple(found)


def _and(one: bool | None, two: bool | None) -> bool | None:
    if one is False or two is False:
        return False
    return None if one is None or two is None else True


def _separable(instance: Instance, tokens: NDArray[np.int64]) -> tuple[Verdicts, Array]:
    """Return whether some W separates `tokens`, and the margins (n, T) of the least such W.

    min ||W||_F with margins >= 1 is min ||E u - f|| over u >= 0, E the rows and a last row of
    ones, f = (0, ..., 0, 1): W is its residual over minus the last entry of it.
    """
    from scipy.optimize import nnls  # its import is slow

    X, Z, mask = instance.X, instance.Z, instance.mask
    D = np.take_along_axis(X, tokens[:, None, None], 1) - X
    rows = np.einsum("ntd,ne->ntde", D, Z).reshape(*mask.shape, -1)
    there = mask.copy()
    np.put_along_axis(there, tokens[:, None], False, 1)
    margins = np.full(mask.shape, np.nan)
    if not there.any():
        return (True,), margins
    G = rows[there]
    sizes = np.linalg.norm(G, axis=1)
    if (sizes == 0).any():
        return (False,), margins
    scale = sizes.min()
    E = np.vstack([(G / scale).T, np.ones(len(G))])
    f = np.append(np.zeros(len(E) - 1), 1.0)
    try:
        u, residual = nnls(E, f)
    except RuntimeError:
        return ANY, margins
    r = E @ u - f
    if residual <= RAY:
        return (False,) if residual <= RAY / UNCLEAR else ANY, margins
    W = r[:-1] / -r[-1] / scale
    margins[there] = G @ W
    least = float(margins[there].min())
    return ((True,) if least > 0.5 else ANY), margins / max(least, 0.5)
