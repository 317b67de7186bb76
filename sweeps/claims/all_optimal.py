"""What breaks the theory: if all tokens are optimal, nothing is selected."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, STRONGER, Claim, Evidence, Truths, Words, ruled
from ._runs import TIES

ROUNDING = 1e-12
"""Largest relative change of weights that stay."""


def one_score(evidence: Evidence) -> Truths:
    """Return whether all tokens of a sample have the same score, exactly."""
    return evidence.truths(evidence.trials["score_gap"] == 0)


def plain(evidence: Evidence) -> Truths:
    """Return whether steps are not normalised."""
    return evidence.truths(evidence.trials["optimizer"] == "gd")


def prediction(evidence: Evidence) -> Words:
    """Return whether attention and norm are at the end what they were at the start."""
    moved = evidence.truths(False)
    for quantity in ("W_norm", "max_softmax"):
        curve = evidence.curve(quantity)
        change = curve.sub(curve.iloc[:, 0], axis=0).abs().max(axis=1, skipna=False)
        moved |= evidence.truths(change > ROUNDING * curve.iloc[:, 0], change.notna())
    return ruled(evidence, [(moved, FAILS), (~moved, HOLDS)], otherwise="a step is not recorded")


CLAIM = Claim(
    name="all_optimal",
    paper="2308.16898",
    reading=STRONGER,
    number="Definition 1, without its assumption that other tokens score lower",
    title="if all tokens of a sample have one score, W stays where it begins",
    statement="gamma_it = gamma_i for all t, linear head  =>  grad L = 0 everywhere, W(k) = W(0)",
    hypotheses={
        "all tokens of a sample have one score": one_score,
        "steps are not normalised": plain,
    },
    prediction=prediction,
    runs=(TIES,),
    tolerance="norm of W and mean largest softmax change by at most 1e-12 of what they are at the "
    "start, at any recorded step: rounding",
)
