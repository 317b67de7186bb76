"""arXiv 2308.16898, section 6: heads that select one token of each sample, and heads that mix."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ._claim import CARRIED_OVER, FAILS, HOLDS, STATED, STRONGER, Claim, Evidence, Rule, runs
from ._conditions import (
    KQ_TRAINED,
    ONE_OPTIMUM,
    STALE,
    W_TRAINED,
    Hypotheses,
    still,
    swings,
)

TRAINS: Hypotheses = {"head of gradient != 0": "not flat"}
LINEAR: Hypotheses = {"linear head": "head == 'linear'"} | ONE_OPTIMUM

# --- one token ------------------------------------------------------------------------------------

ONE_TOKEN = Claim(
    name="linear_one_token",
    paper="2308.16898",
    number="Section 6",
    title="a linear head selects one token of each sample",
    statement="h(o) = v^T o  =>  max_t s_it -> 1 for every sample i",
    hypotheses=LINEAR,
    prediction=[
        ("saturated", HOLDS),
        ("training == 'finite_optimum'", FAILS),
        (True, "attention not on one token yet"),
    ],
    runs=runs("descent", "larger"),
    tolerance="softmax >= 0.999 in every sample",
)

ANY_LOSS = replace(
    ONE_TOKEN,
    name="any_loss",
    reading=STRONGER,
    number="Section 6 without Assumption A",
    title="a linear head selects one token of each sample by a loss that does not decrease, too",
    statement="l(u) = (u - 0.1)^2, h(o) = v^T o  =>  max_t s_it -> 1 for every sample i",
    prediction=[
        ("saturated", HOLDS),
        ("risk <= 1e-20", FAILS),  # 0 but for rounding, the least that the squared loss has
        (True, "attention not on one token yet"),
    ],
    runs=runs("squared"),
    tolerance="softmax >= 0.999 in every sample; a risk <= 1e-20, where gradient descent ends, at "
    "a smaller softmax refutes it",
)


def one_attended(evidence: Evidence) -> list[Rule]:
    """Return whether one token a sample is attended; several that stay so refute it."""
    unclear = "not clear which tokens are attended"
    return [
        ("status != 'ok'", unclear),
        ("attended_tokens == 1", HOLDS),
        (evidence.truths("attended_tokens > 1") & still(evidence), FAILS),
        ("attended_tokens > 1", "attention moves"),
        (True, unclear),
    ]


RELU = Claim(
    name="relu_one_token",
    paper="2308.16898",
    reading=STRONGER,
    number="Section 6, what linear heads do",
    title="a nonlinear head selects one token of each sample, as a linear head does",
    statement="h(o) = 1^T relu(V^T o)  =>  max_t s_it -> 1 for every sample i",
    hypotheses=TRAINS,
    prediction=one_attended,
    runs=runs("several"),
    tolerance="attended: softmax >= 1e-3; an instance with a softmax in (1e-6, 1e-3) is undecided; "
    "so are several tokens where the mean largest softmax swung by over 1e-4 since half-way",
)

ORDER = replace(
    RELU,
    name="order_one_token",
    reading=STATED,
    number="Section 6, order under convex combinations",
    title="a nonlinear head selects one token where no mixture scores above the best token",
    statement="max_s Y_i h(X_i^T s) = max_t gamma_it over the simplex, for all i  =>  "
    "max_t s_it -> 1 for every sample i",
    hypotheses={"no mixture scores above the best token": "order_preserving"} | TRAINS,
)

# --- several tokens: Gen-SVM ----------------------------------------------------------------------

NEGLIGIBLE = 1e-6
"""Largest softmax of a token that is not attended at which W counts as near its asymptote."""

CLOSE = 0.01
"""Largest 1 - correlation with W_fin + C W_mm: W has a component of its start outside of both."""

FAR = 0.1
"""Smallest that refutes it, where it no longer falls."""


def near_svmeq(evidence: Evidence, quantity: str, norm: str) -> list[Rule]:
    """Return whether a 1 - correlation with W_fin + C W_mm is near zero, or stays away from it.

    C is the best one. It does not count as away where the margin gap is small, as it is at every
    solution with a large C: W_fin and W_mm need not be the only ones; nor where tokens that are not
    attended still have softmax, since W_fin and W_mm are those of the limit.
    """
    gap, rest = evidence[f"{norm}_margin_gap"], evidence["max_masked_softmax"]
    before, now = evidence.at(quantity, 2, 1)
    return [
        (now <= CLOSE, HOLDS),
        (~still(evidence), "attention moves"),
        ((now >= FAR) & (rest > NEGLIGIBLE), "tokens that are not attended have softmax"),
        ((now >= FAR) & (now >= STALE * before) & (gap >= FAR), FAILS),
        (True, "still coming nearer, or not far"),
    ]


GEN_SVM = Claim(
    name="gen_svm",
    paper="2308.16898",
    number="Section 6, Gen-SVM",
    title="with a nonlinear head W goes to W_fin + C W_mm",
    statement="min_C (1 - corr(W(k), W_fin + C W_mm)) -> 0, W_fin of least norm with the attained "
    "log-ratios of the attended tokens, W_mm of least norm with margins >= 1 over the others",
    hypotheses=TRAINS
    | {"several tokens attended, clearly": ("attended_tokens > 1", "status == 'ok'")},
    prediction=partial(near_svmeq, quantity="one_minus_corr_svmeq", norm="frobenius"),
    runs=runs("several"),
    tolerance="1 - correlation <= 0.01 after 10 000 steps of 0.1; >= 0.1, and >= 0.97 of what it "
    "was half-way, a margin gap >= 0.1 and a softmax <= 1e-6 of all other tokens refute it, where "
    "the mean largest softmax has swung by at most 1e-4 since",
)

GEN_SVM_KQ = replace(
    GEN_SVM,
    name="gen_svm_kq",
    reading=CARRIED_OVER,
    number="Section 6, Gen-SVM, (K, Q)",
    title="with a nonlinear head K Q^T goes to W_fin + C W_mm of least nuclear norm",
    statement="min_C (1 - corr(K Q^T, W_fin + C W_mm)) -> 0, W_fin of least nuclear norm with the "
    "attained log-ratios of the attended tokens, W_mm of least nuclear norm with margins >= 1 over "
    "the others",
    prediction=partial(near_svmeq, quantity="one_minus_corr_svmeq_nuclear", norm="nuclear"),
    runs=runs("several_kq"),
    tolerance="1 - correlation <= 0.01 after 20 000 steps that fall; >= 0.1, and >= 0.97 of what "
    "it was half-way, a margin gap >= 0.1 and a softmax <= 1e-6 of all other tokens refute it, "
    "where the mean largest softmax has swung by at most 1e-4 since. The margin gap of every "
    "solution, of which a least nuclear norm may have several, goes to 0 as C grows",
)

# --- several tokens: the mixture that scores best -------------------------------------------------

MIXTURE_CLOSE = 0.02
"""Largest relative distance from W_fin: at the end of the steps it is still falling."""

SWING = 0.01
"""Largest relative swing since half-way of a distance that neither falls nor leaves for another
limit."""


def finite_part(evidence: Evidence) -> list[Rule]:
    """Return whether the projection of W on the span of the equations is W_fin."""
    (now,) = evidence.at("mixture_fin", 1)
    settled = swings(evidence.curve("mixture_fin")) <= SWING * now
    return [
        (now <= MIXTURE_CLOSE, HOLDS),
        ((now >= FAR) & settled, FAILS),
        (True, "still moving, or not far"),
    ]


def _mixture(name: str, W: str, trained: Hypotheses, number: str) -> Claim:
    """Return the claim on the finite part of W, or of K Q^T."""
    return Claim(
        name=name,
        paper="2308.16898",
        reading=CARRIED_OVER,
        number=f"Section 6, W_fin as the minimiser of the risk, for gradient descent{number}",
        title=f"with a quadratic head the finite part of {W.replace('(k)', '')} is that of the "
        "mixture that scores best",
        statement=f"P {W} -> W_fin = argmin ||W||_F s.t. (x_it - x_iu)^T W z_i = "
        "log(s*_it / s*_iu), s*_i = argmax over the simplex of Y_i h(X_i^T s), t and u attended by "
        "s*_i, P the projection on the span of these equations",
        hypotheses=trained
        | {
            "the best mixture is unique, of several tokens": (
                "mixture_fin.notna()",  # several tokens, by which W_fin is not 0
                "status == 'ok' and mixture_apart.notna()",
            )
        },
        prediction=finite_part,
        runs=runs("mixtures"),
        tolerance="||P W - W_fin||_F / ||W_fin||_F <= 0.02 after 200 000 steps that fall; >= 0.1, "
        "and within 1 % since half-way, refutes it",
    )


MIXTURE = _mixture("mixture", "W(k)", W_TRAINED, "")
MIXTURE_KQ = _mixture("mixture_kq", "K(k) Q(k)^T", KQ_TRAINED, ", (K, Q)")
