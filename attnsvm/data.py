"""Where instances come from: seeded draws, bit for bit as published, or a file."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from attnsvm.build import named
from attnsvm.config import GROUPS, ConfigError
from attnsvm.head import Head, Parameters
from attnsvm.model import Model, Samples
from attnsvm.problem import ProblemBatch, check_array, check_labels


@dataclass(frozen=True)
class Drawn:
    """One instance as drawn: X (n, T, d), Z (n, d), labels, parameters of the head; float64."""

    X: Tensor
    Z: Tensor
    Y: Tensor
    head_parameters: Parameters


class Data(ABC):
    """A source of problem instances."""

    @abstractmethod
    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return instances with seeds seed, seed + 1, ..., at most `trials` of them."""


class Seeded(Data):
    """Instances drawn one by one, each from its own CPU generator with seed `seed + i`.

    Draws are float32, normalised in float32 and then cast to float64, whatever the default dtype
    and the state of the global generator are. Labels of a sequence model, one per query, are drawn
    after everything else, so that tokens, queries and head are those of the published instance.
    """

    def __init__(self, n: int, T: int, d: int) -> None:
        self.n, self.T, self.d = n, T, d

    @abstractmethod
    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Return one instance with labels of shape (n,)."""

    def labels(self, generator: Generator, shape: tuple[int, ...]) -> Tensor:
        """Return labels of this shape; +1 unless the source draws them."""
        return torch.ones(shape, dtype=torch.float64)

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return `trials` instances, instance i drawn from seed + i."""
        drawn = [self._draw_labelled(seed + i, head, model) for i in range(trials)]
        samples = model.expand(
            torch.stack([one.X for one in drawn]),
            torch.stack([one.Z for one in drawn]),
            torch.stack([one.Y for one in drawn]),
            None,
        )
        parameters = [one.head_parameters for one in drawn]
        return _batch(samples, head, _stack(parameters), seed)

    def _draw_labelled(self, seed: int, head: Head, model: Model) -> Drawn:
        generator = Generator().manual_seed(seed)
        drawn = self.draw(generator, head)
        shape = model.label_shape(self.n, self.T)
        if shape == tuple(drawn.Y.shape):
            return drawn
        return dataclasses.replace(drawn, Y=self.labels(generator, shape))


class Sphere(Seeded):
    """Tokens, queries and v uniform on the unit sphere; labels +-1 with equal chance."""

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, labels, tokens, queries - or, with the relu head, the tokens first."""
        parameters = head.draw(generator, self.d)
        if head.LABELS_FIRST:
            Y = self.labels(generator, (self.n,))
            X = _unit_rows(generator, self.n, self.T, self.d)
        else:
            X = _unit_rows(generator, self.n, self.T, self.d)
            Y = self.labels(generator, (self.n,))
        return Drawn(X, _unit_rows(generator, self.n, self.d), Y, parameters)

    def labels(self, generator: Generator, shape: tuple[int, ...]) -> Tensor:
        """Return signs of normal draws."""
        return 2.0 * (_normal(generator, *shape) > 0).double() - 1.0


class Orthonormal(Seeded):
    """Each sample's T <= d tokens are orthonormal; all labels +1.

    For T = d the tokens are the rows of the left factor of the singular value decomposition of a
    normal T x d draw, as published; for T < d, where that factor has rows of length T only, the
    columns of the left factor of the decomposition of its transpose.
    """

    def __init__(self, n: int, T: int, d: int) -> None:
        if T > d:
            raise ConfigError(f"data.T={T}: allowed is T <= d={d} orthonormal tokens")
        super().__init__(n, T, d)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens, queries."""
        parameters = head.draw(generator, self.d)
        X = _normal(generator, self.n, self.T, self.d)
        if self.T == self.d:
            X = torch.linalg.svd(X)[0]
        else:
            X = torch.linalg.svd(X.mT, full_matrices=False)[0].mT
        Z = _unit_rows(generator, self.n, self.d)
        return Drawn(X.double().contiguous(), Z, self.labels(generator, (self.n,)), parameters)


class PathsFar(Seeded):
    """First published two-dimensional scene (seed 1): n=2, T=3, the samples far apart."""

    def __init__(self) -> None:
        super().__init__(n=2, T=3, d=2)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens of spread 0.3 around (-1, 0) and (1, 0), queries."""
        parameters = head.draw(generator, self.d)
        X = 0.3 * _normal(generator, self.n, self.T, self.d)
        X[0] += torch.tensor([-1.0, 0.0])
        X[1] += torch.tensor([1.0, 0.0])
        Z = _unit_rows(generator, self.n, self.d)
        return Drawn(X.double(), Z, self.labels(generator, (self.n,)), parameters)


class PathsNear(Seeded):
    """Second published two-dimensional scene (seed 3): n=2, T=5, one token of each set apart."""

    def __init__(self) -> None:
        super().__init__(n=2, T=5, d=2)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens of spread 0.5 around (-1, 0) but the first of each, queries."""
        parameters = head.draw(generator, self.d)
        X = 0.5 * _normal(generator, self.n, self.T, self.d)
        X[0, 0] = torch.tensor([1.0, 0.5])
        X[1, 0] = torch.tensor([1.0, -0.5])
        X[:, 1:] += torch.tensor([-1.0, 0.0])
        Z = _unit_rows(generator, self.n, self.d)
        return Drawn(X.double(), Z, self.labels(generator, (self.n,)), parameters)


class File(Data):
    """Instances from an .npz file.

    The file holds `X` (B, n, T, d) or (n, T, d); `Y` (B, n), with a sequence model also
    (B, n, T): one label per query; `Z` (B, n, d), needed unless the queries are tokens; and, where
    wanted, `mask` (B, n, T) and the parameter of the head, `v` (B, d) or `V` (B, d, d), each also
    without the axis B. Without that parameter the head of instance i is drawn from seed + i.
    Nothing in it is unpickled.

    Parameters
    ----------
    path : str
        Where the file lies.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return the first `trials` instances of the file (all, if it has fewer).

        Raises
        ------
        ConfigError
            If the file cannot be read, or an array is missing or has a wrong shape or value.
        """
        arrays = _read(self.path)
        X = _array(arrays, "X")
        if X.ndim == 3:
            arrays = {name: value[None] for name, value in arrays.items()}
            X = X[None]
        if X.ndim != 4 or 0 in X.shape:
            raise ConfigError(f"X: shape {tuple(X.shape)}; allowed is (B, n, T, d) or (n, T, d)")
        B, n, T, d = X.shape
        check_array("X", X, (B, n, T, d), torch.float64)
        Y = _labels(_array(arrays, "Y"), (B, n), model.label_shape(n, T))
        Z = None
        if not model.OWN_QUERIES:
            Z = _array(arrays, "Z")
            check_array("Z", Z, (B, n, d), torch.float64)
        mask = _mask(arrays, (B, n, T))
        samples = model.expand(X, Z, Y, mask)
        drawn = [head.draw(Generator().manual_seed(seed + i), d) for i in range(B)]
        parameters = _given(_stack(drawn), arrays)
        return _batch(samples, head, parameters, seed).take(slice(trials))


def sample(
    data: str = "sphere",
    *,
    head: str = "linear",
    model: str = "cross_attention",
    trials: int = 100,
    seed: int = 0,
    **options: Any,
) -> ProblemBatch:
    """Return a batch of problem instances.

    Parameters
    ----------
    data : str
        sphere, orthonormal, paths_far, paths_near or file.
    head : str
        linear, relu or quadratic.
    model : str
        cross_attention, self_attention or sequence.
    trials : int
        Number of instances B; of a file, at most so many.
    seed : int
        Seed of the first instance; instance i has seed `seed + i`.
    **options
        Fields of the three options named: n, T, d; path; lam; query; causal.

    Returns
    -------
    ProblemBatch
        Float64 on the CPU.

    Raises
    ------
    ConfigError
        If a name or field does not exist, or a value is not allowed.

    Examples
    --------
    >>> sample("sphere", n=6, T=8, d=10, trials=100).X.shape
    torch.Size([100, 6, 8, 10])
    """
    groups = {"data": data, "head": head, "model": model}
    parts = {group: _options_of(group, name, options) for group, name in groups.items()}
    if options:
        raise ConfigError(
            f"{next(iter(options))}: no field of data={data}, head={head}, model={model}"
        )
    if trials < 1:
        raise ConfigError(f"trials={trials}: allowed is >= 1")
    source: Data = named("data", data, **parts["data"])
    return source.sample(
        named("head", head, **parts["head"]), named("model", model, **parts["model"]), trials, seed
    )


def _options_of(group: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Take from `options` the fields of option `name` of `group`."""
    config = GROUPS[group].get(name)
    fields = {f.name for f in dataclasses.fields(config)} if config else set()
    if "lambda" in fields:
        fields.add("lam")
    return {field: options.pop(field) for field in fields & set(options)}


def _normal(generator: Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float32)


def _unit_rows(generator: Generator, *shape: int) -> Tensor:
    rows = _normal(generator, *shape)
    unit: Tensor = rows / rows.norm(dim=-1, keepdim=True)
    return unit.double()


def _stack(parameters: list[Parameters]) -> Parameters:
    return {name: torch.stack([one[name] for one in parameters]) for name in parameters[0]}


def _batch(samples: Samples, head: Head, parameters: Parameters, seed: int) -> ProblemBatch:
    seeds = seed + torch.arange(len(samples.X))
    return ProblemBatch(samples.X, samples.Z, samples.Y, samples.mask, head, parameters, seeds)


KNOWN_ARRAYS = ("X", "Z", "Y", "mask", "v", "V")
UNREADABLE = (
    ValueError, OSError, EOFError, AttributeError, TypeError, KeyError, NotImplementedError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What NumPy raises on a file that is no archive, is cut short or has a flipped bit."""


def _read(path: str) -> dict[str, np.ndarray[Any, Any]]:
    if not Path(path).is_file():
        raise ConfigError(f"data.path={path}: no such file; allowed is an .npz with X, Z, Y")
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except UNREADABLE as error:
        raise ConfigError(f"data.path={path}: not a readable .npz ({error})") from error
    for name in arrays:
        if name not in KNOWN_ARRAYS:
            raise ConfigError(
                f"data.path={path}: unknown array {name}; allowed is {' | '.join(KNOWN_ARRAYS)}"
            )
    return arrays


def _array(arrays: dict[str, np.ndarray[Any, Any]], name: str) -> Tensor:
    if name not in arrays:
        raise ConfigError(f"{name}: missing; the file has {', '.join(sorted(arrays)) or 'nothing'}")
    if arrays[name].dtype.kind not in "fiub":
        raise ConfigError(f"{name}: {arrays[name].dtype}; allowed are real numbers")
    return torch.from_numpy(arrays[name].astype(np.float64))


def _labels(Y: Tensor, shape: tuple[int, int], wanted: tuple[int, ...]) -> Tensor:
    """Return labels of shape (B, *wanted), those of shape (B, n) repeated for every query."""
    full = (shape[0], *wanted)
    if tuple(Y.shape) not in (shape, full):
        allowed = " or ".join(str(s) for s in dict.fromkeys((shape, full)))
        raise ConfigError(f"Y: shape {tuple(Y.shape)}; allowed is {allowed}")
    check_labels(Y)
    return Y.reshape(*Y.shape, *[1] * (len(full) - Y.ndim)).expand(full).contiguous()


def _mask(arrays: dict[str, np.ndarray[Any, Any]], shape: tuple[int, ...]) -> Tensor | None:
    if "mask" not in arrays:
        return None
    mask = _array(arrays, "mask")
    check_array("mask", mask, shape, torch.float64)
    if not ((mask == 0) | (mask == 1)).all():
        raise ConfigError("mask: a value other than 0 and 1; allowed are booleans")
    return mask.bool()


def _given(drawn: Parameters, arrays: dict[str, np.ndarray[Any, Any]]) -> Parameters:
    """Return the parameters of the head, those that the file holds in place of the drawn ones."""
    parameters = {}
    for name, value in drawn.items():
        given = _array(arrays, name) if name in arrays else value
        if tuple(given.shape) in (value.shape[1:], (1, *value.shape[1:])):
            given = given.expand(value.shape).contiguous()
        check_array(name, given, tuple(value.shape), torch.float64)
        parameters[name] = given
    return parameters
