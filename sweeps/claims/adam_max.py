"""arXiv 2406.10650 on attention: Adam with eps = 0 maximises the margin in the maximum norm."""

from __future__ import annotations

import pandas as pd

from ._claim import CARRIED_OVER, Claim, Evidence, Truths, Words
from ._conditions import margin_limit, saturated
from ._runs import ADAM


def prediction(evidence: Evidence) -> Words:
    """Return whether the margin in the maximum norm becomes the largest one."""
    return margin_limit(evidence, pd.Series("max", index=evidence.trials.index))


def no_constant(evidence: Evidence) -> Truths:
    """Return whether eps = 0."""
    return evidence.truths(evidence.trials["eps"] == 0)


CLAIM = Claim(
    name="adam_max",
    paper="2406.10650",
    reading=CARRIED_OVER,
    number="Adam on separable data, eps = 0, carried over to attention by us",
    title="Adam without a stability constant maximises the margin in the maximum norm",
    statement="eps = 0, beta1 <= beta2, eta_k falling, sum eta_k infinite  =>  "
    "min_it (x_i,alpha_i - x_it)^T W(k) z_i / max_jl |w_jl(k)| -> 1 / ||W_mm||, alpha selected",
    hypotheses={"one token selected in each sample": saturated, "eps = 0": no_constant},
    prediction=prediction,
    runs=(ADAM,),
    tolerance="margin gap 1 - rho <= 2e-2 after 10 000 steps; a gap >= 0.1 of which at least 90 % "
    "were there after 5000 refutes it",
)
