"""What the probes of attnsvm measure, derived again from stored weights, with error bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsvm.config import PROBES
from attnsvm.record import CorruptRecordError
from attnsvm.record.arrays import read_array
from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.excess_risk import excess_curve
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.history import Curve
from attnsvm.verify.instances import Instance
from attnsvm.verify.mixture import mixture_curves
from attnsvm.verify.pretrained import SEEN
from attnsvm.verify.tokens import Scores
from attnsvm.verify.weights import Attention, Trained, one_minus_correlation

TINY = 1e-300
"""Absolute error of what underflows."""

KINDS = {vars(schema)["_target_"]: name for name, schema in PROBES.own.items()}
"""Class of a probe -> name of its option."""


def own_probes(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the option of each probe of a recorded config that is one of attnsvm's own."""
    targets = {name: str(fields["_target_"]) for name, fields in config["probe"].items()}
    return {name: KINDS[target] for name, target in targets.items() if target in KINDS}


def foreign_probes(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the class of each probe that a plug-in defines."""
    own = own_probes(config)
    return {name: str(fields["_target_"]) for name, fields in config["probe"].items()
            if name not in own}  # fmt: skip


def factors_are_stored(config: Mapping[str, Any]) -> bool:
    """Return whether a probe of attnsvm needs K and Q, so that they are stored."""
    return "balance" in own_probes(config).values()


def ranges(config: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the possible numbers of each column of the probes of attnsvm."""
    return {
        f"{name}_{quantity}": (one.allowed.low, one.allowed.high)
        for name, kind in own_probes(config).items()
        for quantity, one in PROBES.own[kind].QUANTITIES.items()  # type: ignore[attr-defined]
    }


def matrices(config: Mapping[str, Any]) -> dict[str, Array]:
    """Return the matrix of each distance probe whose file is here."""
    found = {}
    for name, kind in own_probes(config).items():
        if kind == "distance" and (M := _matrix(config["probe"][name]["path"])) is not None:
            found[name] = M
    return found


def _matrix(path: str) -> Array | None:
    try:
        return read_array(Path(path).resolve()).astype(np.float64)
    except (CorruptRecordError, ValueError):
        return None


def probe_curves(
    config: Mapping[str, Any],
    W: Array,
    found: Attention,
    factors: tuple[Array, Array] | None,
    given: Mapping[str, Array],
    margin_gap: Callable[[str, Array], tuple[float, float]],
    other_heads: Mapping[str, float],
    held_out: tuple[Instance, HeadAndLoss] | None = None,
    drawn: tuple[Instance, HeadAndLoss] | None = None,
    selected: NDArray[np.int64] | None = None,
    optimality: Callable[[], Mapping[str, tuple[float, float]]] = dict,
) -> dict[str, Curve]:
    """Return the values of probes at weights W (S, d, d), with error bounds, by column.

    Parameters
    ----------
    config : mapping
        The recorded config.
    W, found : Array, Attention
        Weights and their attention.
    factors : (K, Q) or None
        Those of the last weights, (d, m).
    given : mapping of str to Array
        The matrices of distance probes whose files are here.
    margin_gap : callable
        Returns the gap of a matrix in a norm, and its error bound.
    other_heads : mapping of str to float
        Mean correlation of the other heads of a pretrained layer, by norm; empty if not known.
    held_out : (Instance, HeadAndLoss) or None
        The samples that are not trained on, and their head.
    drawn : (Instance, HeadAndLoss) or None
        The instance and its drawn head; None if that is not known.
    selected : Array or None
        The selected tokens, (n,).
    optimality : callable
        Returns the shares of samples with optimal or locally optimal tokens, and their errors;
        empty if not known.
    """
    curves: dict[str, Curve] = {}
    for name, kind in own_probes(config).items():
        if kind == "rank":
            values = _ranks(W, config["probe"][name]["threshold"])
        elif kind == "entropy":
            values = _entropies(found)
        elif kind == "balance":
            values = {"gap": _balance(len(W), factors)} if factors is not None else {}
        elif kind == "margin_gap":
            norms = PROBES.own[kind].QUANTITIES  # type: ignore[attr-defined]
            gaps = {norm: [margin_gap(norm, V) for V in W] for norm in norms}
            values = {norm: tuple(np.array(pairs).T) for norm, pairs in gaps.items()}
        elif kind == "held_out":
            values = {} if held_out is None else _held_out(W, *held_out)
        elif kind == "mixture":
            trained = bool(config["head"].get("train"))
            values = {} if drawn is None else mixture_curves(W, found, *drawn, trained)
        elif kind == "excess_risk":
            values = {}
            if drawn is not None and selected is not None:
                values = {"log": excess_curve(found, *drawn, selected)}
        elif kind == "optimality":
            values = {name: (np.full(len(W), share), np.full(len(W), error))
                      for name, (share, error) in optimality().items()}  # fmt: skip
        elif kind == "other_heads":
            values = {norm: (np.full(len(W), value), np.full(len(W), SEEN))
                      for norm, value in other_heads.items()}  # fmt: skip
        else:
            M = given.get(name)
            values = {} if M is None or M.shape != W.shape[1:] else {"direction": _distance(W, M)}
        curves |= {f"{name}_{quantity}": curve for quantity, curve in values.items()}
    return curves


def _ranks(W: Array, threshold: float) -> dict[str, Curve]:
    sigma = np.linalg.svd(np.where(np.isfinite(W), W, 0.0), compute_uv=False)
    finite = np.asarray(np.isfinite(W).all((1, 2)))
    sigma = np.where(finite[:, None], sigma, np.nan)
    ratio, apart = sigma / sigma[:, :1], 64 * W.shape[-1] * EPS
    certain = np.count_nonzero(ratio > threshold + apart, axis=-1)
    possible = np.count_nonzero(ratio > threshold - apart, axis=-1)
    defined = np.where(sigma[:, 0] > 0, 1.0, np.nan)
    stable = np.square(ratio).sum(-1)
    return {
        "effective": ((certain + possible) / 2 * defined, (possible - certain) / 2),
        "stable": (stable, 4 * apart * stable),
    }


def _entropies(found: Attention) -> dict[str, Curve]:
    logs = np.where(np.isfinite(found.log_softmax), found.log_softmax, 0.0)
    s = np.where(np.isfinite(found.log_softmax), np.exp(logs), 0.0)
    relative = np.expm1(np.minimum(found.error, 700.0)) + 8 * EPS
    entropy = (-s * logs).sum(-1)
    apart = (s * (1 - logs) * relative + TINY).sum(-1) + 8 * EPS * entropy
    sizes = entropy.shape[-1] * EPS
    return {
        "mean": (entropy.mean(-1), apart.mean(-1) + sizes * entropy.mean(-1)),
        "max": (entropy.max(-1), apart.max(-1)),
    }


def _held_out(W: Array, instance: Instance, head: HeadAndLoss) -> dict[str, Curve]:
    """Return share of samples that attend most to an optimal token, and mean of gamma_opt - Y f."""
    of_W, scores = Trained(instance, head, W), Scores.of(instance, head)
    found, near = of_W.found, scores.may_be_best()
    apart = found.error + found.error.max(-1, keepdims=True)
    top = found.log_softmax + apart >= found.log_softmax.max(-1, keepdims=True)
    clear = near & ((near.sum(-1) == 1) | (near | ~instance.mask).all(-1))[:, None]
    certain, possible = (~top | clear).all(-1).mean(-1), (top & near).any(-1).mean(-1)
    value, error = head.value(*of_W.output(), instance.head)
    best = scores.gamma.max(-1)
    excess = (best - instance.Y * value).mean(-1)
    rounding = 8 * EPS * (np.abs(best).mean() + np.abs(excess))
    return {
        "optimal": ((certain + possible) / 2, (possible - certain) / 2 + EPS),
        "excess": (excess, (error + scores.error.max(-1)).mean(-1) + rounding),
    }


def _distance(W: Array, M: Array) -> Curve:
    value, apart = one_minus_correlation(W, M)
    low, high = (np.sqrt(2 * np.maximum(value + sign * apart, 0.0)) for sign in (-1, 1))
    middle = np.sqrt(2 * value)
    return middle, np.maximum(high - middle, middle - low) + 4 * EPS * middle


def _balance(count: int, factors: tuple[Array, Array]) -> Curve:
    """Return the gap of the last weights; those before are not known: any number."""
    K, Q = factors
    k, q = np.linalg.norm(K), np.linalg.norm(Q)
    k_unit, q_unit, ratio = K / k, Q / q, k / q
    gap = np.linalg.norm(k_unit.T @ k_unit * ratio - q_unit.T @ q_unit / ratio)
    values, apart = np.zeros(count), np.full(count, np.inf)
    values[-1], apart[-1] = gap, 32 * len(K) * EPS * (ratio + 1 / ratio)
    return values, apart
