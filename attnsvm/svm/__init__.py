"""The attention SVMs: least Frobenius or nuclear norm under token-separation constraints.

constraints -> solver -> certificate -> solution:

- `constraints`: the rows d_k^T W z_k >= h_k or = h_k of Att-SVM and Gen-SVM; `scaling`: to unit
  size and back, exactly; `span`: few vectors in many dimensions; `isolation`: one broken instance
  harms no other; `threads`: one thread.
- `frobenius`: least-distance programming on the rows, for what is left by `gram` (active set on
  Gram matrices, compiled, CPU) or `dual_qp` (interior point on them, other devices).
- `nuclear`: interior point on the dual inequality of `lmi`, finished by `polish`.
- `general`: equalities; `large`: both norms from 1000 rows on; `rank_constrained`: rank(W) <= m.
- `certificate`: bracket, ray, rank bound, from the problem alone; `solution`: what the user gets.
- `reference`: the same problems through CVXPY, to compare with.
"""

from __future__ import annotations

import time
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.svm.certificate import NORMS, Norm, certify
from attnsvm.svm.constraints import SvmProblem, finite_part, multi_token, single_token
from attnsvm.svm.frobenius import solve_frobenius
from attnsvm.svm.isolation import isolated
from attnsvm.svm.large import LARGE, solve_large
from attnsvm.svm.nuclear import solve_nuclear
from attnsvm.svm.rank_constrained import RankConstrainedSolution, solve_rank_constrained
from attnsvm.svm.scaling import to_given_size, to_unit_size
from attnsvm.svm.solution import SvmSolution, SvmStatus
from attnsvm.svm.span import in_span
from attnsvm.svm.threads import one_thread

__all__ = [
    "NORMS",
    "Norm",
    "RankConstrainedSolution",
    "SvmProblem",
    "SvmSolution",
    "SvmStatus",
    "finite_part",
    "multi_token",
    "single_token",
    "solve",
    "solve_gen_svm",
    "solve_rank_constrained",
    "solve_svm",
]

_SOLVERS = {"frobenius": solve_frobenius, "nuclear": solve_nuclear}


def solve_svm(
    X: Any,
    Z: Any,
    selected: Any,
    norm: Norm = "frobenius",
    mask: Any = None,
    gap: float = 1e-9,
    rank_tolerance: float = 1e-6,
) -> SvmSolution:
    """Solve Att-SVM:  min norm(W)  s.t.  (x_{i,alpha_i} - x_it)^T W z_i >= 1  for all t != alpha_i.

    Equations (Att-SVM) and (Att-SVM*) of arXiv 2308.16898.

    Parameters
    ----------
    X : Tensor, ndarray or nested lists (B, n, T, d), or (n, T, d) for a single instance
    Z : (B, n, d)
    selected : (B, n) integers
        The token alpha_i to be selected in each sample.
    norm : "frobenius" or "nuclear"
    mask : (B, n, T) bool, optional
        The admissible tokens.
    gap : float in (0, 1e-2]
        Largest duality gap of a `solved` instance, unless its conditioning forbids it.
    rank_tolerance : float in (0, 1)
        Relative threshold of the numerical rank.

    Returns
    -------
    SvmSolution
        Of the kind (torch for tensors, else NumPy) and with the batch axis (or none) of the input.

    Raises
    ------
    ValueError
        Wrong shapes or types, NaN or Inf, a selected token that the mask excludes.
    """
    given = _Given(X)
    X, Z, selected, mask = (
        given.real("X", X),
        given.real("Z", Z),
        given.batch("selected", selected),
        None if mask is None else given.batch("mask", mask),
    )
    problem = single_token(X, Z, selected, mask)
    return given.back(solve(problem, norm, X.shape[2], gap, rank_tolerance))


def solve_gen_svm(
    X: Any,
    Z: Any,
    attended: Any,
    log_softmax: Any,
    norm: Norm = "frobenius",
    mask: Any = None,
    gap: float = 1e-9,
    rank_tolerance: float = 1e-6,
) -> tuple[SvmSolution, SvmSolution]:
    """Solve Gen-SVM and return (W_fin, W_mm), section 6 of arXiv 2308.16898.

    W_fin: min norm(W)  s.t.  (x_it - x_iu)^T W z_i = log(s_it / s_iu)  for t, u in O_i.
    W_mm:  min norm(W)  s.t.  (x_it - x_iu)^T W z_i = 0 for t, u in O_i, >= 1 for t in O_i, u not.

    Parameters
    ----------
    X, Z, norm, mask, gap, rank_tolerance
        As in `solve_svm`.
    attended : (B, n, T) bool
        The sets O_i, none of them empty.
    log_softmax : (B, n, T)
        log s_it, read inside O_i only.
    """
    given = _Given(X)
    X, Z, attended = given.real("X", X), given.real("Z", Z), given.batch("attended", attended)
    mask = None if mask is None else given.batch("mask", mask)
    problems = (
        finite_part(X, Z, attended, given.real("log_softmax", log_softmax), mask),
        multi_token(X, Z, attended, mask),
    )
    fin, mm = (given.back(solve(p, norm, X.shape[2], gap, rank_tolerance)) for p in problems)
    return fin, mm


def solve(
    problem: SvmProblem, norm: Norm, T: int, gap: float = 1e-9, rank_tolerance: float = 1e-6
) -> SvmSolution:
    """Solve the batch `problem`, whose samples have T tokens, and judge the result."""
    if norm not in NORMS:
        raise ValueError(f"norm={norm!r}: allowed is {' | '.join(NORMS)}")
    _check_tolerances(gap, rank_tolerance)
    begin = time.perf_counter()
    scaled, exponent, exact = to_unit_size(problem)
    solver = partial(solve_large, norm=norm) if scaled.N >= LARGE else _SOLVERS[norm]
    with one_thread(), np.errstate(all="ignore"):
        judge = partial(certify, norm=norm, gap=gap, rank_tolerance=rank_tolerance)
        verdict = isolated(scaled, partial(in_span, solver), judge)
    verdict = to_given_size(verdict, exponent, exact)
    proof = verdict.certificate
    return SvmSolution(
        W=verdict.W,
        status=verdict.status,
        objective=proof.upper,
        lower_bound=proof.lower,
        duality_gap=proof.gap,
        min_margin=verdict.min_margin,
        rank=verdict.rank,
        rank_bound=verdict.rank_bound,
        sigma=verdict.sigma,
        support=_support(problem, verdict.W, verdict.kappa, T),
        kappa=verdict.kappa,
        certificate=proof,
        solve_time_s=time.perf_counter() - begin,
        norm=norm,
    )


def _support(problem: SvmProblem, W: Tensor, kappa: Tensor, T: int) -> Tensor:
    """Return the tokens whose constraint is active, (B, n, T)."""
    tolerance = (64 * torch.finfo(W.dtype).eps * kappa).clamp(min=1e-6)[:, None]
    active = problem.inequality & (problem.margins(W) <= problem.h * (1 + tolerance))
    active = active | (problem.equality & ~W.isnan().any(dim=(1, 2))[:, None])
    shape = (problem.B, problem.n, problem.N // problem.n)
    support = torch.zeros((problem.B, problem.n, T), dtype=torch.bool, device=W.device)
    return support.scatter(2, problem.token.reshape(shape), active.reshape(shape))


class _Given:
    """The kind and batch axis of the input, so that the result can have them too."""

    def __init__(self, X: Any) -> None:
        self.is_torch = isinstance(X, Tensor)
        self.device = X.device if isinstance(X, Tensor) else torch.device("cpu")
        self.single = _tensor("X", X, self.device).ndim == 3

    def batch(self, name: str, array: Any) -> Tensor:
        """Return the array as a batched tensor."""
        tensor = _tensor(name, array, self.device)
        return tensor[None] if self.single else tensor

    def real(self, name: str, array: Any) -> Tensor:
        """Return the array of real numbers as a batched float64 tensor."""
        tensor = self.batch(name, array)
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise ValueError(f"{name}: {tensor.dtype}, allowed are real numbers")
        return tensor.to(torch.float64)

    def back(self, solution: SvmSolution) -> SvmSolution:
        """Return the solution with arrays of the input's kind and batch axis."""
        certificate = replace(solution.certificate, **self._arrays(solution.certificate))
        status = solution.status[0] if self.single else solution.status
        return replace(solution, **self._arrays(solution), certificate=certificate, status=status)

    def _arrays(self, record: Any) -> dict[str, Any]:
        tensors = {f.name: getattr(record, f.name) for f in fields(record)}
        return {k: self._array(v) for k, v in tensors.items() if isinstance(v, Tensor)}

    def _array(self, tensor: Tensor) -> Any:
        tensor = tensor[0] if self.single else tensor
        return tensor if self.is_torch else tensor.numpy()


def _tensor(name: str, array: Any, device: torch.device) -> Tensor:
    """Return a tensor, a NumPy array of any strides, or nested lists as a tensor."""
    if isinstance(array, Tensor):
        return array.detach().to(device)
    try:
        plain = np.asarray(array)
        native = plain.astype(plain.dtype.newbyteorder("="), order="C")
        return torch.from_numpy(native).to(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: {error}; allowed is an array of numbers") from error


def _check_tolerances(gap: float, rank_tolerance: float) -> None:
    for name, value, allowed, holds in (
        ("gap", gap, "0 < gap <= 1e-2", 0 < gap <= 1e-2),
        ("rank_tolerance", rank_tolerance, "0 < rank_tolerance < 1", 0 < rank_tolerance < 1),
    ):
        if not holds:
            raise ValueError(f"{name}={value!r}: allowed is {allowed}")
