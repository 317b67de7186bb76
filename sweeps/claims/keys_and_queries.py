"""Does (K, Q) go to the SVM of least nuclear norm? arXiv 2403.08699, and 2308.16898 on descent."""

from __future__ import annotations

from dataclasses import replace

from ._claim import CARRIED_OVER, FAILS, HOLDS, Claim, Evidence, Rule, runs
from ._conditions import (
    FALL,
    NEAR,
    OPTIMAL_SELECTED,
    ROUNDED,
    SELECTED,
    SETTLED,
    STALE,
    TURNING,
    unsolved,
)

UNSOLVED = unsolved("nuclear_status")

# --- normalised steps that grow -------------------------------------------------------------------


def descent_near_svm(evidence: Evidence) -> list[Rule]:
    """Return whether K Q^T has the largest margin by the nuclear norm; a plateau refutes it."""
    before, gap = evidence.at("margin_gap_nuclear", 2, 1)
    stopped = (evidence["direction_change"] <= SETTLED) & (gap >= STALE * before)
    return [
        *UNSOLVED,
        (f"nuclear_margin_gap <= {NEAR}", HOLDS),
        ((evidence["nuclear_margin_gap"] > 10 * NEAR) & stopped, FAILS),
        (True, "direction not settled"),
    ]


DESCENT = Claim(
    name="descent_kq",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="experiments of section 5, which add a ridge",
    title="gradient descent on (K, Q) goes to the SVM of least nuclear norm",
    statement="K(k) Q(k)^T / ||K(k) Q(k)^T||_*  ->  solutions of Att-SVM* at the selected tokens, "
    "scaled to nuclear norm 1, without a ridge",
    hypotheses=SELECTED,
    prediction=descent_near_svm,
    runs=runs("descent_kq"),
    tolerance="margin gap 1 - rho <= 1e-3; a gap > 1e-2 of a direction that has changed by at most "
    "1e-4 since half-way of 10 000 growing steps refutes it, if it has fallen by at most 3 % "
    "meanwhile",
)

# --- gradient flow --------------------------------------------------------------------------------

GAP_NEAR, GAP_FAR = 1e-2, 2e-2
"""Nuclear margin gap that counts as none; the least one that refutes, if it no longer falls."""


def flow_near_svm(evidence: Evidence) -> list[Rule]:
    """Return whether K Q^T has the largest nuclear margin; a gap that stays refutes it."""
    before, gap = evidence.at("margin_gap_nuclear", 10, 1)
    return [
        *UNSOLVED,
        (f"nuclear_margin_gap <= {GAP_NEAR}", HOLDS),
        ((evidence["nuclear_margin_gap"] >= GAP_FAR) & (gap >= before), FAILS),
        (True, "margin gap still falling, or not far"),
    ]


FLOW = Claim(
    name="flow_kq",
    paper="2403.08699",
    number="gradient flow from aligned weights, as we understand it; there rows have common "
    "singular vectors, here they are random",
    reading=CARRIED_OVER,
    title="gradient flow on (K, Q) from aligned weights goes to the SVM of least nuclear norm",
    statement="K' = -grad_K L, Q' = -grad_Q L, exponential loss, L -> inf L, singular vectors of "
    "K(0), Q(0) those of the data  =>  K Q^T / ||K Q^T||_* -> SVM solutions of nuclear norm 1",
    hypotheses=SELECTED
    | OPTIMAL_SELECTED
    | {"K(0), Q(0) aligned with the first gradient": "init == 'aligned'"},
    prediction=flow_near_svm,
    runs=runs("flow_kq"),
    tolerance="gradient descent with one step for K and Q, for which the risk provably falls; "
    "margin gap <= 1e-2 after 10 000 steps; a gap >= 2e-2 that has not fallen over the last "
    "decade of steps refutes it. The first gradient stands for the data: the paper's "
    "alignment needs rows with common singular vectors, which random data have not",
)

# --- small, falling and constant steps ------------------------------------------------------------


def comes_nearer(evidence: Evidence) -> list[Rule]:
    """Return whether 1 - correlation with W_star_mm falls over the last decade of steps.

    A direction that still turns, perhaps on its way to other tokens, refutes nothing.
    """
    before, end = evidence.at("one_minus_corr_nuclear", 10, 1)
    stopped = evidence["direction_change"] <= TURNING * end
    return [
        *UNSOLVED,
        ((end <= FALL * before) | (end <= ROUNDED), HOLDS),
        ((end >= before) & stopped, FAILS),
        (True, "hardly falls, or still turns"),
    ]


IS_SMALL = "(lr <= 0.01 or schedule == 'decay')"

SMALL = Claim(
    name="kq_small_steps",
    paper="2403.08699",
    reading=CARRIED_OVER,
    number="gradient flow, from any start: carried over by us to steps that are small or fall",
    title="without a ridge (K, Q) nears the SVM of least nuclear norm by small or falling steps",
    statement="V(k + 1) = V(k) - eta_k grad_V L / ||grad_V L||_F for V = K, Q, with eta_k = 0.01 "
    "or 0.1 / sqrt(1 + 0.01 k)  =>  1 - corr(K Q^T, W_star_mm) falls",
    hypotheses=SELECTED | {"small or falling steps": IS_SMALL},
    prediction=comes_nearer,
    runs=runs("kq_steps"),
    tolerance="1 - correlation falls to 0.9 or less from 10^4 to 10^5 steps, or to 1e-12; one that "
    "does not fall refutes it where the direction has changed by at most a hundredth of it since "
    "half-way",
)

CONSTANT = replace(
    SMALL,
    name="kq_constant_steps",
    number="gradient flow, from any start: carried over by us to constant steps of 0.1",
    title="without a ridge (K, Q) nears the SVM of least nuclear norm by constant steps, too",
    statement="as kq_small_steps, with eta_k = 0.1",
    hypotheses=SELECTED | {"constant steps of 0.1": f"not {IS_SMALL}"},
)
