"""From the attended token to a prediction: the head h of f_i = h(X_i^T s_i)."""

from abc import ABC, abstractmethod
from threading import Lock
from typing import Any, ClassVar

import torch
from numba import njit
from torch import Generator, Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import logsigmoid

from attnsvm.linalg import own_settings
from attnsvm.linalg.simd.arithmetic import where
from attnsvm.linalg.simd.array import LaneArray

Parameters = dict[str, Tensor]

ROUNDING = 1e-12
"""Largest rounding error of products of orthonormal embeddings, which are 0 or 1."""

KINDS = torch.eye(3, dtype=torch.float64)
"""Columns alpha, beta and rho of a projection that counts itself, its square, its positive part."""


class Head(ABC):
    """A prediction head h: R^d -> R, one set of parameters for each problem instance.

    A head stores only its config options. `draw` returns the parameters of one instance. The other
    methods take parameters with a leading axis B. A new head must define `draw` and `value`.

    Parameters
    ----------
    train : bool
        Whether the parameters are trained together with the attention weights.
    """

    LABELS_FIRST: ClassVar[bool] = True
    """Whether the published scripts draw the labels before the tokens (else after them)."""

    def __init__(self, train: bool = False) -> None:
        self.train = train

    rate: float = 1.0
    """Length of the steps of trained parameters, as a share of those of the optimizer."""

    @abstractmethod
    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return the float64 parameters of one instance, drawn in float32."""

    @abstractmethod
    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return h(o), shape (B, ...), of o, shape (B, ..., d)."""

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return dh/do, with the shape of o (B, ..., d); by autograd unless overridden."""
        with torch.enable_grad():
            o = o.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.value(o, parameters).sum(), o)
        return gradient

    def mean_value(self, s: Tensor, X: Tensor, o: Tensor, parameters: Parameters) -> Tensor:
        """Return h(o), shape (B, n), of the means o = X^T s, (B, n, d), with s (B, n, T)."""
        return self.value(o, parameters)

    def token_slopes(self, X: Tensor, o: Tensor, parameters: Parameters) -> Tensor:
        """Return x^T dh/do of every token, shape (B, n, T), at the means o (B, n, d)."""
        B, n, T, d = X.shape
        gradient = self.gradient(o, parameters).reshape(B * n, d, 1)
        return torch.bmm(X.reshape(B * n, T, d), gradient).view(B, n, T)

    def features(self, X: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor] | None:
        """Return projections p = P^T x if the head is a sum of simple functions of them, else None.

        h(o) = sum_j alpha_j p_j + beta_j p_j^2 / 2 + rho_j max(p_j, 0). X and the first axis of
        every parameter may be given in any orthonormal basis that spans X. The projections of X
        (B, n, T, d) are (B, n, T, k); the second tensor is alpha, beta and rho, (3, k).
        """
        return None

    def parameter_gradient(self, o: Tensor, parameters: Parameters, weights: Tensor) -> Parameters:
        """Return the gradient of sum_i weights_i h(o_i) in the parameters, by autograd.

        Points o are (B, n, d), parameters (B, ...), weights (B, n).
        """
        with torch.enable_grad():
            tracked = {name: p.detach().requires_grad_() for name, p in parameters.items()}
            total = (weights.detach() * self.value(o.detach(), tracked)).sum()
            gradients = torch.autograd.grad(total, list(tracked.values()), materialize_grads=True)
        return dict(zip(parameters, gradients, strict=True))


@njit(inline="always")
def feature(p: Any, kinds: LaneArray, j: int) -> Any:
    """Return alpha p + beta p^2 / 2 + rho max(p, 0), and its derivative, in compiled code.

    p is projection j of `Head.features`, with their kinds (3, k).
    """
    kink = where(p > 0, kinds[2, j], 0)
    return p * (kinds[0, j] + 0.5 * kinds[1, j] * p + kink), kinds[0, j] + kinds[1, j] * p + kink


class Projections(Head):
    """h(o) = sum_j alpha_j p_j + beta_j p_j^2 / 2 + rho_j max(p_j, 0) of projections p = P^T o."""

    @abstractmethod
    def projections(self, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return P (B, d, k), and alpha, beta and rho, (3, k)."""

    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return h(o)."""
        P, kinds = self.projections(parameters)
        p, (alpha, beta, rho) = _times_matrix(o, P), kinds.to(P)
        return (p * (alpha + 0.5 * beta * p) + rho * p.relu()).sum(-1)

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return P h'(p)."""
        P, kinds = self.projections(parameters)
        p, (alpha, beta, rho) = _times_matrix(o, P), kinds.to(P)
        return _times_matrix(alpha + beta * p + rho * (p > 0), P.mT)

    def features(self, X: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return p of the tokens, and alpha, beta and rho."""
        P, kinds = self.projections(parameters)
        return _times_matrix(X, P), kinds


class Linear(Projections):
    """h(o) = v^T o with parameters v, shape (B, d), ||v|| = 1."""

    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return v, uniform on the unit sphere."""
        return {"v": unit_vector(generator, d)}

    def projections(self, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return v, itself."""
        return parameters["v"].unsqueeze(-1), KINDS[:, :1]


class Joint(Linear):
    """The linear head, trained: its steps are `v_rate` times as long as those of the optimizer."""

    def __init__(self, v_rate: float = 1.0, train: bool = True) -> None:
        super().__init__(train)
        self.rate = self.v_rate = v_rate


class RowScores(Head):
    """h(o_i) = v_i^T o_i with a vector for every sample, v of shape (B, n, d).

    Scores of the tokens of an instance that are all 0 or 1 to within ROUNDING, as those of
    orthonormal embeddings, are rounded: then h is the attention that a label has, however small.
    """

    def draw(self, generator: Generator, d: int) -> Parameters:
        """Raise: the vectors are those of a trained network."""
        raise NotImplementedError("the vectors of RowScores are those of a trained network")

    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return v_i^T o_i, of o (B, n, d) or (B, n, T, d)."""
        return (self.gradient(o, parameters) * o).sum(-1)

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return v_i."""
        v = parameters["v"]
        return (v if o.ndim == v.ndim else v.unsqueeze(-2)).expand_as(o)

    def mean_value(self, s: Tensor, X: Tensor, o: Tensor, parameters: Parameters) -> Tensor:
        """Return sum_t s_it v_i^T x_it."""
        return (s * self.token_slopes(X, o, parameters)).sum(-1)

    def token_slopes(self, X: Tensor, o: Tensor, parameters: Parameters) -> Tensor:
        """Return v_i^T x_it, rounded."""
        scores = self.value(X, parameters)
        whole = scores.round()
        near = ((scores - whole).abs() < ROUNDING) & ((whole == 0) | (whole == 1))
        return torch.where(near.all((1, 2), keepdim=True), whole, scores)

    def features(self, X: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return v_i^T x, rounded, and the identity."""
        scores = self.token_slopes(X, X[:, :, 0], parameters)
        return scores.unsqueeze(-1), KINDS[:, :1]

    def of_labels(self, C: Tensor, y: Tensor) -> Parameters:
        """Return the parameters that score each of the labels y (..., n) by its row of C (K, d)."""
        return {"v": C[y]}


class Vocabulary(Head):
    """h(o_i) = log softmax(C o_i)_{y_i}, the log-probability of the label y_i among K tokens.

    With the linear loss the risk is the cross-entropy over the vocabulary. Parameters are C
    (B, K, d), and the labels y (B, n), or (B, 1) for a label that all samples have.
    """

    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return five rows uniform on the unit sphere, with the label 0."""
        return {"C": unit_vector(generator, 5, d), "y": torch.zeros(1).double()}

    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return -log(1 + sum_{k != y} e^((c_k - c_y)^T o))."""
        rise, _ = self._rise(o, parameters)
        return logsigmoid(-rise.logsumexp(-1))

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return sum_{k != y} p_k (c_y - c_k), p = softmax(C o): nothing cancels at p_y = 1."""
        rise, y = self._rise(o, parameters)
        log_p = rise + logsigmoid(-rise.logsumexp(-1, keepdim=True))
        p = log_p.exp()
        return _times_matrix((-p).scatter(-1, y, p.sum(-1, keepdim=True)), parameters["C"])

    def _rise(self, o: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return (c_k - c_y)^T o, -inf at k = y, shape (B, ..., K), and y, (B, ..., 1)."""
        scores, y = _times_matrix(o, parameters["C"].mT), parameters["y"].round().long()
        y = y.reshape(*y.shape, *[1] * (o.ndim - y.ndim)).expand(*o.shape[:-1], 1)
        return (scores - scores.gather(-1, y)).scatter(-1, y, -torch.inf), y

    def of_labels(self, C: Tensor, y: Tensor) -> Parameters:
        """Return the rows C (K, d), and the labels y (..., n)."""
        return {"C": C.expand(*y.shape[:-1], *C.shape), "y": y.double()}


class Relu(Projections):
    """h(o) = 1^T relu(V^T o) with parameters V, shape (B, d, d), ||V||_F = 1: a two-layer MLP."""

    LABELS_FIRST: ClassVar[bool] = False

    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return V, normal entries divided by their Frobenius norm."""
        V = torch.randn(d, d, generator=generator, dtype=torch.float32)
        return {"V": (V / V.norm()).double()}

    def projections(self, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return V, the positive parts."""
        V = parameters["V"]
        return V, KINDS[:, 2:].expand(3, V.shape[-1])


class Quadratic(Linear):
    """h(o) = v^T o - lambda ||o||^2 with parameters v, shape (B, d), ||v|| = 1.

    With `lam`, lambda >= 0, above 0 a mixture of tokens may score more than each of them.
    """

    def __init__(self, lam: float) -> None:
        super().__init__()
        self.lam = lam

    def projections(self, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return v, itself, and the entries, of which -lambda p^2."""
        v = parameters["v"]
        unit = torch.diag_embed(torch.ones_like(v))
        of_entries = -2 * self.lam * KINDS[:, 1:2].expand(3, v.shape[-1])
        return torch.cat([v.unsqueeze(-1), unit], -1), torch.cat([KINDS[:, :1], of_entries], 1)


_global_draws = Lock()
"""Held where modules draw from the generator that all threads share."""


class Module(Head):
    """Any torch.nn.Module R^d -> R as a head, one copy of its parameters for each instance.

    A subclass defines `module`; torch.func evaluates the copies together.
    """

    @abstractmethod
    def module(self, d: int) -> nn.Module:
        """Return a new module that maps (..., d) to (..., 1), with its default initial weights."""

    @own_settings()
    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return the module's parameters, initialised from one draw of `generator`."""
        seed = int(torch.randint(2**31, (), generator=generator))
        with _global_draws, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed seeds GPUs, too
            module = self.module(d).float()
        return {name: p.detach().double() for name, p in module.named_parameters()}

    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return the module's output at o."""
        with torch.device("meta"):  # only its structure is needed: no memory, no random numbers
            module = self.module(o.shape[-1])

        def evaluated(parameters: Parameters, o: Tensor) -> Tensor:
            return functional_call(module, parameters, (o,)).squeeze(-1)

        return vmap(evaluated)(parameters, o)


class Mlp(Module):
    """Two layers: Linear(d, width), GELU, Linear(width, 1)."""

    def __init__(self, width: int = 16, train: bool = False) -> None:
        super().__init__(train)
        self.width = width

    def module(self, d: int) -> nn.Module:
        """Return a new network."""
        return nn.Sequential(nn.Linear(d, self.width), nn.GELU(), nn.Linear(self.width, 1))


def unit_vector(generator: Generator, *shape: int) -> Tensor:
    """Return a draw uniform on the unit sphere along the last axis; float64, of float32 numbers."""
    v = torch.randn(shape, generator=generator, dtype=torch.float32)
    return (v / v.norm(dim=-1, keepdim=True)).double()


def _times_matrix(o: Tensor, V: Tensor) -> Tensor:
    """Return V^T o, shape (B, ..., k), of o (B, ..., d) and V (B, d, k)."""
    return torch.bmm(o.reshape(len(o), -1, o.shape[-1]), V).reshape(*o.shape[:-1], V.shape[-1])
