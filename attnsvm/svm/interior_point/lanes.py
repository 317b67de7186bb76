"""The method of a cone for eight instances at a time, one in each lane, in compiled code."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import pairwise
from typing import Any

import torch

from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.blocks import blocks_of, of_blocks
from attnsvm.linalg.simd.cholesky import System
from attnsvm.svm.interior_point import kernels
from attnsvm.svm.interior_point.loop import Best, Cone

VECTORS = ("s", "a", "delta")
"""Fields of points that are vectors in compiled code."""

SHARED = 2**12
"""Blocks times N^2 of a part of the batch: with less, another core costs more than it saves."""


def best_of_blocks(cone: Cone[Any], x: Any, gap: float) -> tuple[Best, Any]:
    """Return what `loop.follow` returns, by `solve` of the module `cone.compiled`."""
    rows, method = cone.rows, cone.compiled
    (B, N, p), (n, q) = rows.D.shape, rows.Z.shape[1:]
    columns = (v[..., 0].to(x.s) for v in (rows.h, rows.inequality, rows.real))
    blocks = kernels.RowsOfBlock._make(map(blocks_of, (rows.D, rows.Z, *columns)))
    bounds = (torch.full_like(x.s[:, 0], bound) for bound in (torch.inf, 0.0))
    best = kernels.BestOfBlock._make(map(blocks_of, (x.W, x.a[..., 0], *bounds)))
    fields = ((name, getattr(x, name)) for name in method.Iterate._fields)
    point = method.Iterate._make(
        blocks_of(v[..., 0] if name in VECTORS else v) for name, v in fields
    )
    shapes = [array.shape[1:] for array in point]

    def solve(first: int, end: int) -> None:
        """Solve the blocks from `first` to `end`."""
        here = (
            type(arrays)._make(LaneArray(x.array[first:end]) for x in arrays)
            for arrays in (blocks, point, best)
        )
        step = method.Iterate._make(LaneArray.several(*shapes))
        work = method.Work.new(n, N // n, p, q)
        method.solve(*here, step, work, gap, *cone.options(), System.of_size(N))

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    count = len(best.upper)
    workers = max(1, min(cores, count, count * N**2 // SHARED))
    parts = list(pairwise(count * k // workers for k in range(workers + 1)))
    with announced("solvers of norms other than Frobenius"):
        if workers == 1:
            solve(0, count)
        else:
            contexts = [copy_context() for _ in parts]  # in which compilation is announced
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(lambda context, part: context.run(solve, *part), contexts, parts))
    W, a, upper, lower = (of_blocks(array, B) for array in best)
    return Best(W, a[..., None], upper[..., None], lower[..., None]), x
