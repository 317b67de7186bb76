"""Section 6: a nonlinear head does not end at one token of each sample, as a linear one does."""

from __future__ import annotations

from ._claim import FAILS, HOLDS, STRONGER, Claim, Evidence, Words, ruled
from ._conditions import still, trains
from ._runs import SEVERAL


def prediction(evidence: Evidence) -> Words:
    """Return whether one token a sample is attended; several that stay so refute it."""
    trials = evidence.trials
    clear, several = trials["status"] == "ok", trials["attended_tokens"] > 1
    one = trials["attended_tokens"] == 1
    ended = clear & several & still(evidence)
    return ruled(
        evidence,
        [(ended, FAILS), (clear & several, "attention moves"), (clear & one, HOLDS)],
        otherwise="not clear which tokens are attended",
    )


CLAIM = Claim(
    name="relu_one_token",
    paper="2308.16898",
    reading=STRONGER,
    number="Section 6, what linear heads do",
    title="a nonlinear head selects one token of each sample, as a linear head does",
    statement="h(o) = 1^T relu(V^T o)  =>  max_t s_it -> 1 for every sample i",
    hypotheses={"head of gradient != 0": trains},
    prediction=prediction,
    runs=(SEVERAL,),
    tolerance="attended: softmax >= 1e-3; an instance with a softmax in (1e-6, 1e-3) is undecided; "
    "so are several tokens where the mean largest softmax swung by over 1e-4 since half-way",
)
