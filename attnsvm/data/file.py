"""`data=file`: instances from an .npz file."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.data.base import Data
from attnsvm.head import Head
from attnsvm.model import Model
from attnsvm.problem import ProblemBatch, check_array, check_labels
from attnsvm.record.archive import read_arrays
from attnsvm.record.files import MAX_TABLE_BYTES, CorruptRecordError, open_regular

SAMPLES = ("X", "Z", "Y", "mask")
KNOWN_PARAMETERS = ("v", "V")
"""Parameters of heads that a file may have even where the head of a run has none of that name."""


class File(Data):
    """Instances from an .npz file.

    The file holds `X` (B, n, T, d) or (n, T, d); `Y` (B, n), with a sequence model also
    (B, n, T): one label per query; `Z` (B, n, d), needed unless the queries are tokens; and
    optionally `mask` (B, n, T) and parameters of the head by name, as `v` (B, d) or `V` (B, d, d).
    The axis B may be missing. A parameter that is not there is drawn, that of instance i from
    seed + i. Pickled content is rejected.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return the first `trials` instances of the file (all, if it has fewer)."""
        arrays = read_npz("data.path", self.path, "X, Z, Y")
        X = _array(arrays, "X")
        if X.ndim == 3:
            arrays, X = {name: value[None] for name, value in arrays.items()}, X[None]
        if X.ndim != 4 or 0 in X.shape:
            raise ConfigError(f"X: shape {tuple(X.shape)}; must be (B, n, T, d) or (n, T, d)")
        B, n, T, d = X.shape
        check_array("X", X, (B, n, T, d), torch.float64)
        Y = _labels(_array(arrays, "Y"), (B, n), model.label_shape(n, T))
        Z = None
        if not model.OWN_QUERIES:
            Z = _array(arrays, "Z")
            check_array("Z", Z, (B, n, d), torch.float64)
        mask = None
        if "mask" in arrays:
            mask = _array(arrays, "mask")
            check_array("mask", mask, (B, n, T), torch.float64)
            if not ((mask == 0) | (mask == 1)).all():
                raise ConfigError("mask: has a value other than 0 and 1; must be booleans")
            mask = mask.bool()
        parameters = head.draw(torch.Generator(), d)
        known = tuple(dict.fromkeys((*SAMPLES, *KNOWN_PARAMETERS, *parameters)))
        for name in arrays:
            if name not in known:
                must = f"must be {' | '.join(known)}"
                raise ConfigError(f"data.path={self.path}: unknown array {name}; {must}")
        given = {name: _array(arrays, name) for name in parameters if name in arrays}
        samples = vars(model.expand(X, Z, Y, mask))
        return ProblemBatch.of(**samples, head=head, seed=seed, **given).take(slice(trials))


def read_npz(field: str, path: str, names: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an .npz file that a config field names; it should have `names`."""
    if not Path(path).is_file():
        what = "not a regular file" if Path(path).exists() else "no such file"
        raise ConfigError(f"{field}={path}: {what}; must be an .npz with {names}")
    try:
        with open_regular(Path(path).resolve(), MAX_TABLE_BYTES) as stream:
            return read_arrays(stream)
    except (OSError, CorruptRecordError) as error:
        must = f"must be one with {names}"
        raise ConfigError(f"{field}={path}: not a readable .npz ({error}); {must}") from error


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
