"""The implicit bias of optimizers on attention: arXiv 2502.04664, 2406.10650 and 2410.14581."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Rule, runs
from ._conditions import NEAR, SELECTED, SETTLED, by_norm, margin_limit, unsolved

MARGIN = (
    "margin gap 1 - rho <= 2e-2 after 10 000 steps; a gap >= 0.1 of which at least 90 % "
    "were there after 5000 refutes it"
)

# --- steepest descent in a norm, arXiv 2502.04664 -------------------------------------------------


def margin_in_norm_of_steps(evidence: Evidence) -> list[Rule]:
    """Return whether the margin in the norm of the steps becomes the largest one."""
    return margin_limit(evidence, evidence["norm"].fillna(""))


STEEPEST = Claim(
    name="steepest_margin",
    paper="2502.04664",
    reading=CARRIED_OVER,
    number="normalised steepest descent on linear models, carried over to attention by us",
    title="steepest descent in a norm maximises the margin in that norm",
    statement="W(k + 1) = W(k) - eta argmax { <S, grad L(W(k))> : ||S|| <= 1 }  =>  "
    "min_it (x_i,alpha_i - x_it)^T W(k) z_i / ||W(k)|| -> 1 / ||W_mm||, alpha selected, any norm",
    hypotheses=SELECTED
    | {"steps of one size in a norm, no momentum": "optimizer == 'steepest' and beta == 0"},
    prediction=margin_in_norm_of_steps,
    runs=runs("optimizer_geometry"),
    tolerance=MARGIN,
)

MOMENTUM = replace(
    STEEPEST,
    name="momentum_margin",
    number="the same with momentum, carried over to attention by us",
    title="steepest descent with momentum maximises the same margin",
    statement="M(k) = beta M(k - 1) + grad L(W(k)), W(k + 1) = W(k) - eta argmax { <S, M(k)> : "
    "||S|| <= 1 }  =>  the margin in that norm tends to 1 / ||W_mm||; here the maximum norm",
    hypotheses=SELECTED
    | {"steps of one size in a norm, momentum": "optimizer == 'steepest' and beta > 0"},
)

# --- Adam, arXiv 2406.10650 -----------------------------------------------------------------------


def margin_in_maximum_norm(evidence: Evidence) -> list[Rule]:
    """Return whether the margin in the maximum norm becomes the largest one."""
    return margin_limit(evidence, pd.Series("max", index=evidence.trials.index))


ADAM_MAX = Claim(
    name="adam_max",
    paper="2406.10650",
    reading=CARRIED_OVER,
    number="Adam on separable data, eps = 0, carried over to attention by us",
    title="Adam without a stability constant maximises the margin in the maximum norm",
    statement="eps = 0, beta1 <= beta2, eta_k falling, sum eta_k infinite  =>  "
    "min_it (x_i,alpha_i - x_it)^T W(k) z_i / max_jl |w_jl(k)| -> 1 / ||W_mm||, alpha selected",
    hypotheses=SELECTED | {"eps = 0": "eps == 0"},
    prediction=margin_in_maximum_norm,
    runs=runs("adam"),
    tolerance=MARGIN,
)

ADAM_EPS = replace(
    ADAM_MAX,
    name="adam_eps",
    number="Adam with a stability constant eps > 0, which the theorem leaves out",
    title="Adam with a stability constant maximises the margin in the maximum norm too",
    statement="as adam_max, with eps = 1e-8",
    hypotheses=SELECTED | {"eps > 0": "eps > 0"},
)

# --- mirror descent, arXiv 2410.14581 -------------------------------------------------------------

FAR = 1e-2
"""Least 1 - correlation of another direction, if it has settled."""


def direction_of_lp_svm(evidence: Evidence) -> list[Rule]:
    """Return whether W has the direction of the SVM in the l_p norm of the potential."""
    norms = evidence["p"].map(lambda p: "frobenius" if p == 2 else f"l{p:g}")
    apart = by_norm(norms, lambda norm: evidence[f"one_minus_corr_{norm}"])
    return [
        *unsolved(by_norm(norms, lambda norm: evidence[f"{norm}_status"])),
        (apart <= NEAR, HOLDS),
        ((apart > FAR) & (evidence["direction_change"] <= SETTLED), FAILS),
        (True, "direction not settled"),
    ]


MIRROR_DESCENT = Claim(
    name="mirror_descent",
    paper="2410.14581",
    number="convergence of l_p-AttGD, for normalised steps that grow",
    reading=CARRIED_OVER,
    title="mirror descent in l_p goes to the l_p SVM of the selected tokens",
    statement="psi'(W(k + 1)) = psi'(W(k)) - eta grad L(W(k)), psi(W) = sum_jl |w_jl|^p / p  =>  "
    "W(k) / ||W(k)||_p -> W_mm / ||W_mm||_p of least l_p norm, alpha selected",
    hypotheses=SELECTED,
    prediction=direction_of_lp_svm,
    runs=runs("mirror"),
    tolerance="1 - correlation <= 1e-3 after 10 000 growing, normalised steps; > 1e-2 of a "
    "direction that changed by at most 1e-4 since half-way refutes it",
)
