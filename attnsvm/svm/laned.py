"""The rows of eight problems at once, for compiled solvers: products with them, and threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.linalg.simd.arithmetic import (
    LANES,
    at,
    fill,
    fma,
    least,
    load,
    magnitude,
    most,
    store,
    where_greater,
)
from attnsvm.linalg.simd.blocks import from_lanes, to_lanes
from attnsvm.linalg.simd.matmul import dot, product
from attnsvm.svm.problem import SvmProblem, power_of_two

Array = NDArray[np.float64]

NO_BOUND = 1e300

PATIENCE = 3.0
"""Steps without a narrower bracket before an instance stops."""

PART = 8
"""Most groups of a part of the batch: its arrays stay in the cache."""

Answer = TypeVar("Answer")


class Rows(NamedTuple):
    """Addresses of the rows of eight problems, and their sizes; entries are lanes.

    D (N, p), Z (n, q), N = n R; ZZ (n (n + 1) / 2, q) the products z_i z_j of two queries, j <= i;
    h, 1 / h of the inequalities, and 1 or 0: whether a row is an inequality, and whether it is one
    at all (N,); u, C, block workspace.
    """

    D: int
    Z: int
    ZZ: int
    h: int
    inverse_h: int
    inequality: int
    real: int
    u: int
    C: int
    block: int
    n: int
    R: int
    p: int
    q: int


@njit(inline="always")  # type: ignore[untyped-decorator]
def combine(rows: Any, a: int, M: int) -> None:
    """Write M(a) = sum_k a_k d_k z_k^T, (p, q)."""
    n, R, p, q = rows.n, rows.R, rows.p, rows.q
    for i in range(n):
        for j in range(p):
            total = fill(0.0)
            for k in range(i * R, i * R + R):
                total = fma(load(a, k), load(rows.D, k * p + j), total)
            store(rows.u, i * p + j, total)
    product((M, q, 1), (rows.u, 1, p), (rows.Z, q, 1), (p, q, n))


@njit(inline="always")  # type: ignore[untyped-decorator]
def margins(rows: Any, W: int, result: int) -> None:
    """Write d_k^T W z_k, (N,)."""
    n, R, p, q = rows.n, rows.R, rows.p, rows.q
    product((rows.u, p, 1), (rows.Z, q, 1), (W, 1, q), (n, p, q))
    for i in range(n):
        for k in range(i * R, i * R + R):
            store(result, k, dot(at(rows.D, k * p), at(rows.u, i * p), p))


@njit(inline="always")  # type: ignore[untyped-decorator]
def weighted_gram(rows: Any, theta: int, K: int) -> None:
    """Write the lower triangle of K_kl = sum_ij theta_ij d_ki z_kj d_li z_lj, (N, N).

    The sums over j are those of two samples, not of two rows.
    """
    n, R, p, q = rows.n, rows.R, rows.p, rows.q
    N, pairs, pair = n * R, n * (n + 1) // 2, 0
    product((rows.C, 1, p), (theta, q, 1), (rows.ZZ, 1, q), (p, pairs, q))
    for i in range(n):
        for j in range(i + 1):
            for k in range(R):
                for e in range(p):
                    weight = load(rows.C, pair * p + e)
                    store(rows.block, k * p + e, load(rows.D, (j * R + k) * p + e) * weight)
            block = (at(K, i * R * N + j * R), N, 1)
            product(block, (at(rows.D, i * R * p), p, 1), (rows.block, 1, p), (R, R, p))
            pair += 1


@njit(inline="always")  # type: ignore[untyped-decorator]
def least_margin(rows: Any, margin: int) -> Any:
    """Return min_k (d_k^T W z_k) / h_k over the inequalities; NO_BOUND without any."""
    found = fill(NO_BOUND)
    for k in range(rows.n * rows.R):
        ratio = load(margin, k) * load(rows.inverse_h, k)
        among = where_greater(load(rows.inequality, k), fill(0.5), ratio, fill(NO_BOUND))
        found = least(found, among)
    return found


@njit(inline="always")  # type: ignore[untyped-decorator]
def add_slack(rows: Any, K: int, s: int, inverse_a: int) -> None:
    """Add s / a of the inequalities to the diagonal of K (N, N), and one where a row is padding."""
    N = rows.n * rows.R
    for k in range(N):
        added = load(s, k) * load(inverse_a, k) * load(rows.inequality, k)
        padding = fill(1.0) - load(rows.real, k)  # whose row and column of K are zero
        store(K, k * N + k, load(K, k * N + k) + added + padding)


@njit(inline="always")  # type: ignore[untyped-decorator]
def slack_targets(rows: Any, x: Any, dx: Any, mu: Any, second: bool, target: int) -> None:
    """Write mu - s a of the inequalities, (N,), less ds da of the predictor's step."""
    (s, a), (ds, da) = x, dx
    for k in range(rows.n * rows.R):
        left = mu - load(s, k) * load(a, k)
        if second:
            left = left - load(ds, k) * load(da, k)
        store(target, k, left * load(rows.inequality, k))


@njit(inline="always")  # type: ignore[untyped-decorator]
def slack_step(rows: Any, s: int, da: int, inverse_a: int, target: int, ds: int) -> None:
    """Write ds = (target - s da) / a of the inequalities, (N,)."""
    for k in range(rows.n * rows.R):
        step = (load(target, k) - load(s, k) * load(da, k)) * load(inverse_a, k)
        store(ds, k, step * load(rows.inequality, k))


@njit(inline="always")  # type: ignore[untyped-decorator]
def slack_products(rows: Any, x: Any, dx: Any, primal: Any, dual: Any, total: Any) -> Any:
    """Return `total` and the sum of s a over the inequalities, after a step of these lengths."""
    (s, a), (ds, da) = x, dx
    for k in range(rows.n * rows.R):
        new_s, new_a = fma(primal, load(ds, k), load(s, k)), fma(dual, load(da, k), load(a, k))
        total = total + new_s * new_a * load(rows.inequality, k)
    return total


@njit(inline="always")  # type: ignore[untyped-decorator]
def start_sizes(rows: Any, a: int) -> Any:
    """Return what a strictly feasible start is made with.

    One where W may be rescaled, zero where an equality has h_k != 0; by how much W is enlarged; the
    least slack; and what is added to the multipliers. The constants were tuned for few steps.
    """
    zero, one, half = fill(0.0), fill(1.0), fill(0.5)
    fixed = largest = total = count = zero
    for k in range(rows.n * rows.R):
        size, is_one = magnitude(load(rows.h, k)), load(rows.inequality, k)
        fixed = most(where_greater(is_one, half, zero, size), fixed)
        largest = most(size, largest)
        total, count = total + magnitude(load(a, k)), count + is_one
    scalable = where_greater(fixed, zero, zero, one)
    stretch = where_greater(fixed, zero, one, fill(1.1))
    return scalable, stretch, fill(0.1) * largest, fill(0.3) * total / most(count, one)


@njit(inline="always")  # type: ignore[untyped-decorator]
def set_slacks(rows: Any, given: int, margin: int, sizes: Any, s: int, a: int) -> None:
    """Write slacks of the margins, and multipliers from those at `given`, both positive, (N,).

    `sizes` are those of `start_sizes`.
    """
    _, _, floor, share = sizes
    zero, one, half = fill(0.0), fill(1.0), fill(0.5)
    for k in range(rows.n * rows.R):
        is_one, multiplier = load(rows.inequality, k), load(given, k)
        slack = most(load(margin, k) - load(rows.h, k), floor)
        store(s, k, where_greater(is_one, half, slack, one))
        multiplier = where_greater(is_one, half, most(multiplier, zero) + share, multiplier)
        store(a, k, multiplier * load(rows.real, k))


@njit(inline="always")  # type: ignore[untyped-decorator]
def keep_better(
    rows: Any, kept: Any, new: Any, bounds: Any, new_bounds: Any, running: Any, gap: float
) -> Any:
    """Overwrite W and a of `kept` by those of `new` where a bound is better; return the bounds.

    `running` is the number of further steps without a better bound that a lane may take; 0 where it
    has stopped: then it keeps what it has, whatever the other lanes do.
    """
    (W, a), (new_W, new_a), (upper, lower) = kept, new, bounds
    zero, one = fill(0.0), fill(1.0)
    new_upper = where_greater(running, zero, new_bounds[0], fill(NO_BOUND))
    new_lower = where_greater(running, zero, new_bounds[1], zero)
    for j in range(rows.p * rows.q):
        store(W, j, where_greater(upper, new_upper, load(new_W, j), load(W, j)))
    for k in range(rows.n * rows.R):
        store(a, k, where_greater(new_lower, lower, load(new_a, k), load(a, k)))
    better = where_greater(upper, new_upper, one, where_greater(new_lower, lower, one, zero))
    upper, lower = least(new_upper, upper), most(new_lower, lower)
    left = where_greater(better, zero, fill(PATIENCE), most(running - one, zero))
    running = where_greater(running, zero, left, zero)
    running = where_greater(upper, fill(1.0 + gap) * lower, running, zero)
    return (upper, lower), running


@dataclass(frozen=True)
class Group:
    """Up to eight problems with a start for each, in arrays whose last axis is the lane.

    `D`, `h` and the start are scaled by powers of two: rows to size one, W to size one.
    """

    rows: Rows
    arrays: tuple[Array, ...]
    W: Array
    a: Array


class Workspace:
    """Arrays of lanes, addressed by compiled code; they live as long as this object.

    Parameters
    ----------
    counts : tuple of tuples
        Number of entries of each array, in parts.

    Attributes
    ----------
    addresses : list of lists of int
        Those of the arrays of each part.
    """

    def __init__(self, counts: tuple[tuple[int, ...], ...]) -> None:
        self.memory = np.zeros((sum(map(sum, counts)), LANES))
        place = self.memory.ctypes.data
        self.addresses: list[list[int]] = []
        for part in counts:
            ends = place + self.memory.strides[0] * np.cumsum([0, *part])
            *starts, place = ends.tolist()
            self.addresses.append(starts)


def in_groups(
    problem: SvmProblem, W: Tensor, a: Tensor, solve: Callable[[Group], None]
) -> tuple[Tensor, Tensor]:
    """Return W and multipliers after `solve`, which overwrites those of each group.

    Groups are shared among the cores: `solve` should release Python's lock.
    """
    unit = power_of_two(problem.scale())
    size = power_of_two(W.flatten(1).norm(dim=1))
    D, h = problem.D / unit[..., None], problem.h / unit / size[:, None]
    given = (D, problem.Z, h, problem.kind, W / size[:, None, None], a * unit)

    def each(groups: list[Group]) -> list[None]:
        for group in groups:
            solve(group)
        return []

    new_W, new_a, _ = shared(given, each)
    return new_W * size[:, None, None], new_a / unit


def shared(
    given: tuple[Tensor, ...], solve: Callable[[list[Group]], list[Answer]]
) -> tuple[Tensor, Tensor, list[Answer]]:
    """Return W, multipliers, and what `solve` returns, for each group in order.

    Parts of the batch are shared among the cores: `solve` overwrites W and multipliers of the
    groups of a part, one after the other, and should release Python's lock.

    Parameters
    ----------
    given : tuple of Tensor
        D (B, N, p), Z (B, n, q), h, kind (B, N), W (B, p, q), a (B, N).
    """
    B, cores = len(given[0]), _cores()
    part = LANES * min(PART, -(-B // (LANES * cores)))

    def answers(first: int) -> tuple[list[Group], list[Answer]]:
        groups = list(_groups([x[first : first + part] for x in given]))
        return groups, solve(groups)

    if B <= part:
        parts = [answers(0)]
    else:
        firsts = range(0, B, part)
        contexts = [copy_context() for _ in firsts]  # in which compilation is announced
        with ThreadPoolExecutor(min(cores, len(firsts))) as pool:
            parts = list(
                pool.map(lambda context, first: context.run(answers, first), contexts, firsts)
            )
    groups = [group for made, _ in parts for group in made]
    W = from_lanes(_together([group.W for group in groups]), given[4].shape)
    a = from_lanes(_together([group.a for group in groups]), given[5].shape)
    return W, a, [answer for _, given in parts for answer in given]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _groups(given: list[Tensor]) -> Iterator[Group]:
    """Yield the problems, eight at a time; the last is repeated to fill the lanes.

    The groups share their workspace.
    """
    (_, N, p), (n, q) = given[0].shape, given[1].shape[1:]
    i, j = np.tril_indices(n)
    D, Z, h, kind, W, a = (
        to_lanes(x.double()).view(-1, *x.shape[1:], LANES).numpy() for x in given
    )
    inequality, real = (kind == 1).astype(float), (kind > 0).astype(float)
    inverse = np.where(inequality > 0, 1 / np.where(h == 0, 1.0, h), 1.0)
    # Fancy indices order the axes in memory as they like.
    ZZ = np.ascontiguousarray(Z[:, i] * Z[:, j])
    data = (D, Z, ZZ, h, inverse, inequality, real)
    work = tuple(np.empty((count, LANES)) for count in (n * p, len(i) * p, N // n * p))
    for group in range(len(D)):
        arrays = (*(x[group] for x in data), *work)
        addresses = [array.ctypes.data for array in arrays]
        yield Group(Rows._make([*addresses, n, N // n, p, q]), arrays, W[group], a[group])


def _together(blocks: list[Array]) -> Tensor:
    """Return blocks of lanes as the one tensor that `to_lanes` makes."""
    return torch.from_numpy(np.stack(blocks)).flatten(1)
