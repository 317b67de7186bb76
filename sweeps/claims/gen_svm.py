"""Section 6: with a nonlinear head W goes to W_fin + C W_mm."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, Claim, Evidence, Truths, Words, ruled
from ._conditions import STALE, still, trains
from ._runs import SEVERAL

NEGLIGIBLE = 1e-6
"""Largest softmax of a token that is not attended at which W counts as near its asymptote."""

CLOSE = 0.01
"""Largest 1 - correlation with W_fin + C W_mm: W has a component of its start outside of both."""

FAR = 0.1
"""Smallest that refutes it, where it no longer falls."""


def several(evidence: Evidence) -> Truths:
    """Return whether attention is clearly on some tokens, for some sample on several."""
    trials = evidence.trials
    return evidence.truths(trials["attended_tokens"] > 1, trials["status"] == "ok")


def prediction(evidence: Evidence) -> Words:
    """Return whether W is near W_fin + C W_mm, for the best C."""
    return near_svmeq(evidence, "one_minus_corr_svmeq", "frobenius")


def near_svmeq(evidence: Evidence, quantity: str, norm: str) -> Words:
    """Return whether a 1 - correlation with W_fin + C W_mm is near zero, or stays away from it.

    It does not count as away from it where the margin gap is small, as it is at every solution with
    a large C: W_fin and W_mm need not be the only ones; nor where tokens that are not attended
    still have softmax, since W_fin and W_mm are those of the limit.
    """
    gap, rest = (evidence.trials[name] for name in (f"{norm}_margin_gap", "max_masked_softmax"))
    apart = evidence.curve(quantity)
    last = float(apart.columns.max())
    now, half_way = apart[last], apart[last / 2]
    stays = now >= STALE * half_way
    return ruled(
        evidence,
        [
            (now <= CLOSE, HOLDS),
            (~still(evidence), "attention moves"),
            ((now >= FAR) & (rest > NEGLIGIBLE), "tokens that are not attended have softmax"),
            ((now >= FAR) & stays & (gap >= FAR), FAILS),
        ],
        otherwise="still coming nearer, or not far",
    )


CLAIM = Claim(
    name="gen_svm",
    paper="2308.16898",
    number="Section 6, Gen-SVM",
    title="with a nonlinear head W goes to W_fin + C W_mm",
    statement="min_C (1 - corr(W(k), W_fin + C W_mm)) -> 0, W_fin of least norm with the attained "
    "log-ratios of the attended tokens, W_mm of least norm with margins >= 1 over the others",
    hypotheses={"head of gradient != 0": trains, "several tokens attended, clearly": several},
    prediction=prediction,
    runs=(SEVERAL,),
    tolerance="1 - correlation <= 0.01 after 10 000 steps of 0.1; >= 0.1, and >= 0.97 of what it "
    "was half-way, a margin gap >= 0.1 and a softmax <= 1e-6 of all other tokens refute it, where "
    "the mean largest softmax has swung by at most 1e-4 since",
)
