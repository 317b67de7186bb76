"""The stored arrays of one instance: what in them does not follow from its trained weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnsvm.verify.constraints import StoredSvm
from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.instance_proof import CLOSE, InstanceProof
from attnsvm.verify.tokens import Scores
from attnsvm.verify.weights import Trained

ArrayRefusal = tuple[str, str]
"""An array, or an SVM, and why it is refused."""


def array_refusals(one: InstanceProof) -> Iterator[ArrayRefusal]:
    """Yield the arrays of an instance that do not follow, and the SVMs that are not proved."""
    for name, proof in one.proofs.items():
        if not proof.proved:
            yield name, proof.reason
    m = one.config["parameterization"].get("m")
    low_rank = one.tokens != "multi" and m is not None and "nuclear" in one.svms
    if low_rank and _beyond_rank(one.svms["nuclear"], m):
        yield "nuclear", f"its rank is more than m = {m}"
    selected = one.at["selected"]
    if not ((selected >= 0) & (selected < one.instance.mask.shape[1])).all():
        yield "selected", "a token does not exist"
        return
    if one.tokens == "optimal" and one.scores is not None:
        near = one.scores.may_be_best()
        if not near[np.arange(len(selected)), selected].all():
            yield "selected", "a token has not the highest score of its sample"
    if one.trained is not None:
        yield from _of_training(one, one.trained)


def _of_training(one: InstanceProof, trained: Trained) -> Iterator[ArrayRefusal]:
    at, found = one.at, trained.found
    if not found.selects(at["selected"]).all():
        yield "selected", "a token has not the largest softmax of its sample"
    if one.tokens == "multi":
        if not _agree(at["log_softmax"], found.log_softmax, found.error):
            yield "log_softmax", "does not follow from the trained weights"
        threshold = one.config["selection"]["attended"]
        certain, possible = found.attended(threshold)
        if (certain & ~at["attended"]).any() or (at["attended"] & ~possible).any():
            yield "attended", f"is not softmax >= {threshold:g}"
    if "trained_K" in at:
        K, Q, W = at["trained_K"], at["trained_Q"], at["trained_W"]
        apart = 8 * (K.shape[1] + 2) * EPS * np.linalg.norm(K) * np.linalg.norm(Q)
        if K.shape != Q.shape or not _agree(W, K @ Q.T, apart):
            yield "trained_K", "K Q^T is not the trained W"
    drawn = one.instance.Y
    if "Y" in at and not (np.array_equal(at["Y"], drawn) or np.isnan(drawn).all()):
        yield "Y", "are not the labels that the seed draws"
    if one.config["keep_path"]:
        yield from _of_path(one)


def _of_path(one: InstanceProof) -> Iterator[ArrayRefusal]:
    at = one.at
    if not np.array_equal(at["snapshots"][-1], at["trained_W"]):
        yield "snapshots", "the last one is not the trained W"
    if one.start is not None and not _agree(
        at["snapshots"][0], one.start, CLOSE * np.abs(one.start).max()
    ):
        yield "snapshots", "the first one is not the initial W of the seed"
    if one.steps is not None and not np.array_equal(at["steps"], one.steps):
        yield "steps", "are not those of the config"
    found = Trained(one.instance, None, at["snapshots"]).found
    s = found.softmax
    if not _agree(at["softmax"], s, s * np.expm1(found.error)):
        yield "softmax", "does not follow from the snapshots"
    if one.drawn_head is not None:
        scores = Scores.of(one.instance, one.drawn_head)
        if not _agree(at["scores"], scores.gamma, scores.error):
            yield "scores", "are not those of the head"


def _agree(stored: Array, derived: Array, error: Array | float) -> bool:
    """Return whether all numbers agree within their errors; infinite ones exactly."""
    return bool(((np.abs(stored - derived) <= error) | (stored == derived)).all())


def _beyond_rank(svm: StoredSvm, m: int) -> bool:
    """Return whether the numerical rank of W is above m."""
    if not np.isfinite(svm.W).all():
        return False
    sigma = np.linalg.svd(svm.W, compute_uv=False)
    return bool((sigma[m:] > svm.rank_tolerance * sigma[0] * (1 + CLOSE)).any())
