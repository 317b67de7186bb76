"""The batch of problem instances that every stage works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.config.fields import SEEDS, builtin
from attnsvm.config.instantiate import named_from
from attnsvm.display.results import Batched, one_instance, scene, token_scores
from attnsvm.head import Head, Parameters
from attnsvm.linalg import check_array, own_settings, real, tensor_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class ProblemBatch(Batched):
    """B independent instances of n samples with T tokens of dimension d (arXiv 2308.16898, sec. 2).

    Sample i attends with weights s_i = softmax(X_i W z_i) over its admissible tokens and predicts
    f_i = h(X_i^T s_i). The logit of token t is x_it^T W z_i everywhere in this package.

    Attributes
    ----------
    X : Tensor
        Key tokens, shape (B, n, T, d), float64, finite.
    Z : Tensor
        Query of each sample, shape (B, n, d), float64, finite.
    Y : Tensor
        Labels, shape (B, n), float64, each -1 or +1.
    mask : Tensor
        Tokens that a sample may attend to, shape (B, n, T), bool, at least one for each sample.
    head : Head
        The prediction head h.
    head_parameters : dict of str to Tensor
        Its parameters, each with a leading axis B.
    seeds : Tensor
        Seed of each instance, shape (B,), int64.
    weights : Tensor or None
        Attention weights that come with each instance, shape (B, H, d, d), the measured one first.
    held_out : ProblemBatch or None
        Further samples of the same instances, which are not trained on.

    Raises
    ------
    ConfigError
        If an array has a wrong shape, type or value; the message names it and what is allowed.
    """

    X: Tensor
    Z: Tensor
    Y: Tensor
    mask: Tensor
    head: Head
    head_parameters: Parameters
    seeds: Tensor
    weights: Tensor | None = None
    held_out: ProblemBatch | None = None

    @classmethod
    @own_settings()
    def of(
        cls,
        X: Any,
        Z: Any,
        Y: Any,
        mask: Any = None,
        head: str | Head = "linear",
        seed: int = 0,
        **parameters: Any,
    ) -> ProblemBatch:
        """Return a batch of given arrays: tensors, NumPy arrays or nested lists.

        Parameters
        ----------
        X : (B, n, T, d), or (n, T, d) for a single instance
            Tokens.
        Z : (B, n, d)
            Queries.
        Y : (B, n)
            Labels, each -1 or +1.
        mask : (B, n, T) bool, optional
            Tokens that a sample may attend to.
        head : str or Head
            An option of `head=`, see `attnsvm --help`; or an object.
        seed : int
            Instance i has seed `seed + i`: that of initial weights, and of the head if it is drawn.
        **parameters
            Options of a head that is given by name, as `lam`; and parameters of the head, each
            (B, ...), or without the axis B the same for all instances: v (d,) of the linear and
            quadratic head, V (d, d) of relu. One that is not given is drawn.

        Returns
        -------
        ProblemBatch
            Float64, on the device of `X`.

        Raises
        ------
        ConfigError
            If an array has a wrong shape, type or value, or the head has no parameter of that name.
        """
        device = X.device if isinstance(X, Tensor) else torch.device("cpu")
        X, Z, Y = (real(name, V, device) for name, V in (("X", X), ("Z", Z), ("Y", Y)))
        if X.ndim not in (3, 4) or 0 in X.shape:
            raise ConfigError(f"X: shape {tuple(X.shape)}; must be (B, n, T, d) or (n, T, d)")
        mask = torch.ones_like(X[..., 0], dtype=torch.bool) if mask is None else mask
        mask = tensor_of("mask", mask, device)
        if X.ndim == 3:
            X, Z, Y, mask = (V[None] for V in (X, Z, Y, mask))
        B, d = len(X), X.shape[-1]
        seed = builtin(seed)
        if not SEEDS.holds(seed):
            raise ConfigError(f"seed={seed}: must be {SEEDS}")
        chosen: Head = named_from("head", head, parameters)  # some may be options of the head
        drawn = [chosen.draw(Generator().manual_seed(seed + b), d) for b in range(B)]
        parameters_drawn = {
            name: torch.stack([instance[name] for instance in drawn]).to(device)
            for name in drawn[0]
        }
        of_head = given_parameters(parameters_drawn, parameters)
        return cls(X, Z, Y, mask, chosen, of_head, torch.arange(seed, seed + B, device=device))

    @own_settings()
    def __post_init__(self) -> None:
        for name in ("X", "Z", "Y", "mask", "seeds", "weights"):
            if (array := getattr(self, name)) is not None:
                object.__setattr__(self, name, tensor_of(name, array).detach())
        parameters = {
            name: tensor_of(f"head parameter {name}", p).detach()
            for name, p in self.head_parameters.items()
        }
        object.__setattr__(self, "head_parameters", parameters)
        if self.X.ndim != 4 or 0 in self.X.shape:
            raise ConfigError(f"X: shape {tuple(self.X.shape)}; must be (B, n, T, d), none 0")
        B, n, T, d = self.X.shape
        check_array("X", self.X, (B, n, T, d), torch.float64)
        check_array("Z", self.Z, (B, n, d), torch.float64)
        check_array("Y", self.Y, (B, n), torch.float64)
        check_array("mask", self.mask, (B, n, T), torch.bool)
        check_array("seeds", self.seeds, (B,), torch.int64)
        wrong = self.Y[self.Y.abs() != 1]
        if wrong.numel():
            raise ConfigError(f"Y: label {wrong[0].item()}; must be -1 or +1")
        if not self.mask.any(-1).all():
            raise ConfigError("mask: every sample must have at least one admissible token")
        for name, value in self.head_parameters.items():
            check_array(f"head parameter {name}", value, (B, *value.shape[1:]), torch.float64)
        if self.weights is not None:
            H = self.weights.shape[1] if self.weights.ndim == 4 else 1
            check_array("weights", self.weights, (B, H, d, d), torch.float64)

    @property
    def B(self) -> int:
        """Number of instances."""
        return self.X.shape[0]

    @property
    def n(self) -> int:
        """Samples of an instance."""
        return self.X.shape[1]

    @property
    def T(self) -> int:
        """Tokens of a sample."""
        return self.X.shape[2]

    @property
    def d(self) -> int:
        """Dimension of a token."""
        return self.X.shape[3]

    @cached_property
    def unmasked(self) -> bool:
        """Whether every token is admissible."""
        return bool(self.mask.all())

    @cached_property
    @own_settings()
    def widths(self) -> tuple[int, int]:
        """Entries of a token and of a query, d and d, without zeros that pad a linear classifier.

        The tokens of a linear classifier are the classes e_1, ..., e_T.
        """
        if not (self.X == torch.eye(self.T, self.d).to(self.X)).all():
            return self.d, self.d
        last = self.Z.flatten(0, 1).any(0).nonzero()[-1:].sum() + 1
        return self.T, self.d if self.T < self.d else int(last)

    @cached_property
    def has_query(self) -> Tensor:
        """1 where a query is non-zero, 0 where it is zero and W has no effect; (B, n), float64."""
        return self.Z.any(-1).to(self.Z.dtype)

    def scores(self, parameters: Parameters | None = None) -> Tensor:
        """Return gamma_it = Y_i h(x_it), shape (B, n, T), -inf at inadmissible tokens (Def. 1).

        `parameters` of a trained head, each (B, ...), take the place of those of the batch.
        """
        if parameters is None:
            parameters = self.head_parameters
        gamma = self.Y.unsqueeze(-1) * self.head.value(self.X, parameters)
        return gamma.masked_fill(~self.mask, -torch.inf)

    def summary(self) -> dict[str, Any]:
        """Return the sizes and the head."""
        head = type(self.head).__name__ + (" (trained)" if self.head.train else "")
        sizes = {"instances": self.B, "n": self.n, "T": self.T, "d": self.d, "head": head}
        masked = {} if self.unmasked else {"masked_tokens": int((~self.mask).sum())}
        return sizes | masked | {"device": str(self.X.device)}

    def plot(self, instance: int = 0, W: Any = None, ax: Axes | None = None) -> Axes:
        """Draw an instance: its tokens in the plane if d = 2, else the score of every token.

        Weights W (B, d, d), or snapshots of training (B, S, d, d), add in the plane the paths of
        W z_i, scaled to the scene, else the attention of the last weights. By default on new axes.
        """
        single = self[instance]
        path = None if W is None else self._checked_weights(W)[one_instance(instance, self.B)][0]
        scores = single.scores()[0].cpu().numpy()
        if self.d == 2:
            X, Z = single.X[0].cpu().numpy(), single.Z[0].cpu().numpy()
            return scene(ax, X, Z, scores, None if path is None else path.cpu().numpy())
        if path is None:
            return token_scores(ax, scores)
        logits = torch.einsum("ntd,de,ne->nt", single.X[0], path[-1], single.Z[0])
        softmax = logits.masked_fill(~single.mask[0], -torch.inf).softmax(-1)
        return token_scores(ax, scores, softmax.cpu().numpy())

    def _checked_weights(self, W: Any) -> Tensor:
        """Return W as snapshots, (B, S, d, d)."""
        weights = real("W", W, self.X.device)
        snapshots = weights[:, None] if weights.ndim == 3 else weights
        if snapshots.ndim != 4 or snapshots.shape[::3] != (self.B, self.d):
            raise ConfigError(
                f"W: shape {tuple(weights.shape)}; must be (B, d, d) or (B, S, d, d), with "
                f"B={self.B} and d={self.d}"
            )
        return snapshots

    def __len__(self) -> int:
        """Return the number of instances."""
        return self.B


def given_parameters(drawn: Parameters, requested: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a head, (B, ...): those given, the drawn ones for the rest.

    ConfigError if the head has no parameter of a given name, or it has another shape.
    """
    for name in requested:
        if name not in drawn:
            raise ConfigError(f"{name}: must be a parameter of the head: {', '.join(drawn)}")
    parameters = {}
    for name, value in drawn.items():
        p = real(name, requested[name], value.device) if name in requested else value
        if tuple(p.shape) in (value.shape[1:], (1, *value.shape[1:])):
            p = p.expand(value.shape)
        check_array(name, p, tuple(value.shape), torch.float64)
        parameters[name] = p
    return parameters
