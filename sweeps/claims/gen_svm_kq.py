"""Section 6 for (K, Q): the two parts of Gen-SVM of least nuclear norm."""

from __future__ import annotations

from ._claim import CARRIED_OVER, Claim, Evidence, Words
from ._conditions import trains
from ._runs import SEVERAL_KQ
from .gen_svm import near_svmeq, several


def prediction(evidence: Evidence) -> Words:
    """Return whether K Q^T is near W_fin + C W_mm of least nuclear norm, for the best C."""
    return near_svmeq(evidence, "one_minus_corr_svmeq_nuclear", "nuclear")


CLAIM = Claim(
    name="gen_svm_kq",
    paper="2308.16898",
    reading=CARRIED_OVER,
    number="Section 6, Gen-SVM, (K, Q)",
    title="with a nonlinear head K Q^T goes to W_fin + C W_mm of least nuclear norm",
    statement="min_C (1 - corr(K Q^T, W_fin + C W_mm)) -> 0, W_fin of least nuclear norm with the "
    "attained log-ratios of the attended tokens, W_mm of least nuclear norm with margins >= 1 over "
    "the others",
    hypotheses={"head of gradient != 0": trains, "several tokens attended, clearly": several},
    prediction=prediction,
    runs=(SEVERAL_KQ,),
    tolerance="1 - correlation <= 0.01 after 20 000 steps that fall; >= 0.1, and >= 0.97 of what "
    "it was half-way, a margin gap >= 0.1 and a softmax <= 1e-6 of all other tokens refute it, "
    "where the mean largest softmax has swung by at most 1e-4 since. The margin gap of every "
    "solution, of which a least nuclear norm may have several, goes to 0 as C grows",
)
