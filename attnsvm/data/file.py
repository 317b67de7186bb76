"""`data=file`: instances from an .npz file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.data.base import Data, batch_of, stacked
from attnsvm.head import Head
from attnsvm.model import Model
from attnsvm.problem import ProblemBatch, check_array, check_labels, given_parameters
from attnsvm.record.arrays import read_arrays
from attnsvm.record.files import MAX_TABLE_BYTES, CorruptRecordError, open_regular


class File(Data):
    """Instances from an .npz file.

    The file holds `X` (B, n, T, d) or (n, T, d); `Y` (B, n), with a sequence model also
    (B, n, T): one label per query; `Z` (B, n, d), needed unless the queries are tokens; and
    optionally `mask` (B, n, T) and parameters of the head by name, as `v` (B, d) or `V` (B, d, d).
    The axis B may be missing. A parameter that is not there is drawn, that of instance i from
    seed + i. Pickled content is rejected.

    Parameters
    ----------
    path : str
        Path of the file.
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
        arrays = read_npz("data.path", self.path, "X, Z, Y")
        X = _array(arrays, "X")
        if X.ndim == 3:
            arrays = {name: value[None] for name, value in arrays.items()}
            X = X[None]
        if X.ndim != 4 or 0 in X.shape:
            raise ConfigError(f"X: shape {tuple(X.shape)}; must be (B, n, T, d) or (n, T, d)")
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
        drawn_parameters = stacked(drawn)
        _check_names(self.path, arrays, drawn_parameters)
        own = {name: _array(arrays, name) for name in drawn_parameters if name in arrays}
        parameters = given_parameters(drawn_parameters, own)
        return batch_of(samples, head, parameters, seed).take(slice(trials))


KNOWN_ARRAYS = ("X", "Z", "Y", "mask", "v", "V")
UNREADABLE = (
    ValueError, OSError, EOFError, AttributeError, TypeError, KeyError, NotImplementedError,
    zipfile.BadZipFile, zlib.error, CorruptRecordError,
)  # fmt: skip
"""Exceptions of NumPy for a file that is not an archive, is truncated or has a flipped bit."""


def read_npz(field: str, path: str, names: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an .npz file that a config field names; it should have `names`.

    Raises
    ------
    ConfigError
        If it is not a readable .npz.
    """
    if not Path(path).is_file():
        what = "not a regular file" if Path(path).exists() else "no such file"
        raise ConfigError(f"{field}={path}: {what}; must be an .npz with {names}")
    try:
        with open_regular(Path(path).resolve(), MAX_TABLE_BYTES) as stream:
            arrays = read_arrays(stream)
    except UNREADABLE as error:
        told = f"not a readable .npz ({error}); must be one with {names}"
        raise ConfigError(f"{field}={path}: {told}") from error
    return arrays


def _check_names(path: str, names: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise ConfigError for an array that is neither of the samples nor a parameter of a head."""
    known = tuple(dict.fromkeys((*KNOWN_ARRAYS, *parameters)))
    for name in names:
        if name not in known:
            raise ConfigError(
                f"data.path={path}: unknown array {name}; must be {' | '.join(known)}"
            )


def _array(arrays: dict[str, np.ndarray[Any, Any]], name: str) -> Tensor:
    if name not in arrays:
        there = ", ".join(sorted(arrays)) or "nothing"
        raise ConfigError(f"{name}: missing; must be in the file, which has {there}")
    if arrays[name].dtype.kind not in "fiub":
        raise ConfigError(f"{name}: {arrays[name].dtype}; must be real numbers")
    return torch.from_numpy(arrays[name].astype(np.float64))


def _labels(Y: Tensor, shape: tuple[int, int], wanted: tuple[int, ...]) -> Tensor:
    """Return labels of shape (B, *wanted), those of shape (B, n) repeated for every query."""
    full = (shape[0], *wanted)
    if tuple(Y.shape) not in (shape, full):
        allowed = " or ".join(str(s) for s in dict.fromkeys((shape, full)))
        raise ConfigError(f"Y: shape {tuple(Y.shape)}; must be {allowed}")
    check_labels(Y)
    return Y.reshape(*Y.shape, *[1] * (len(full) - Y.ndim)).expand(full).contiguous()


def _mask(arrays: dict[str, np.ndarray[Any, Any]], shape: tuple[int, ...]) -> Tensor | None:
    if "mask" not in arrays:
        return None
    mask = _array(arrays, "mask")
    check_array("mask", mask, shape, torch.float64)
    if not ((mask == 0) | (mask == 1)).all():
        raise ConfigError("mask: has a value other than 0 and 1; must be booleans")
    return mask.bool()
