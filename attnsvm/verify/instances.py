"""The instances of a config, drawn again from their seeds (and torch's generator) alone.

The recipe of every source, head and model is written here a second time. An instance that depends
on a plug-in, or on a file that is not here, cannot be drawn: then `UnknownError` is raised.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnsvm.config.optimizer import CONES
from attnsvm.record.files import MAX_TABLE_BYTES, CorruptRecordError, open_regular
from attnsvm.verify.exact import Array

INIT_STREAM = 0x9E3779B9
BLOCK = 2**24
LARGEST = 2**28
"""Largest count of numbers that is drawn at once."""

DRAWN_ELSEWHERE = 1e-6
"""Error of a normal number on a processor with other vector instructions."""


class UnknownError(Exception):
    """What is asked for does not follow from the config; the message names what is missing."""


@dataclass(frozen=True)
class Instance:
    """One instance: X (n, T, d), Z (n, d), Y (n,), mask (n, T), and the head's parameters."""

    X: Array
    Z: Array
    Y: Array
    mask: NDArray[np.bool_]
    head: Mapping[str, Array]
    uncertain: float = 0.0
    """Error of X and Z where a processor draws other last bits."""

    unspecified: bool = False
    """Whether last bits depend on a library, as those of singular vectors do."""

    held_out: Instance | None = None
    """Further samples, which are not trained on."""


def option(config: Mapping[str, Any], group: str) -> str:
    """Return the class that a group's `_target_` names, if it is one of attnsvm's own."""
    target = str(config[group]["_target_"])
    package, _, name = target.rpartition(".")
    if package != f"attnsvm.{group}":
        raise UnknownError(f"{group} {target}")
    return name


class Draws:
    """The instances of a recorded config.

    Raises
    ------
    UnknownError
        If they do not follow from the config.
    """

    def __init__(self, config: Mapping[str, Any], path_is_here: bool = False) -> None:
        self.config = config
        self.kinds = {group: option(config, group) for group in ("data", "head", "model")}
        if self.kinds["data"] == "Pretrained":
            raise UnknownError("those of a pretrained head")
        if self.kinds["data"] == "File" and not path_is_here:
            raise UnknownError("and signature: the data file is not here as it was")

    @cached_property
    def file(self) -> dict[str, Array]:
        """The arrays of a data file with the axis B in front."""
        with np.load(self.config["data"]["path"], allow_pickle=False) as archive:
            arrays = {name: archive[name].astype(np.float64) for name in archive.files}
        single = arrays["X"].ndim == 3
        return {name: value[None] if single else value for name, value in arrays.items()}

    def shape(self) -> tuple[int, int, int]:
        """Return n, T, d of the samples of an instance.

        Raises
        ------
        ValueError
            If an instance, or its head, is too large to be drawn.
        """
        kind = self.kinds["data"]
        seeded = kind != "File"
        n, T, d = shape_as_drawn(self.config["data"], kind) if seeded else self.file["X"].shape[1:]
        largest = n * T * d
        if kind == "SphereInSpan":
            d = min(d, n * (T + 1))
        if self.kinds["model"] in ("Sequence", "Transformer"):
            n, largest = n * T, largest * T
        of_head = {"Relu": d * d, "Mlp": d * self.config["head"].get("width", 1)}
        if max(largest * self._copies(d), of_head.get(self.kinds["head"], 0)) > LARGEST:
            raise ValueError(f"n={n}, T={T}, d={d}: too large to be drawn again")
        return n, T, d

    def _copies(self, d: int) -> int:
        """Return how often numbers of the size of the tokens are needed for the model."""
        model = self.config["model"]
        if self.kinds["model"] != "Transformer":
            return 1
        return int(model["layers"] * max(model["heads"] * d, model["mlp"]))

    @property
    def labels_of_positions(self) -> bool:
        """Whether every position of a sequence has a label."""
        model = self.config["model"]
        return self.kinds["model"] == "Sequence" or model.get("readout") == "every"

    @property
    def available(self) -> float:
        """How many instances there are."""
        return len(self.file["X"]) if self.kinds["data"] == "File" else math.inf

    def instance(self, seed: int) -> Instance:
        """Return the instance of `seed`."""
        return self._drawn(seed, _Stream(seed))

    def labels(self, seed: int) -> Array:
        """Return the labels of the instance of `seed`, for less than the whole of it."""
        return self._drawn(seed, _Stream(seed, directions=False)).Y

    def _drawn(self, seed: int, stream: _Stream) -> Instance:
        kind = self.kinds["data"]
        if kind == "File":
            return self._from_file(seed - self.config["seed"], stream)
        if kind == "Digits":
            return self._digits(stream)
        if kind == "Planted":
            return self._planted(stream)
        n, T, d = shape_as_drawn(self.config["data"], kind)
        on_sphere = kind in ("Sphere", "SphereInSpan")
        labels = stream.signs if on_sphere else _ones
        after = self.kinds["head"] == "Relu" or not on_sphere
        head = self._head(stream, d)
        Y = np.empty(0) if after else labels(n)
        X = _TOKENS[kind](stream, n, T, d)
        Y = labels(n) if after else Y
        Z = np.broadcast_to(stream.unit_rows(1 if kind == "Prompt" else n, d), (n, d))
        if self.labels_of_positions:
            Y = labels(n, T)
        if kind == "SphereInSpan":
            X, Z, head = _in_span(stream, X, Z, head)
        drawn = self._expanded(X, Z, Y, np.ones((n, T), dtype=bool), head)
        by_library = kind in ("Orthonormal", "SphereInSpan")
        return replace(drawn, uncertain=stream.uncertain, unspecified=by_library)

    def _head(self, stream: _Stream, d: int) -> dict[str, Array]:
        kind = self.kinds["head"]
        if kind in ("Linear", "Quadratic"):
            v = stream.normal(d)
            return {"v": (v / v.norm()).double().numpy()}
        if kind == "Relu":
            V = stream.normal(d, d)
            return {"V": (V / V.norm()).double().numpy()}
        seed = int(torch.randint(2**31, (), generator=stream.generator))
        width = self.config["head"]["width"]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = torch.nn.Linear(d, width), torch.nn.Linear(width, 1)
        names = ("0.weight", "0.bias", "2.weight", "2.bias")
        drawn = (p for layer in layers for p in (layer.weight, layer.bias))
        return {k: p.detach().double().numpy() for k, p in zip(names, drawn, strict=True)}

    def _planted(self, stream: _Stream) -> Instance:
        asked = self.config["data"]
        n, T, d = shape_as_drawn(asked, "Planted")
        self._head(stream, d)
        count = n + asked["held_out"]
        X, Z, Y = np.zeros((count, T, d)), np.zeros((count, d)), np.zeros(count)
        for i in range(count):
            Z[i, 1:] = stream.unit_rows(d - 1)
            X[i, :, 1:] = stream.unit_rows(T, d - 1)
            r = int(torch.randint(T, (), generator=stream.generator))
            Y[i] = stream.signs(1)[0]
            mixed = asked["signal"] * Z[i, 1:] + X[i, r, 1:]
            X[i, r, 1:] = (1 - asked["score_gap"] ** 2) ** 0.5 * mixed / np.linalg.norm(mixed)
            X[i, r, 0] = Y[i] * asked["score_gap"]
        parts = [
            self._expanded(X[at], Z[at], Y[at], np.ones((len(X[at]), T), dtype=bool),
                           {"v": np.eye(d)[0]})
            for at in (slice(n), slice(n, None))
        ]  # fmt: skip
        held_out = parts[1] if asked["held_out"] else None
        return replace(parts[0], uncertain=stream.uncertain, unspecified=True, held_out=held_out)

    def _digits(self, stream: _Stream) -> Instance:
        asked = self.config["data"]
        patches, signs = _digit_patches(*(asked[k] for k in _DIGITS))
        head = self._head(stream, patches.shape[2])
        if set(head) == {"v"}:
            apart = patches[signs > 0].mean((0, 1)) - patches[signs < 0].mean((0, 1))
            head = {"v": apart / np.linalg.norm(apart)}
        chosen = torch.randperm(len(signs), generator=stream.generator)[: asked["n"]].numpy()
        X = patches[chosen]
        mask = np.ones(X.shape[:2], dtype=bool)
        return self._expanded(X, X.mean(1), signs[chosen], mask, head)

    def _from_file(self, index: int, stream: _Stream) -> Instance:
        X, Y = self.file["X"][index], self.file["Y"][index]
        n, T, d = X.shape
        head = {name: self._given(name, p, index) for name, p in self._head(stream, d).items()}
        if self.labels_of_positions:
            Y = np.broadcast_to(Y.reshape(n, -1), (n, T))
        Z = self.file["Z"][index] if self.kinds["model"] == "CrossAttention" else X[:, 0]
        everything = np.ones(self.file["X"].shape[:3])
        mask = self.file.get("mask", everything)[index] > 0
        return self._expanded(X, Z, Y, mask, head)

    def _given(self, name: str, drawn: Array, index: int) -> Array:
        """Return a parameter of the head from the file, if it has it: for all instances or each."""
        value = self.file.get(name, drawn)
        if value.ndim == drawn.ndim:
            return value
        return np.asarray(value[index if len(value) > 1 else 0])

    def _expanded(
        self, X: Array, Z: Array, Y: Array, mask: NDArray[np.bool_], head: dict[str, Array]
    ) -> Instance:
        """Return the samples that the model makes of drawn ones; of a transformer the sequences."""
        model, (n, T, d) = self.config["model"], X.shape
        if self.kinds["model"] == "Transformer":
            Z, Y = X[:, 0], Y.reshape(-1)
        if self.kinds["model"] == "SelfAttention":
            Z = X[:, model["query"]]
        if self.kinds["model"] == "Sequence":
            Z, Y = X.reshape(n * T, d), Y.reshape(n * T)
            X = np.repeat(X, T, axis=0)
            mask = np.repeat(mask, T, axis=0)
            if model["causal"]:
                mask = mask & np.tile(np.tril(np.ones((T, T), dtype=bool)), (n, 1))
        return Instance(X, Z, Y, mask, head)


def shape_as_drawn(data: Mapping[str, Any], kind: str) -> tuple[int, int, int]:
    """Return n, T, d of a seeded source."""
    fixed = {"PathsFar": (2, 3, 2), "PathsNear": (2, 5, 2)}
    if kind in fixed:
        return fixed[kind]
    if kind == "Digits":
        side = (8 - data["patch"]) // data["stride"] + 1
        return data["n"], side**2, data["patch"] ** 2
    return data["n"], data["T"], data["d"]


class _Stream:
    """The draws of one instance, and `uncertain`, their error on any other processor.

    Without `directions` rows keep the length with which they are drawn.
    """

    def __init__(self, seed: int, directions: bool = True) -> None:
        self.directions = directions
        self.generator = torch.Generator().manual_seed(seed)
        self.uncertain = DRAWN_ELSEWHERE

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float32)

    def unit_rows(self, *shape: int) -> Array:
        rows = self.normal(*shape)
        if not self.directions:
            return np.asarray(rows)
        lengths = rows.norm(dim=-1, keepdim=True)
        self.uncertain = max(self.uncertain, DRAWN_ELSEWHERE / float(lengths.min()))
        unit: torch.Tensor = rows / lengths
        return np.asarray(unit.double())

    def signs(self, *shape: int) -> Array:
        return np.where(self.normal(*shape).numpy() > 0, 1.0, -1.0)


def _ones(*shape: int) -> Array:
    return np.ones(shape)


def _orthonormal(stream: _Stream, n: int, T: int, d: int) -> Array:
    """Return left factors of singular value decompositions by torch, whose signs define them.

    Their rounding error in float32 is that of the matrix divided by the least gap of its singular
    values, and depends on the library.
    """
    X = stream.normal(n, T, d)
    sigma = np.linalg.svd(X.numpy().astype(float), compute_uv=False)
    gaps = -np.diff(sigma, append=-np.inf if T == d else 0.0)
    error = 16 * 2.0**-23 * (sigma[:, 0] / gaps.min(1)).max()
    stream.uncertain = max(stream.uncertain, float(error))
    if T == d:
        return np.asarray(torch.linalg.svd(X)[0].double())
    left = torch.linalg.svd(X.mT, full_matrices=False)[0]
    return np.asarray(left.mT.double().contiguous())


def _in_span(
    stream: _Stream, X: Array, Z: Array, head: Mapping[str, Array]
) -> tuple[Array, Array, dict[str, Array]]:
    """Return tokens, queries and v in the basis E of V^T = E R, V their rows, R_kk > 0.

    E and R have an error of about the rounding divided by the least diagonal entry of R.
    """
    n, T, d = X.shape
    E, R = np.linalg.qr(np.concatenate([X.reshape(-1, d), Z]).T)
    diagonal = np.diagonal(R)
    error = 16 * d * 2.0**-52 / max(float(np.abs(diagonal).min()), 1e-300)
    stream.uncertain = max(stream.uncertain, error)
    signs = np.where(diagonal < 0, -1.0, 1.0)
    rows = (signs[:, None] * R).T
    return rows[:-n].reshape(n, T, -1), rows[-n:], {"v": signs * (E.T @ head["v"])}


def _paths_far(stream: _Stream, n: int, T: int, d: int) -> Array:
    X = np.float32(0.3) * stream.normal(n, T, d).numpy()
    X += np.array([[[-1.0, 0.0]], [[1.0, 0.0]]], dtype=np.float32)
    return X.astype(np.float64)


def _paths_near(stream: _Stream, n: int, T: int, d: int) -> Array:
    X = np.float32(0.5) * stream.normal(n, T, d).numpy()
    X[:, 1:] += np.array([-1.0, 0.0], dtype=np.float32)
    X[:, 0] = [[1.0, 0.5], [1.0, -0.5]]
    return X.astype(np.float64)


_TOKENS: dict[str, Callable[..., Array]] = {
    "Sphere": _Stream.unit_rows,
    "SphereInSpan": _Stream.unit_rows,
    "Prompt": _Stream.unit_rows,
    "Orthonormal": _orthonormal,
    "PathsFar": _paths_far,
    "PathsNear": _paths_near,
}
_DIGITS = ("positive", "negative", "patch", "stride")


@lru_cache(maxsize=8)
def _digit_patches(positive: int, negative: int, patch: int, stride: int) -> tuple[Array, Array]:
    """Return patches (N, T, d), row by row of the image, and labels of two digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = (digits.target == positive) | (digits.target == negative)
    images = digits.images[chosen] / 16.0
    starts = range(0, 8 - patch + 1, stride)
    cut = [images[:, r : r + patch, c : c + patch] for r in starts for c in starts]
    patches = np.stack([part.reshape(len(images), -1) for part in cut], axis=1)
    return patches, np.where(digits.target[chosen] == positive, 1.0, -1.0)


def initial_weights(config: Mapping[str, Any], seed: int, d: int) -> Array:
    """Return the W (d, d) with which training of the instance `seed` starts.

    Balanced factors have the product of init=small. Those of init=aligned, cone and
    pretrained depend on more than the seed.

    Raises
    ------
    UnknownError
        If the parameterization is a plug-in, or the weights depend on the instance.
    """
    kind, asked = option(config, "parameterization"), config["optimizer"]
    if asked["init"] == "zero":
        return np.zeros((d, d))
    if asked["init"] == "file":
        return _weights_in_file(asked["init_path"], kind, seed)
    if asked["init"] in ("aligned", *CONES, "pretrained"):
        raise UnknownError(f"the start of init={asked['init']}")
    m = config["parameterization"].get("m") or d
    shapes = [(d, d)] if kind == "W" else [(d, m), (d, m)]
    generator = torch.Generator().manual_seed(seed ^ INIT_STREAM)
    scale = asked["init_scale"] if asked["init"] in ("small", "balanced") else 1.0
    bound = scale / math.sqrt(d)
    parts = [
        bound * (2 * torch.rand(s, generator=generator, dtype=torch.float64).numpy() - 1)
        for s in shapes
    ]
    return parts[0] if kind == "W" else parts[0] @ parts[1].T


def _weights_in_file(path: str, kind: str, seed: int) -> Array:
    """Return W0, or K0 Q0^T, of the instance in a file of weights."""
    names = ("W0",) if kind == "W" else ("K0", "Q0")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        at = () if "seeds" not in arrays else (list(arrays["seeds"].ravel()).index(seed),)
        parts = [arrays[name][at].astype(np.float64) for name in names]
    except (KeyError, ValueError, OSError) as error:
        raise UnknownError(f"the start in {path}: {error}") from error
    W0: Array = parts[0] if kind == "W" else parts[0] @ parts[1].T
    return W0


_DIGESTS: dict[tuple[int, int, int, int], str] = {}
"""Those of this process: all runs of a sweep may name one model."""


def content_of(path: str) -> str | None:
    """Return the sha256 of a regular file's content; None without one."""
    try:
        with open_regular(Path(path), MAX_TABLE_BYTES) as stream:
            found = os.fstat(stream.fileno())
            known = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if known not in _DIGESTS:
                digest = hashlib.sha256()
                for start in range(0, found.st_size, BLOCK):  # not to its end: some have none
                    digest.update(stream.read(min(BLOCK, found.st_size - start)))
                _DIGESTS[known] = digest.hexdigest()
            return _DIGESTS[known]
    except (OSError, ValueError, CorruptRecordError):
        return None


def agreement(stored: Array, drawn: Array, uncertain: float) -> str:
    """Return `exact`, `close` (to `uncertain`) or `different`."""
    if stored.shape != drawn.shape:
        return "different"
    if np.array_equal(stored, drawn):
        return "exact"
    return "close" if np.abs(stored - drawn).max() <= uncertain else "different"
