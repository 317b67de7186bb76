"""The initial weights of a training: `optimizer.init`, for the words that need the instances.

`zero`, `uniform` and `small` are draws of the parameterization; `file`, `cone`, `balanced`,
`aligned` and `pretrained` are made here.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.config.optimizer import CONES
from attnsvm.data.file import read_npz
from attnsvm.data.problem import ProblemBatch
from attnsvm.linalg import own_settings, real
from attnsvm.nn.risk import Risk
from attnsvm.optimizer import Optimizer
from attnsvm.optimizer.base import TINY, broadcast, norm
from attnsvm.parameterization import INIT_STREAM, Parameterization, Variables, W, normal
from attnsvm.svm import SvmStatus, solve_rank_constrained, solve_svm


def initial(risk: Risk, optimizer: Optimizer) -> Variables:
    """Return the variables with which `optimizer` begins on `risk`, each (B, ...).

    ConfigError if the file of init=file or init=cone cannot be read, or has no row of an instance.
    """
    check_start(risk.rule, optimizer, risk.batch.d)
    if optimizer.init in STARTS:
        return STARTS[optimizer.init](risk, optimizer)
    batch = risk.batch
    return risk.rule.init(optimizer.init, optimizer.init_scale, batch.seeds, batch.d)


def check_start(rule: Parameterization, optimizer: Optimizer, d: int) -> None:
    """Raise ConfigError if the optimizer cannot begin as `optimizer.init` says."""
    init = optimizer.init
    if init == "balanced" and len(rule.NAMES) != 2:
        raise ConfigError("optimizer.init=balanced: parameterization must be kq")
    if init in ("aligned", "balanced", *CONES, "pretrained"):
        rule.factors(torch.zeros(1, d, d, dtype=torch.float64))
    if init in CONES and rule.implicit_bias(optimizer.implicit_bias) is None:
        raise ConfigError(
            f"optimizer.init={init}: must be zero | uniform | small | file | aligned here: the "
            "norm of the SVM to which this optimizer converges is not known"
        )
    if init in CONES and optimizer.init_angle > 0 and rule.max_rank(d) < d:
        raise ConfigError(
            f"optimizer.init_angle={optimizer.init_angle}: must be 0 with parameterization.m="
            f"{rule.max_rank(d)} < d={d}: weights at another angle have full rank"
        )


@own_settings()
def in_cone(
    batch: ProblemBatch,
    selected: Tensor,
    angle: float,
    scale: float = 1.0,
    norm: str = "frobenius",
    max_rank: int | None = None,
) -> Tensor:
    """Return W0 = scale (cos(angle) D + sin(angle) E), shape (B, d, d).

    D = W_mm / ||W_mm||_F is the direction of the certified SVM of the selected tokens, and E a
    random unit matrix with <D, E> = 0. The theorem on local convergence of arXiv 2308.16898 has
    such starts: locally optimal tokens attract all W0 of a large enough norm in a cone about D.

    Parameters
    ----------
    batch : ProblemBatch
        The instances; E is drawn from the seed of each.
    selected : Tensor (B, n), int64
        The tokens.
    angle : float
        In degrees.
    scale : float
        ||W0||_F.
    norm : str
        The norm of the SVM.
    max_rank : int, optional
        With the nuclear norm, the SVM is that with rank(W) <= max_rank.

    Returns
    -------
    Tensor
        NaN for an instance whose SVM is not solved: it has no direction.

    Raises
    ------
    ConfigError
        If the tokens are numbers, d = 1, which have no other direction.
    """
    if batch.d == 1 and angle > 0:
        raise ConfigError(f"optimizer.init_angle={angle}: must be 0 with d=1")
    X, Z = batch.X, batch.Z
    if norm == "nuclear" and max_rank is not None and max_rank < batch.d:
        solution = solve_rank_constrained(X, Z, selected, max_rank, mask=batch.mask)
    else:
        solution = solve_svm(X, Z, selected, norm, batch.mask)
    solved = solution.having(SvmStatus.solved).to(batch.X.device)
    D = _unit(solution.W.masked_fill(~solved[:, None, None], torch.nan))
    if angle == 0:
        return scale * D
    E = normal(batch.seeds, INIT_STREAM, batch.d, batch.d)
    for _ in range(2):  # once leaves a rounding error along D where E is nearly D
        E = _unit(E - (E * D).sum((1, 2), keepdim=True) * D)
    radians = math.radians(angle)
    return scale * (math.cos(radians) * D + math.sin(radians) * E)


def runner_up(batch: ProblemBatch, optimal: Tensor) -> Tensor:
    """Return the tokens `optimal`, but of second highest score in the first sample, (B, n).

    Where they are locally optimal, they attract weights near the direction of their SVM.
    """
    others = batch.scores()[:, 0].scatter(1, optimal[:, :1], -torch.inf)
    score, token = others.max(1)
    second = torch.where(score.isfinite(), token, optimal[:, 0])
    return torch.cat([second[:, None], optimal[:, 1:]], 1)


def _cone(risk: Risk, optimizer: Optimizer) -> Variables:
    batch, rule = risk.batch, risk.rule
    tokens = risk.best
    if optimizer.init == "cone_runner_up":
        tokens = runner_up(batch, tokens)
    elif optimizer.init_path is not None:
        tokens = _tokens(optimizer.init_path, batch)
    limit = rule.implicit_bias(optimizer.implicit_bias)
    assert limit is not None  # as checked in `check_start`
    options = optimizer.init_angle, optimizer.init_scale, limit, rule.max_rank(batch.d)
    return _variables(rule, in_cone(batch, tokens, *options))


def _file(risk: Risk, optimizer: Optimizer) -> Variables:
    """Return the weights of each instance in the file; NAMES of the parameterization name them."""
    batch, rule = risk.batch, risk.rule
    assert optimizer.init_path is not None  # as checked by the schema
    arrays = _of_instances(optimizer.init_path, rule.NAMES, 2, batch)
    weights = tuple(real(name, V) for name, V in zip(rule.NAMES, arrays, strict=True))
    return tuple(V.to(batch.X.device) for V in rule.copied(weights, batch.B, batch.d))


def _balanced(risk: Risk, optimizer: Optimizer) -> Variables:
    """Return K0, Q0 with K0^T K0 = Q0^T Q0 and the product K0 Q0^T of init=small."""
    rule, batch = risk.rule, risk.batch
    drawn = rule.init("small", optimizer.init_scale, batch.seeds, batch.d)
    return rule.factors(rule.combine(drawn))


def _aligned(risk: Risk, optimizer: Optimizer) -> Variables:
    """Return W0 = -scale G / ||G||_F with the gradient G in W at W = 0, or its factors."""
    batch = risk.batch
    of_W = Risk(batch, W(), risk.loss)
    zero = (batch.X.new_zeros(batch.B, batch.d, batch.d),)
    (G,) = of_W.gradient(zero, of_W.forward(zero)).parts
    W0 = -optimizer.init_scale * G / broadcast(norm(G).clamp(min=TINY), G)
    return _variables(risk.rule, W0)


def _pretrained(risk: Risk, optimizer: Optimizer) -> Variables:
    """Return the weights that come with the instances, or their factors."""
    if risk.batch.weights is None:
        raise ConfigError("optimizer.init=pretrained: data must be pretrained, with weights")
    return risk.rule.factors(risk.batch.weights[:, 0].clone())


STARTS: dict[str, Callable[[Risk, Optimizer], Variables]] = {
    "file": _file,
    **dict.fromkeys(CONES, _cone),
    "balanced": _balanced,
    "aligned": _aligned,
    "pretrained": _pretrained,
}


def _variables(rule: Parameterization, W0: Tensor) -> Variables:
    """Return the variables of W0 (B, d, d); all NaN where it is not finite."""
    nowhere = ~W0.isfinite().all(-1).all(-1)
    variables = rule.factors(W0.where(~broadcast(nowhere, W0), 0.0))
    return tuple(V.masked_fill(broadcast(nowhere, V), torch.nan) for V in variables)


def _unit(V: Tensor) -> Tensor:
    return V / V.norm(dim=(1, 2), keepdim=True)


def _of_instances(
    path: str, names: tuple[str, ...], axes: int, batch: ProblemBatch
) -> list[NDArray[Any]]:
    """Return the named arrays of a file for the instances of the batch.

    Without an array `seeds` in the file they have so many `axes`, and all instances get the same.
    With `seeds` (N,) they have an axis N in front, and each instance gets the entry of its seed.
    """
    arrays = read_npz("optimizer.init_path", path, ", ".join(names))
    seeds, requested = arrays.get("seeds"), batch.seeds.tolist()
    lead = () if seeds is None else (seeds.size,)
    for name in names:
        array = arrays.get(name, np.empty(0, bool))
        shape = array.ndim == axes + len(lead) and array.shape[: len(lead)] == lead
        if array.dtype.kind not in "fiu" or not shape:
            is_there = f"{array.dtype}, shape {array.shape}" if name in arrays else "missing"
            raise ConfigError(
                f"optimizer.init_path={path}: {name}: {is_there}; must be "
                f"an array of real numbers with {axes} axes, or one more in front for the "
                "instances named in seeds (N,)"
            )
    if seeds is None:
        return [arrays[name] for name in names]
    place = {int(seed): k for k, seed in enumerate(seeds.ravel())}
    if missing := [seed for seed in requested if seed not in place]:
        raise ConfigError(f"optimizer.init_path={path}: seeds: must hold {missing[0]}, an instance")
    return [arrays[name][[place[seed] for seed in requested]] for name in names]


def _tokens(path: str, batch: ProblemBatch) -> Tensor:
    """Return the tokens of each instance in a file, checked, (B, n), int64."""
    (array,) = _of_instances(path, ("tokens",), 1, batch)
    tokens = torch.from_numpy(array.astype(np.int64)).to(batch.X.device)
    inside = array.shape[-1] == batch.n and (array == array % batch.T).all()
    if inside:
        tokens = tokens.expand(batch.B, batch.n).contiguous()
        inside = batch.mask.gather(-1, tokens.unsqueeze(-1)).all()
    if not inside or array.dtype.kind == "f":
        must = f"must be {batch.n} whole numbers an instance, admissible, >= 0 and < T={batch.T}"
        got = f"{array.dtype}, shape {array.shape}"
        raise ConfigError(f"optimizer.init_path={path}: tokens: {got}; {must}")
    return tokens
