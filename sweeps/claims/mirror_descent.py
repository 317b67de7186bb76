"""arXiv 2410.14581: mirror descent with an l_p potential goes to the direction of the l_p SVM."""

from __future__ import annotations

import pandas as pd

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Words, ruled
from ._conditions import NEAR, saturated, unsolved
from ._runs import MIRROR


def own_norm(evidence: Evidence) -> pd.Series:
    """Return the name of the l_p norm of the potential."""
    return evidence.trials["p"].map(lambda p: "frobenius" if p == 2 else f"l{p:g}")


def prediction(evidence: Evidence) -> Words:
    """Return whether W has the direction of the l_p SVM of the selected tokens."""
    trials, norms = evidence.trials, own_norm(evidence)
    apart = pd.Series(float("nan"), index=trials.index)
    for norm in set(norms):
        name = "one_minus_corr_w_mm" if norm == "frobenius" else f"one_minus_corr_{norm}"
        apart[norms == norm] = trials.loc[norms == norm, name]
    settled = trials["direction_change"] <= SETTLED
    return ruled(
        evidence,
        [
            *unsolved(evidence, norms),
            (apart <= NEAR, HOLDS),
            ((apart > FAR) & settled, FAILS),
        ],
        otherwise="direction not settled",
    )


FAR, SETTLED = 1e-2, 1e-4
"""Least 1 - correlation of another direction, if it changed by at most this since half-way."""

CLAIM = Claim(
    name="mirror_descent",
    paper="2410.14581",
    number="convergence of l_p-AttGD, for normalised steps that grow",
    reading=CARRIED_OVER,
    title="mirror descent in l_p goes to the l_p SVM of the selected tokens",
    statement="psi'(W(k + 1)) = psi'(W(k)) - eta grad L(W(k)), psi(W) = sum_jl |w_jl|^p / p  =>  "
    "W(k) / ||W(k)||_p -> W_mm / ||W_mm||_p of least l_p norm, alpha selected",
    hypotheses={"one token selected in each sample": saturated},
    prediction=prediction,
    runs=(MIRROR,),
    tolerance="1 - correlation <= 1e-3 after 10 000 growing, normalised steps; > 1e-2 of a "
    "direction that changed by at most 1e-4 since half-way refutes it",
)
