"""Functions in the expressions of claims: numbers of every instance from the arrays of its run.

Each takes the arrays of a run, instance axis B first, and returns (B,).
"""

from collections.abc import Callable, Mapping
from itertools import product
from types import FunctionType

import numpy as np
from scipy.special import logsumexp

Arrays = Mapping[str, np.ndarray]


def outside_queries(arrays: Arrays, name: str) -> np.ndarray:
    """Return ||W (I - P)||_F / ||W||_F of the matrices `name`, P the projection on span(z_i)."""
    W, Z = arrays[name], arrays["Z"]
    parts: np.ndarray = _frobenius(W - W @ np.linalg.pinv(Z) @ Z) / _frobenius(W)
    return parts


def _frobenius(W: np.ndarray) -> np.ndarray:
    norms: np.ndarray = np.linalg.norm(W, axis=(1, 2))
    return norms


def excess_above_svm(arrays: Arrays, norm: str) -> np.ndarray:
    """Return log of the ratio of L - L* at the trained W and at the SVM scaled to its norm."""
    W, W_svm = arrays["trained_W"], arrays[f"{norm}_W"]
    order = 2 if norm == "frobenius" else 1
    sizes = [np.linalg.norm(np.linalg.svd(M, compute_uv=False), order, axis=1) for M in (W, W_svm)]
    scaled = W_svm * (sizes[0] / sizes[1])[:, None, None]
    above: np.ndarray = _log_excess(arrays, W) - _log_excess(arrays, scaled)
    return above


def _log_excess(arrays: Arrays, W: np.ndarray) -> np.ndarray:
    """Return log of sum_i |loss'(gamma_opt)| sum_t s_it (gamma_opt - gamma_it), logistic loss.

    It is n (L - L*) of a linear head to first order in the softmax of the other tokens.
    """
    gamma, mask = arrays["scores"], arrays["mask"]
    logits = np.where(mask, np.einsum("bntd,bde,bne->bnt", arrays["X"], W, arrays["Z"]), -np.inf)
    log_s = logits - logsumexp(logits, axis=2, keepdims=True)
    best = gamma.max(axis=2)
    with np.errstate(divide="ignore"):
        lost = np.log(np.where(mask, best[:, :, None] - gamma, 0.0))
    each = logsumexp(log_s + lost, axis=2) - np.logaddexp(0.0, best)
    total: np.ndarray = logsumexp(each, axis=1)
    return total


def at_runner_up(arrays: Arrays) -> np.ndarray:
    """Return 1 if the selected tokens are optimal, but of second best score in sample 0, else 0.

    About these tokens training begins with init=cone_runner_up.
    """
    order = np.argsort(arrays["scores"], axis=2)
    begun = order[:, :, -1].copy()
    begun[:, 0] = order[:, 0, -2]
    same: np.ndarray = (arrays["selected"] == begun).all(axis=1).astype(float)
    return same


def largest_cosine(arrays: Arrays) -> np.ndarray:
    """Return the largest |cosine| of the angle between two tokens of an instance."""
    tokens = arrays["X"].reshape(len(arrays["X"]), -1, arrays["X"].shape[-1])
    tokens = tokens / np.linalg.norm(tokens, axis=-1, keepdims=True)
    cosines = np.abs(tokens @ tokens.transpose(0, 2, 1)) * (1 - np.eye(tokens.shape[1]))
    largest: np.ndarray = cosines.max(axis=(1, 2))
    return largest


def head_margin_ratio(arrays: Arrays) -> np.ndarray:
    """Return max_i Y_i v^T x_i,alpha_i / min_i Y_i v^T x_i,alpha_i; inf where v errs."""
    margins = _head_margins(arrays)
    least, largest = margins.min(axis=1), margins.max(axis=1)
    ratios: np.ndarray = np.where(least > 0, largest / np.where(least > 0, least, 1.0), np.inf)
    return ratios


def head_margin_gap(arrays: Arrays) -> np.ndarray:
    """Return 1 - ||v_svm|| min_i Y_i v^T x_i,alpha_i / ||v||; NaN where none separates them."""
    solved = arrays["classifier_status"] == "solved"
    least = np.where(solved, arrays["classifier_objective"], np.nan)
    sizes = np.linalg.norm(arrays["trained_v"], axis=1)
    gaps: np.ndarray = 1 - least * _head_margins(arrays).min(axis=1) / sizes
    return gaps


def odds_missed(arrays: Arrays) -> np.ndarray:
    """Return by how much log-odds at W_fin differ from those of the labels, at most.

    0 where some W has all of these. Samples of equal queries have the same tokens, in one order.
    """
    same = (arrays["Z"][:, :, None] == arrays["Z"][:, None]).all(axis=-1).astype(float)
    labels = np.eye(arrays["scores"].shape[2])[arrays["scores"].argmax(axis=2)]
    counts, inside = same @ labels, arrays["attended"].astype(bool)
    differ = arrays["log_softmax"] - np.log(np.where(inside, counts, 1.0))
    above, below = (np.where(inside, differ, end) for end in (-np.inf, np.inf))
    missed: np.ndarray = (above.max(axis=2) - below.min(axis=2)).max(axis=1)
    return missed


def increment_apart(arrays: Arrays, name: str, begin: float, end: float) -> np.ndarray:
    """Return 1 - correlation of the matrices `name` with a change of W.

    It is the change between two steps, each given as a part of all steps.
    """
    steps, target = arrays["steps"][0], arrays[name]
    first, last = (np.searchsorted(steps, part * steps[-1]) for part in (begin, end))
    change = arrays["snapshots"][:, last] - arrays["snapshots"][:, first]
    inner, sizes = (change * target).sum(axis=(1, 2)), _frobenius(change) * _frobenius(target)
    apart: np.ndarray = 1 - inner / np.where(sizes > 0, sizes, np.nan)
    return apart


def log_softmax_change(arrays: Arrays, attended: bool) -> np.ndarray:
    """Return the change of log s_it in the second half of the steps.

    It is the largest one of an attended token, or the least fall of another one; inf without one.
    """
    steps, inside = arrays["steps"][0], arrays["attended"].astype(bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_s = np.log(arrays["softmax"][:, [np.searchsorted(steps, steps[-1] / 2), -1]])
        falls = log_s[:, 0] - log_s[:, 1]
    if attended:
        largest: np.ndarray = np.where(inside, np.abs(falls), 0.0).max(axis=(1, 2))
        return largest
    left = arrays["mask"].astype(bool) & ~inside & np.isfinite(log_s[:, 1])
    least: np.ndarray = np.where(left, falls, np.inf).min(axis=(1, 2))
    return least


def nearest_law(arrays: Arrays) -> np.ndarray:
    """Return the least 1 - correlation of W with the law of joint training at attended tokens.

    Of each sample any token of softmax >= 1e-3 is tried, with the ratio that is predicted for the
    selected tokens, and with their classifier vbar.
    """
    from attnsvm import solve_svm  # takes 1.4 s

    v = arrays["classifier_W"][:, :, 0]
    vbar = v / np.linalg.norm(v, axis=1, keepdims=True)
    gamma = np.nan_to_num(arrays["Y"][..., None] * np.einsum("bntd,bd->bnt", arrays["X"], vbar))
    attended = arrays["softmax"][:, -1] >= 1e-3
    tokens = [list(product(*map(np.flatnonzero, sample))) for sample in attended]
    b, chosen = np.repeat(np.arange(len(v)), [*map(len, tokens)]), np.concatenate(tokens)
    law = solve_svm(
        arrays["X"][b],
        arrays["Z"][b],
        chosen,
        offsets=np.take_along_axis(gamma[b], chosen[..., None], 2)[..., 0],
        ratio=np.nan_to_num(arrays["frobenius_law_predicted_ratio"])[b],
    ).W
    W = arrays["trained_W"][b]
    least = np.full(len(v), np.nan)
    np.fmin.at(least, b, 1 - (W * law).sum(axis=(1, 2)) / (_frobenius(W) * _frobenius(law)))
    return least


def _selected_rows(arrays: Arrays) -> np.ndarray:
    """Return Y_i x_i,alpha_i of the selected tokens, (B, n, d)."""
    at = arrays["selected"][:, :, None, None]
    rows: np.ndarray = arrays["Y"][..., None] * np.take_along_axis(arrays["X"], at, 2)[:, :, 0]
    return rows


def _head_margins(arrays: Arrays) -> np.ndarray:
    """Return Y_i v^T x_i,alpha_i of the trained v, (B, n)."""
    margins: np.ndarray = np.einsum("bnd,bd->bn", _selected_rows(arrays), arrays["trained_v"])
    return margins


MEASURES: Mapping[str, Callable[..., np.ndarray]] = {
    name: function
    for name, function in list(globals().items())
    if isinstance(function, FunctionType)
    and function.__module__ == __name__
    and not name.startswith("_")
}
"""The functions by name."""
