"""The trained variables: W itself, or factors K and Q."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.linalg import check_array, tensor_of

Variables = tuple[Tensor, ...]

INIT_STREAM = 0x9E3779B9
"""The seed of initial weights is seed ^ this, different from every data seed below 2^31."""


def flat(variables: Variables) -> Tensor:
    """Return the entries of all variables of each instance as one vector, shape (B, N)."""
    return torch.cat([V.flatten(1) for V in variables], dim=1)


def unflat(v: Tensor, shapes: Sequence[torch.Size]) -> Variables:
    """Return the variables of these shapes whose `flat` is `v`."""
    parts = torch.split(v, [math.prod(shape[1:]) for shape in shapes], dim=1)
    return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))


def normal(seeds: Tensor, stream: int, *shape: int) -> Tensor:
    """Return normal numbers (B, *shape), those of each instance drawn with its seed ^ `stream`."""
    generators = (Generator().manual_seed(seed ^ stream) for seed in seeds.tolist())
    parts = [torch.randn(shape, generator=g, dtype=torch.float64) for g in generators]
    return torch.stack(parts).to(seeds.device)


class Parameterization(ABC):
    """Variables, W as a function of them, and the chain rule from token space to them.

    Every method is batched over the B instances; `Variables` is a tuple of tensors (B, ...).
    """

    NAMES: tuple[str, ...]

    @abstractmethod
    def shapes(self, d: int) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each variable of one instance."""

    @abstractmethod
    def combine(self, variables: Variables) -> Tensor:
        """Return W, shape (B, d, d)."""

    @abstractmethod
    def query(self, variables: Variables, Z: Tensor) -> Tensor:
        """Return u_i = W z_i, shape (B, n, d), so that the logits are X_i u_i."""

    @abstractmethod
    def pullback(self, variables: Variables, P: Tensor, Z: Tensor) -> Variables:
        """Return the gradient in the variables of sum_i P_i^T W z_i, `P` of shape (B, n, d)."""

    @abstractmethod
    def implicit_bias(self, of_W: str | None) -> str | None:
        """Return the norm of the SVM that training converges to; None where it is not known.

        Parameters
        ----------
        of_W : str or None
            The norm where W itself is trained (`Optimizer.implicit_bias`).
        """

    def max_rank(self, d: int) -> int:
        """Return the largest rank of W."""
        return d

    def factors(self, W: Tensor) -> Variables:
        """Return variables whose `combine` is W (B, d, d), for init=cone | balanced | aligned.

        Raises
        ------
        ConfigError
            If the parameterization does not define them.
        """
        raise ConfigError(
            "optimizer.init: must be zero | uniform | small | file: this parameterization does not "
            "define `factors`"
        )

    def zero(self, generator: Generator, d: int) -> Variables:
        """Return variables of one instance for which W = 0."""
        return tuple(torch.zeros(shape, dtype=torch.float64) for shape in self.shapes(d))

    def init(self, kind: str, scale: float, seeds: Tensor, d: int) -> Variables:
        """Return initial variables; the CPU generator is seeded for each instance.

        Parameters
        ----------
        kind : str
            zero: W = 0; uniform: entries uniform in +-1/sqrt(d); small: the same times `scale`.
        scale : float
            Factor of `small`.
        seeds : Tensor
            Seed of each instance, shape (B,).
        d : int
            Dimension of a token.
        """
        generator = Generator()  # a new one for each instance takes longer than its numbers
        generators = (generator.manual_seed(seed ^ INIT_STREAM) for seed in seeds.tolist())
        if kind == "zero":
            drawn = zip(*(self.zero(seeded, d) for seeded in generators), strict=True)
            return tuple(torch.stack(parts).to(seeds.device) for parts in drawn)
        shapes = [(len(seeds), *shape) for shape in self.shapes(d)]
        variables = tuple(torch.empty(shape, dtype=torch.float64) for shape in shapes)
        # unbind and uniform_: a view and a call of torch.rand take longer than the numbers
        for seeded, *parts in zip(generators, *(V.unbind() for V in variables), strict=True):
            for part in parts:
                part.uniform_(generator=seeded)
        bound = (scale if kind == "small" else 1.0) / math.sqrt(d)
        return tuple(V.mul_(2).sub_(1).mul_(bound).to(seeds.device) for V in variables)

    def copied(self, variables: Tensor | Variables, B: int, d: int) -> Variables:
        """Return copies of initial variables; without axis B, all instances get the same.

        Raises
        ------
        ConfigError
            If their number, a shape, a type or a value does not fit this parameterization.
        """
        tensors = (variables,) if hasattr(variables, "ndim") else tuple(variables)
        if len(tensors) != len(self.NAMES):
            raise ConfigError(f"init: {len(tensors)} tensors; must be {', '.join(self.NAMES)}")
        checked = []
        for name, array, shape in zip(self.NAMES, tensors, self.shapes(d), strict=True):
            tensor = tensor_of(f"init {name}", array).detach()
            full = tensor.expand(B, *tensor.shape) if tensor.ndim == len(shape) else tensor
            check_array(f"init {name}", full, (B, *shape), torch.float64)
            checked.append(full.clone(memory_format=torch.contiguous_format))
        return tuple(checked)


class W(Parameterization):
    """The combined weights W, shape (B, d, d), themselves (problem W-ERM of arXiv 2308.16898)."""

    NAMES = ("W0",)

    def shapes(self, d: int) -> tuple[tuple[int, ...], ...]:
        """Return ((d, d),)."""
        return ((d, d),)

    def combine(self, variables: Variables) -> Tensor:
        """Return W."""
        return variables[0]

    def query(self, variables: Variables, Z: Tensor) -> Tensor:
        """Return W z_i."""
        return torch.bmm(Z, variables[0].mT)

    def pullback(self, variables: Variables, P: Tensor, Z: Tensor) -> Variables:
        """Return (dL/dW,) = (sum_i P_i z_i^T,)."""
        return (torch.bmm(P.mT, Z),)

    def factors(self, W: Tensor) -> Variables:
        """Return (W,)."""
        return (W,)

    def implicit_bias(self, of_W: str | None) -> str | None:
        """Return the norm of the optimizer."""
        return of_W


class KQ(Parameterization):
    """W = K Q^T with K, Q of shape (B, d, m), 1 <= m <= d; m=None means d.

    This is problem KQ-ERM of arXiv 2308.16898.
    """

    NAMES = ("K0", "Q0")

    def __init__(self, m: int | None = None) -> None:
        self.m = m

    def shapes(self, d: int) -> tuple[tuple[int, ...], ...]:
        """Return ((d, m), (d, m))."""
        m = d if self.m is None else self.m
        if not 1 <= m <= d:
            raise ConfigError(f"parameterization.m={m}: must be >= 1 and <= d={d}")
        return ((d, m), (d, m))

    def zero(self, generator: Generator, d: int) -> Variables:
        """Return K = 0.1 * normal and Q = 0: W = 0, but not a stationary point."""
        shape = self.shapes(d)[0]
        K = 0.1 * torch.randn(shape, generator=generator, dtype=torch.float64)
        return K, torch.zeros_like(K)

    def combine(self, variables: Variables) -> Tensor:
        """Return K Q^T."""
        K, Q = variables
        return torch.bmm(K, Q.mT)

    def query(self, variables: Variables, Z: Tensor) -> Tensor:
        """Return K Q^T z_i."""
        K, Q = variables
        return torch.bmm(torch.bmm(Z, Q), K.mT)

    def pullback(self, variables: Variables, P: Tensor, Z: Tensor) -> Variables:
        """Return (dL/dW Q, dL/dW^T K) = (sum_i P_i (Q^T z_i)^T, sum_i z_i (K^T P_i)^T)."""
        K, Q = variables
        return torch.bmm(P.mT, torch.bmm(Z, Q)), torch.bmm(Z.mT, torch.bmm(P, K))

    def factors(self, W: Tensor) -> Variables:
        """Return K = U S^(1/2) and Q = V S^(1/2) of the SVD W = U S V^T: K^T K = Q^T Q.

        With m < d, of the m largest singular values: the nearest W of rank m.
        """
        m = self.shapes(W.shape[-1])[0][1]
        U, sigma, Vh = torch.linalg.svd(W)
        root = sigma[:, None, :m].sqrt()
        return U[:, :, :m] * root, Vh.mT[:, :, :m] * root

    def implicit_bias(self, of_W: str | None) -> str | None:
        """Return the nuclear norm for the Frobenius norm in K and Q; others are not known.

        Proved for the regularisation path (arXiv 2308.16898); with m < d that of the SVM with
        rank(W) <= m.
        """
        return "nuclear" if of_W == "frobenius" else None

    def max_rank(self, d: int) -> int:
        """Return m."""
        return d if self.m is None else self.m
