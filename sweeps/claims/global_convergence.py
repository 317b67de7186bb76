"""arXiv 2308.16898 on global convergence: conditions under which descent finds the optimal tokens.

And what breaks it: without one best token nothing is selected.
"""

from __future__ import annotations

from dataclasses import replace

from ._claim import CARRIED_OVER, FAILS, HOLDS, STRONGER, Claim, Evidence, Rule, runs
from ._conditions import GLOBAL, GLOBALLY, ONE_OPTIMUM, OVERPARAMETERISED, Hypotheses

B1: Hypotheses = {"B.1": "assumption_b1"}
GRADIENT: Hypotheses = {"-grad L(W(0)) separates the optimal tokens": "aligned_gradient"}
LIMIT = "W(k) / ||W(k)||_F -> W_mm / ||W_mm||_F at the optimal tokens"

B1_ALONE = Claim(
    name="b1_alone",
    paper="2308.16898",
    reading=STRONGER,
    number="Assumption B.1, read as a condition of global convergence",
    title="B.1 makes gradient descent find the optimal tokens",
    statement=f"(x_i,opt - x_it)^T W_mm z_i = 1 for all i and t != opt_i  =>  {LIMIT}",
    hypotheses=OVERPARAMETERISED | B1,
    prediction=GLOBALLY,
    runs=runs("descent", "counterexamples"),
    tolerance=GLOBAL,
)

B1_AND_D = replace(
    B1_ALONE,
    name="b1_and_d",
    number="Conjecture on Assumptions B.1 and D, for normalised steps that grow",
    reading=CARRIED_OVER,
    title="B.1 and D make gradient descent find the optimal tokens",
    statement="B.1, and every alpha != opt whose Att-SVM is feasible has a sample i with "
    f"alpha_i != opt_i and margin 1 of opt_i under W_mm(alpha)  =>  {LIMIT}",
    hypotheses=B1 | {"D": "assumption_d"},
)

SIZE_ALONE = replace(
    B1_ALONE,
    name="overparameterised",
    number="Abstract, read strictly",
    title="over-parameterisation makes gradient descent find the optimal tokens",
    statement=f"d >= max(T - 1, n)  =>  {LIMIT}",
    hypotheses=OVERPARAMETERISED | ONE_OPTIMUM,
    runs=runs("descent", "larger"),
)

GRADIENT_ALONE = replace(
    B1_ALONE,
    name="gradient_alone",
    number="Theorem 4 without B.2",
    title="an initial gradient that separates the optimal tokens makes them selected",
    statement=f"-(x_i,opt - x_it)^T grad L(W(0)) z_i > 0 for all i and t != opt_i  =>  {LIMIT}",
    hypotheses=GRADIENT,
    runs=runs("descent", "zero"),
)

GRADIENT_B2 = replace(
    B1_ALONE,
    name="gradient_b2",
    number="Theorem 4 (global convergence under good initial gradient), for normalised steps",
    reading=CARRIED_OVER,
    title="B.2 and an initial gradient that separates the optimal tokens make them selected",
    statement="gamma_it = gamma_iu < gamma_i,opt for t, u != opt_i, and -(x_i,opt - x_it)^T "
    f"grad L(W(0)) z_i > 0  =>  {LIMIT}",
    hypotheses={"B.2": "assumption_b2"} | GRADIENT,
    runs=runs("descent", "zero", "equal_scores"),
)

# --- Theorem 3 ------------------------------------------------------------------------------------

KEPT = 0.5
"""Smallest growth of ||W|| over the last decade of steps, relative to the decade before."""

STOPPED = 0.01
"""Such growth up to which ||W|| counts as bounded."""


def norm_grows(evidence: Evidence) -> list[Rule]:
    """Return whether ||W(k)|| still grows like log k: as much in each decade of steps."""
    begin, middle, end = evidence.at("W_norm", 100, 10, 1)
    before, after = middle - begin, end - middle
    return [
        ("training == 'finite_optimum'", FAILS),
        ((after > 0) & (before > 0) & (after >= KEPT * before), HOLDS),
        ((after <= STOPPED * before) & (before > 0), FAILS),
        (True, "growth of ||W|| not settled"),
    ]


DIVERGENCE = Claim(
    name="divergence",
    paper="2308.16898",
    number="Theorem 3",
    title="B.1 makes the norm of gradient descent diverge",
    statement="(x_i,opt - x_it)^T W_mm z_i = 1 for all i and t != opt_i, eta <= 1 / L_W  =>  "
    "||W(k)||_F -> inf from any W(0)",
    hypotheses=B1,
    prediction=norm_grows,
    runs=runs("fixed_step"),
    tolerance="||W|| grows over the last decade of steps by at least half of its growth over the "
    "decade before, as log k does; a bounded norm would grow by ever less",
)

# --- Definition 1 without its assumption that other tokens score lower ----------------------------

ROUNDING = 1e-12
"""Largest relative change of weights that stay."""


def nothing_moves(evidence: Evidence) -> list[Rule]:
    """Return whether attention and norm are at the end what they were at the start."""
    moved = evidence.truths(False)
    for quantity in ("W_norm", "max_softmax"):
        curve = evidence.curve(quantity)
        change = curve.sub(curve.iloc[:, 0], axis=0).abs().max(axis=1, skipna=False)
        moved |= evidence.truths(change > ROUNDING * curve.iloc[:, 0], change.notna())
    return [(moved, FAILS), (~moved, HOLDS), (True, "a step is not recorded")]


ONE_SCORE: Hypotheses = {"all tokens of a sample have one score": "score_gap == 0"}

ALL_OPTIMAL = Claim(
    name="all_optimal",
    paper="2308.16898",
    reading=STRONGER,
    number="Definition 1, without its assumption that other tokens score lower",
    title="if all tokens of a sample have one score, W stays where it begins",
    statement="gamma_it = gamma_i for all t, linear head  =>  grad L = 0 everywhere, W(k) = W(0)",
    hypotheses=ONE_SCORE | {"steps are not normalised": "optimizer == 'gd'"},
    prediction=nothing_moves,
    runs=runs("ties"),
    tolerance="norm of W and mean largest softmax change by at most 1e-12 of what they are at the "
    "start, at any recorded step: rounding",
)

ALL_OPTIMAL_NORMALIZED = replace(
    ALL_OPTIMAL,
    name="all_optimal_normalized",
    number=f"{ALL_OPTIMAL.number}; normalised steps",
    title="if all tokens of a sample have one score, normalised steps leave W where it begins",
    statement="gamma_it = gamma_i for all t  =>  W(k) = W(0), in 64-bit floats, with "
    "W(k+1) = W(k) - eta grad L / ||grad L||",
    hypotheses=ONE_SCORE | {"steps are normalised": "optimizer == 'normalized_gd'"},
    tolerance=f"{ALL_OPTIMAL.tolerance}; a gradient that were rounding noise would become steps of "
    "full length",
)
