"""The constraints of the attention SVMs: rows d_k^T W z_k >= h_k or = h_k, grouped by sample.

Every sample contributes T - 1 rows, one per token other than its reference token; a row that a
mask or a case does not need is padding. So a batch is rectangular, and N = n (T - 1); T = 1 leaves
one row of padding per sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from attnsvm.linalg import EPS
from attnsvm.svm.tolerances import CLEAR, GAP, LIFT

PADDING, INEQUALITY, EQUALITY = 0, 1, 2
SMALL_RHS = 1e-3
"""Right-hand sides below this, relative to the largest, are met only up to rounding."""


@dataclass(frozen=True)
class SvmProblem:
    """A batch of problems  min norm(W)  s.t.  d_k^T W z_k >= h_k  or  d_k^T W z_k = h_k.

    With `relief` inequalities are  d_k^T W z_k >= max(0, h_k - relief_k norm(W)).

    D (B, N, d) are token differences, the rows of sample i at i (T - 1), ..., (i + 1)(T - 1) - 1,
    and h (B, N) the right-hand sides; both are zero where padding. Z (B, n, d) are the queries of
    the samples. `kind` (B, N), int8: 0 padding, 1 inequality, 2 equality. `token` (B, N), int64, is
    the token that the row compares with the reference token of its sample; `relief` (B, N), >= 0,
    how much of h_k every unit of norm(W) takes off.

    Rows are <A_k, W> with A_k = d_k z_k^T, or of any A_k (p, q) with `shape` (p, q): then D has
    their entries, d = p q, in one sample whose query is 1, and W is (B, p, q). Rounding errors are
    those of vectors with `dimension` entries, if these are more than d.
    """

    D: Tensor
    Z: Tensor
    h: Tensor
    kind: Tensor
    token: Tensor
    relief: Tensor | None = None
    shape: tuple[int, int] | None = None
    dimension: int = 0

    @property
    def B(self) -> int:
        """Number of problems."""
        return self.D.shape[0]

    @property
    def N(self) -> int:
        """Number of rows, padding included."""
        return self.D.shape[1]

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.Z.shape[1]

    @property
    def d(self) -> int:
        """Token dimension."""
        return self.D.shape[2]

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of W."""
        return self.shape or (self.D.shape[2], self.Z.shape[2])

    @cached_property
    def inequality(self) -> Tensor:
        """Which rows are inequalities, (B, N) bool."""
        return self.kind == INEQUALITY

    @cached_property
    def equality(self) -> Tensor:
        """Which rows are equalities, (B, N) bool."""
        return self.kind == EQUALITY

    @cached_property
    def separating(self) -> Tensor:
        """Which rows are inequalities with h_k > 0, (B, N) bool."""
        return self.inequality & (self.h > 0)

    @cached_property
    def met_by_zero(self) -> Tensor:
        """Which rows are inequalities without relief that W = 0 meets, h_k <= 0, (B, N) bool."""
        return self.inequality & (self.h <= 0) & ~self.relieved[:, None]

    @cached_property
    def relieved(self) -> Tensor:
        """Which problems have relief, (B,) bool."""
        if self.relief is None:
            return torch.zeros_like(self.h[:, 0], dtype=torch.bool)
        return (self.relief > 0).any(dim=1)

    @cached_property
    def homogeneous(self) -> Tensor:
        """Which problems have h_k = 0 in all rows but separating ones, (B,) bool."""
        return (self.separating | (self.h == 0)).all(dim=1)

    @cached_property
    def trivial(self) -> Tensor:
        """Which problems have the solution W = 0, (B,) bool."""
        return (self.met_by_zero | (self.h == 0)).all(dim=1)

    @property
    def queries(self) -> Tensor:
        """The query z_k of every row, (B, N, d)."""
        return self.Z[:, self.sample]

    @property
    def sample(self) -> Tensor:
        """The sample of every row, (N,)."""
        return torch.arange(self.N, device=self.D.device) // (self.N // self.n)

    @cached_property
    def lengths(self) -> tuple[Tensor, Tensor]:
        """The lengths ||d_k|| (B, n, N / n) and ||z_i|| (B, n, 1)."""
        return self._by_sample(lengths(self.D)), lengths(self.Z)[..., None]

    @cached_property
    def zero(self) -> Tensor:
        """Which rows have d_k = 0 or z_k = 0 exactly, (B, N) bool."""
        of_d, of_z = self.lengths
        return ((of_d == 0) | (of_z == 0)).reshape(self.h.shape)

    @cached_property
    def scale(self) -> Tensor:
        """The products ||d_k|| ||z_k||, (B, N)."""
        of_d, of_z = self.lengths
        return (of_d * of_z).reshape(self.h.shape)

    def margins(self, W: Tensor) -> Tensor:
        """Return d_k^T W z_k, (B, N), for W (B, d, d)."""
        W = W if self.shape is None else W.reshape(self.B, self.d, 1)
        u = self.Z @ W.mT
        return (self._by_sample(self.D) @ u[..., None]).reshape(self.h.shape)

    def combine(self, a: Tensor) -> Tensor:
        """Return M(a) = sum_k a_k d_k z_k^T, (B, d, d), for a (B, N)."""
        weighted = (self._by_sample(a)[:, :, None] @ self._by_sample(self.D))[:, :, 0]
        return (weighted.mT @ self.Z).reshape(self.B, *self.size)

    def take(self, index: Tensor | slice) -> SvmProblem:
        """Return the problems at `index`."""
        return replace(self._mapped(lambda rows: rows[index]), Z=self.Z[index])

    def restrict(self, index: Tensor) -> SvmProblem:
        """Return the problem with the rows at `index` (N',), each of them as one sample."""
        Z = self.Z[:, self.sample[index]]
        return replace(self._mapped(lambda rows: rows[:, index]), Z=Z)

    def equalities(self) -> SvmProblem:
        """Return the problem of the equalities alone."""
        return self.keeping(self.equality).without_padding()[0]

    def keeping(self, rows: Tensor) -> SvmProblem:
        """Return the problem with padding in place of all rows but `rows`, (B, N) bool."""
        D, h = torch.where(rows[..., None], self.D, 0.0), torch.where(rows, self.h, 0.0)
        return replace(self, D=D, h=h, kind=torch.where(rows, self.kind, PADDING).to(self.kind))

    def without_padding(self) -> tuple[SvmProblem, Tensor]:
        """Return the problems with as many rows a sample as the longest one has, at least one.

        And the indices of these rows, (B, N'). Padding comes last.
        """
        padding = (self.kind == PADDING).reshape(self.B, self.n, -1)
        count = max(int((~padding).sum(dim=2).amax()), 1)
        order = padding.sort(dim=2, stable=True).indices[..., :count]
        first = torch.arange(0, self.N, padding.shape[2], device=order.device)[:, None]
        rows = (first + order).flatten(1)
        instance = torch.arange(self.B, device=rows.device)[:, None]
        return self._mapped(lambda x: x[instance, rows]), rows

    def to(self, device: torch.device | str) -> SvmProblem:
        """Return the same problems on `device`."""
        return replace(self._mapped(lambda rows: rows.to(device)), Z=self.Z.to(device))

    def rhs_at_norm(self, size: Tensor | float) -> Tensor:
        """Return the right-hand sides h_k at norm(W) = size, (B,) or one for all; (B, N)."""
        if self.relief is None:
            return self.h
        taken = self.relief * (size[:, None] if isinstance(size, Tensor) else size)
        return torch.where(self.relief > 0, (self.h - taken).clamp(min=0.0), self.h)

    def at_norm(self, size: Tensor | float) -> SvmProblem:
        """Return the problem with the right-hand sides at norm(W) = size, fixed.

        Rows that are exactly zero, and so is their right-hand side, are padding.
        """
        h = self.rhs_at_norm(size)
        kind = torch.where(self.zero & (h == 0), PADDING, self.kind)
        return replace(self, h=h, kind=kind, relief=None)

    @property
    def with_unit_rhs(self) -> SvmProblem:
        """The problem with the largest right-hand side also in rows of small right-hand sides."""
        return replace(self, h=torch.where(self.small_rhs, self.rhs_scale, self.h), relief=None)

    @cached_property
    def rhs_scale(self) -> Tensor:
        """The largest h_k of the inequalities, (B, 1); of all rows in size where none is > 0."""
        most = torch.where(self.inequality, self.h, 0.0).amax(dim=1, keepdim=True)
        return torch.where(most > 0, most, self.h.abs().amax(dim=1, keepdim=True))

    @cached_property
    def small_rhs(self) -> Tensor:
        """Which inequalities have an h_k that is small beside the largest one, (B, N) bool.

        Of rows of comparable size, as in canonical units.
        """
        return self.inequality & ~self.zero & (self.h < SMALL_RHS * self.rhs_scale)

    @property
    def unit_rounding(self) -> float:
        """The rounding error of a margin relative to ||d_k|| ||z_k|| ||W||_F."""
        return (2 * max(self.d, self.Z.shape[2], self.dimension) + 10) * EPS

    def rounding(self, W: Tensor) -> Tensor:
        """Return the rounding errors of the margins of W, (B, N)."""
        return self.unit_rounding * self.scale * frobenius(W)[:, None]

    def separated_by(self, W: Tensor) -> Tensor:
        """Return where all rows are separating and have margins beyond rounding at W, (B,) bool.

        W over its least ratio of margin and h_k then has a finite upper bound.
        """
        separated = self.separating & (self.margins(W) > self.rounding(W))
        return (separated | (self.kind == PADDING)).all(dim=1) & self.homogeneous

    def faint(self, W: Tensor, gap: float = GAP) -> Tensor:
        """Return the inequalities with an h_k <= 0, or one so small that rounding blurs it, (B, N).

        The margins of W may not tell whether h_k is reached to the relative accuracy `gap`. None
        where W is NaN.
        """
        return self.inequality & (gap * self.h < CLEAR * self.scale * frobenius(W)[:, None])

    def blurred(self, W: Tensor) -> Tensor:
        """Return the rows of small right-hand sides that W may miss by rounding, (B, N) bool.

        None where the problem is not homogeneous: there W keeps its scale.
        """
        if not self.small_rhs.any():
            return self.small_rhs
        near = self.margins(W) - self.h <= self.rounding(W)
        return near & self.small_rhs & self.homogeneous[:, None] & self.faint(W)

    def with_clear_margins(self, W: Tensor, plain: Tensor) -> Tensor:
        """Return W plus as little of a W of positive margins as makes blurred margins certain.

        W itself where this would cost more than LIFT of its size.
        """
        blurred = self.blurred(W)
        short = self.h + 2 * self.rounding(W) - self.margins(W)
        short = torch.where(blurred, short, 0.0).amax(dim=1)
        margin = least(self.margins(plain), self.inequality)
        share = torch.where(margin > 0, short / margin, 0.0)
        added = share[:, None, None] * plain.nan_to_num(0.0)
        cheap = frobenius(added) <= LIFT * frobenius(W)
        return torch.where(cheap[:, None, None], W + added, W)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> SvmProblem:
        """Return the problem with all arrays of rows changed."""
        D, h, kind, token = map(change, (self.D, self.h, self.kind, self.token))
        relief = None if self.relief is None else change(self.relief)
        return replace(self, D=D, h=h, kind=kind, token=token, relief=relief)

    def _by_sample(self, rows: Tensor) -> Tensor:
        return rows.reshape(self.B, self.n, self.N // self.n, *rows.shape[2:])


def frobenius(W: Tensor) -> Tensor:
    """Return ||W||_F, (B,)."""
    return W.flatten(1).norm(dim=1)


def least(x: Tensor, rows: Tensor) -> Tensor:
    """Return the least x of these rows, (B,); inf where there are none."""
    return torch.where(rows, x, torch.inf).amin(dim=1)


def power_of_two(x: Tensor) -> Tensor:
    """Return the power of two 2^k with 2^k <= sqrt(2) x < 2^(k + 1); 1 where x is 0.

    Powers of two times x have this power times them, exactly.
    """
    exponent = torch.where(x > 0, exponent_of(math.sqrt(2) * x) - 1, 0)
    return torch.exp2(exponent.to(x.dtype))


def exponent_of(x: Tensor) -> Tensor:
    """Return the k with 2^(k - 1) <= |x| < 2^k, int32; 0 where x is 0 or not finite."""
    return torch.frexp(torch.where(x.isfinite(), x, 0.0)).exponent


def lengths(x: Tensor) -> Tensor:
    """Return the Euclidean norms of the last axis; squares neither underflow nor overflow."""
    plain = torch.linalg.vector_norm(x, dim=-1)
    if ((plain > 1e-100) & (plain < 1e100)).all():
        return plain
    unit = power_of_two(x.abs().amax(dim=-1))
    lengths: Tensor = (x / unit[..., None]).norm(dim=-1)
    return lengths * unit
