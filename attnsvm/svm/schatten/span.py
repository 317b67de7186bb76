"""Problems on span(d_k) x span(z_i), where solutions of least unitarily invariant norm lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.cholesky import System
from attnsvm.svm.equalities import restore_equalities
from attnsvm.svm.laned import Group, Rows, Workspace, shared
from attnsvm.svm.nuclear.cone import project
from attnsvm.svm.problem import EQUALITY, INEQUALITY, PADDING, SvmProblem
from attnsvm.svm.schatten.face import Array, Mask
from attnsvm.svm.schatten.turned import Weights

Solve = Callable[[Group, Rows, Weights, System, list[list[int]]], None]
"""Overwrites W and multipliers of a group; given turned rows, weights, system and workspace."""


def solved(
    problem: SvmProblem,
    W: Tensor,
    a: Tensor,
    counts: Callable[[int, int, int], tuple[tuple[int, ...], ...]],
    solve: Solve,
) -> tuple[Tensor, Tensor]:
    """Return W and multipliers after `solve`, eight instances at a time.

    `counts(N, p, q)` are the numbers of entries of its workspace, in parts.
    """
    cone = project(problem, W)
    kind = torch.where(cone.inequality, INEQUALITY, torch.where(cone.padding, PADDING, EQUALITY))
    given = (cone.D, cone.Q, cone.h, kind, *cone.reproject(W, a))

    def each(groups: list[Group]) -> list[None]:
        rows = groups[0].rows
        n, p, q, N = rows.n, rows.p, rows.q, rows.n * rows.R
        r, pairs = min(p, q), n * (n + 1) // 2
        own = ((N * p, n * q, pairs * q), (p * q, r * r, r * r), System.entries(N))
        work = Workspace(own + counts(N, p, q))
        (D, Z, ZZ), weights, system, *rest = work.addresses
        for group in groups:
            turned = group.rows._replace(D=D, Z=Z, ZZ=ZZ)
            solve(group, turned, Weights(*weights), System._make([*system, N]), rest)
        return []

    with announced("solvers of the spectral and Schatten norms"):
        W, a, _ = shared(given, each)
    W, a = cone.unproject(W, a)
    return restore_equalities(problem, W), a


def single(
    problem: SvmProblem, W: Tensor, a: Tensor
) -> tuple[tuple[Array, Array, Array, Mask, Array, Array], Any]:
    """Return D, Q, h, which rows are equalities, W and a of one instance on the span, and back.

    The second result is a function of such W and a; it returns those of the problem.
    """
    cone = project(problem, W)
    keep = ~cone.padding[0]
    Q = cone.Q[0].repeat_interleave(problem.N // problem.n, dim=0)
    W, a = cone.reproject(W, a)
    rows = (cone.D[0, keep], Q[keep], cone.h[0, keep], ~cone.inequality[0, keep])
    D, Q_, h, free, w, y = (x.numpy() for x in (*rows, W[0], a[0, keep]))

    def back(w: Array, y: Array) -> tuple[Tensor, Tensor]:
        multipliers = torch.zeros_like(a)
        multipliers[0, keep] = torch.from_numpy(y)
        return cone.unproject(torch.from_numpy(w)[None], multipliers)

    return (D, Q_, h, free, w, y), back
