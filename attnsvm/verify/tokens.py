"""Scores of tokens, which are optimal, and what training converged to; None if rounding decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.heads import HeadAndLoss, tied
from attnsvm.verify.instances import Instance, option

Tokens = NDArray[np.int64]
Mask = NDArray[np.bool_]
Support = tuple[Mask, Mask]
"""The tokens (n, T) whose margin is one, for certain and possibly."""


@dataclass(frozen=True)
class Scores:
    """gamma_it = Y_i h(x_it), -inf at inadmissible tokens, and error bounds; both (n, T)."""

    gamma: Array
    error: Array

    @classmethod
    def of(cls, instance: Instance, head: HeadAndLoss) -> Scores:
        """Return the scores of an instance."""
        tokens = instance.X.swapaxes(0, 1)  # a head may have a vector for every sample
        value, error = (part.T for part in head.value(tokens, 0.0, instance.head))
        gamma = np.where(instance.mask, instance.Y[:, None] * value, -np.inf)
        return cls(gamma, np.broadcast_to(np.where(instance.mask, error, 0.0), gamma.shape))

    @property
    def best(self) -> Tokens:
        """Return the tokens of highest score, (n,)."""
        return np.asarray(self.gamma.argmax(-1))

    def tied(self) -> bool | None:
        """Return whether two tokens of a sample share the highest score."""
        return tied(self.gamma, self.error)

    def may_be_best(self) -> Mask:
        """Return the tokens whose score may be the highest of their sample, (n, T)."""
        at = self.best[:, None]
        low = np.take_along_axis(self.gamma - self.error, at, -1)
        return np.asarray(self.gamma + self.error >= low)

    def others_tie(self, X: Array) -> bool | None:
        """Return whether different tokens share the highest score of a sample."""
        if (ties := self.tied()) is False:
            return False
        near = self.may_be_best()
        different = False
        for x, candidates in zip(X, near, strict=True):
            different |= bool((x[candidates] != x[candidates][0]).any())
        return ties if different else False

    def optimal(self, selected: Tokens) -> bool | None:
        """Return whether every selected token has the highest score of its sample."""
        near = self.may_be_best()
        at = selected[:, None]
        if not np.take_along_axis(near, at, -1).all():
            return False
        return True if (near.sum(-1) == 1).all() else None

    def above(self, selected: Tokens, support: Support) -> bool | None:
        """Return whether selected tokens score above their neighbours, those of margin one."""
        at = selected[:, None]
        chosen, apart = (np.take_along_axis(x, at, -1) for x in (self.gamma, self.error))
        certain, possible = support
        if (certain & (self.gamma - self.error >= chosen + apart)).any():
            return False
        beaten = self.gamma + self.error < chosen - apart
        return True if (beaten | ~possible).all() else None

    def share_above(self, selected: Tokens, others: Support) -> tuple[float, float]:
        """Return the share of samples whose selected token scores above `others`, and its error."""
        at = selected[:, None]
        chosen, apart = (np.take_along_axis(x, at, -1) for x in (self.gamma, self.error))
        certain, possible = others
        beaten = self.gamma + self.error < chosen - apart
        may_be_beaten = self.gamma - self.error < chosen + apart
        low, high = (beaten | ~possible).all(-1).mean(), (may_be_beaten | ~certain).all(-1).mean()
        return float(low + high) / 2, float(high - low) / 2 + EPS


def share_by_chance(others: Support) -> tuple[float, float]:
    """Return the expected share above `others` if scores were in random order, and its error."""
    high, low = ((1 / (1 + found.sum(-1))).mean() for found in others)
    rounding = (len(others[0]) + 4) * EPS
    return float(low + high) / 2, float(high - low) / 2 + rounding


@dataclass(frozen=True)
class Limit:
    """What is known of the SVM in the norm of what was trained.

    Attributes
    ----------
    status : str
        Of that SVM; empty if there is none.
    local : bool or None
        The selected tokens score above their neighbours under its solution.
    settled : bool or None
        The direction of W is taken for its limit.
    """

    status: str = ""
    local: bool | None = None
    settled: bool | None = None

    def types(self) -> tuple[str, ...]:
        """Return the types of a saturated instance with feasible tokens that are not optimal."""
        if not self.status:
            return ("unknown",)
        if self.status == "undecided":
            return ("undecided",)
        elsewhere = {True: ("not_local",), False: ("unsettled",), None: ("not_local", "unsettled")}
        beyond = elsewhere[self.settled]
        return {True: ("local",), False: beyond, None: ("local", *beyond)}[self.local]


def convergence_types(
    saturated: bool, svms: Mapping[str, tuple[str, float]], optimal: bool | None, limit: Limit
) -> tuple[str, ...]:
    """Return the types that a trained instance may have: the first that applies.

    Parameters
    ----------
    saturated : bool
        Every sample attends to one token.
    svms : mapping
        Status and objective of the SVM in each norm.
    optimal : bool or None
        Whether the selected tokens are the optimal ones.
    limit : Limit
        The SVM in the norm of what was trained.
    """
    if not saturated:
        return ("unsaturated",)
    if any(status == "infeasible" for status, _ in svms.values()):
        return ("infeasible",)
    if not any(math.isfinite(objective) for _, objective in svms.values()):
        return ("undecided",)
    if optimal:
        return ("global",)
    return limit.types() if optimal is False else ("global", *limit.types())


LIMITS = {
    **dict.fromkeys(
        ("NormalizedGD", "GD", "SafeGD", "Momentum", "Polyak", "RegularizationPath"), "frobenius"
    ),
    "SignGD": "max",
}
"""Norm of the SVM that optimizers of W converge to; Steepest and MirrorDescent name theirs."""


def norm_of_limit(config: Mapping[str, Any]) -> str | None:
    """Return the norm of the SVM that training converges to; None where it is not known.

    That of the optimizer for W; for the factors of gradient descent the nuclear norm.

    Raises
    ------
    UnknownError
        If optimizer or parameterization is a plug-in.
    """
    optimizer, rule = option(config, "optimizer"), option(config, "parameterization")
    norm = LIMITS.get(optimizer)
    if optimizer == "Steepest":
        norm = config["optimizer"]["norm"]
    if optimizer == "MirrorDescent":
        p = config["optimizer"]["p"]
        norm = "frobenius" if p == 2 else f"l{p:g}"
    if rule == "W":
        return norm
    return "nuclear" if norm == "frobenius" else None
