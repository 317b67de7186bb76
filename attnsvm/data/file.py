"""`data=file`: instances from an .npz file."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.data.base import Data, check_own_scores, head_of_labels
from attnsvm.data.classes import classifier
from attnsvm.head import Head, RowScores, Vocabulary
from attnsvm.linalg import check_array, real
from attnsvm.model import LinearClassifier, Model
from attnsvm.problem import ProblemBatch
from attnsvm.record.archive import read_arrays
from attnsvm.record.files import MAX_TABLE_BYTES, CorruptRecordError, open_regular, reason_of

Arrays = dict[str, np.ndarray[Any, Any]]
SAMPLES = ("X", "Z", "Y", "mask")
SEQUENCES = ("ids", "next", "E", "C", "mask")
KNOWN_PARAMETERS = ("v", "V")
"""Parameters of heads that a file may have even where the head of a run has none of that name."""

LARGEST_BASIS = 1024
"""Most tokens of a vocabulary, or classes, whose embeddings are the standard basis."""


@dataclass(eq=False)
class File(Data):
    """Instances from an .npz file.

    The file holds `X` (B, n, T, d) or (n, T, d); `Y` (B, n), with a sequence model also
    (B, n, T): one label per query; `Z` (B, n, d), needed unless the queries are tokens; and
    optionally `mask` (B, n, T) and parameters of the head by name, as `v` (B, d) or `V` (B, d, d).
    The axis B may be missing. A parameter that is not there is drawn, that of instance i from
    seed + i. Pickled content is rejected.

    A file of next tokens holds `ids` (B, n, T), token ids 0, 1, ..., and `next` (B, n), the label
    among those of its sequence; and optionally the embeddings `E` (K, d), by default the standard
    basis, the rows `C` (K, d) by which heads score labels, by default pinv(E)^T, and `mask`. The
    query is the last admissible token, as of data=token_graph.

    A file of a linear classifier holds points `X` (n, d) and labels `y` (n,), 0, ..., K - 1: one
    instance, as of data=classes.
    """

    path: str

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return the first `trials` instances of the file (all, if it has fewer)."""
        arrays = read_npz("data.path", self.path, "X, Z, Y, or ids, next, or X, y")
        if isinstance(head, Vocabulary) or {"ids", "next"} & set(arrays):
            return self._of_ids(arrays, head, model, seed).take(slice(trials))
        if "y" in arrays:
            return self._of_points(arrays, head, model, seed)
        arrays = _with_batch_axis(arrays, "X", 3, arrays)
        X = _array(arrays, "X", ("B", "n", "T", "d"))
        B, n, T, d = X.shape
        parameters = head.draw(torch.Generator(), d)
        self._check_names(arrays, dict.fromkeys((*SAMPLES, *KNOWN_PARAMETERS, *parameters)))
        Y = _labels(arrays, (B, n), (B, *model.label_shape(n, T)))
        Z = None if model.OWN_QUERIES else _array(arrays, "Z", (B, n, d))
        samples = vars(model.expand(X, Z, Y, _mask(arrays, (B, n, T))))
        own = {name: arrays[name] for name in parameters if name in arrays}
        return ProblemBatch.of(**samples, head=head, seed=seed, **own).take(slice(trials))

    def _of_ids(self, arrays: Arrays, head: Head, model: Model, seed: int) -> ProblemBatch:
        """Return the instances of token ids with their next tokens."""
        row_head = head_of_labels(head, model, "file with ids")
        self._check_names(arrays, SEQUENCES)
        arrays = _with_batch_axis(arrays, "ids", 2, ("ids", "next", "mask"))
        ids = _array(arrays, "ids", ("B", "n", "T"))
        mask = _mask(arrays, tuple(ids.shape))
        E = _embeddings(arrays) if "E" in arrays else None
        ids = _whole("ids", ids.where(mask, 0.0), E)
        y = _whole("next", _array(arrays, "next", tuple(ids.shape[:2])), E)
        E = torch.eye(int(ids.max()) + 1).double() if E is None else E
        known = ((ids == y[..., None]) & mask).any(-1)
        for b, i in (~known).nonzero()[:1].tolist():
            what = f"next: label {int(y[b, i])} of sequence {i} of instance {b}"
            allowed = ", ".join(map(str, sorted({*ids[b, i][mask[b, i]].tolist()})))
            raise ConfigError(f"{what}; must be one of its ids {allowed}")
        C, X = _outputs(arrays, E), E[ids]
        last = mask.shape[-1] - 1 - mask.flip(-1).int().argmax(-1)
        Z = X.take_along_dim(last[..., None, None], 2)[:, :, 0]
        parameters, seeds = row_head.of_labels(C, y), seed + torch.arange(len(X))
        return ProblemBatch(X, Z, torch.ones_like(Z[..., 0]), mask, row_head, parameters, seeds)

    def _of_points(self, arrays: Arrays, head: Head, model: Model, seed: int) -> ProblemBatch:
        """Return the instance of points with their classes."""
        check_own_scores(head, model, "file with y", LinearClassifier)
        self._check_names(arrays, ("X", "y"))
        points = _array(arrays, "X", ("n", "d"))
        y = _whole("y", _array(arrays, "y", (len(points),)))
        drawn = classifier(points, y, max(2, int(y.max()) + 1))
        X, Z, Y, v = (V[None] for V in (drawn.X, drawn.Z, drawn.Y, drawn.head_parameters["v"]))
        mask = torch.ones(X.shape[:3], dtype=torch.bool)
        return ProblemBatch(X, Z, Y, mask, RowScores(), {"v": v}, torch.tensor([seed]))

    def _check_names(self, arrays: Arrays, known: Iterable[str]) -> None:
        for name in arrays:
            if name not in known:
                must = f"must be {' | '.join(known)}"
                raise ConfigError(f"data.path={self.path}: unknown array {name}; {must}")


def read_npz(field: str, path: str, names: str) -> Arrays:
    """Return the arrays of an .npz file that a config field names; it should have `names`."""
    if not Path(path).is_file():
        what = "not a regular file" if Path(path).exists() else "no such file"
        raise ConfigError(f"{field}={path}: {what}; must be an .npz with {names}")
    try:
        with open_regular(Path(path).resolve(), MAX_TABLE_BYTES) as stream:
            return read_arrays(stream)
    except (OSError, CorruptRecordError) as error:
        must = f"must be one with {names}"
        raise ConfigError(
            f"{field}={path}: not a readable .npz ({reason_of(error)}); {must}"
        ) from error


def _with_batch_axis(arrays: Arrays, first: str, ndim: int, names: Iterable[str]) -> Arrays:
    """Return the arrays with an axis B in front of `names` if `first` has `ndim` axes."""
    if first not in arrays or arrays[first].ndim != ndim:
        return arrays
    return arrays | {name: arrays[name][None] for name in names if name in arrays}


def _array(arrays: Arrays, name: str, shape: tuple[int | str, ...]) -> Tensor:
    """Return an array of this shape, in which a letter is any length but 0; the axis B may miss."""
    if name not in arrays:
        there = ", ".join(sorted(arrays)) or "nothing"
        raise ConfigError(f"{name}: missing; must be in the file, which has {there}")
    V = real(name, arrays[name])
    lengths = [
        size if isinstance(size, int) else max(1, length)
        for size, length in zip(shape, V.shape, strict=False)
    ]
    if len(shape) != V.ndim or lengths != list(V.shape):
        shapes = [shape, shape[1:]] if shape[0] == "B" else [shape]
        must = " or ".join(map(str, shapes)).replace("'", "")
        raise ConfigError(f"{name}: shape {tuple(V.shape)}; must be {must}")
    return V


def _mask(arrays: Arrays, shape: tuple[int, ...]) -> Tensor:
    """Return the admissible tokens, (B, n, T) bool: all of them by default."""
    if "mask" not in arrays:
        return torch.ones(shape, dtype=torch.bool)
    mask = _array(arrays, "mask", shape)
    if not ((mask == 0) | (mask == 1)).all():
        raise ConfigError("mask: has a value other than 0 and 1; must be booleans")
    if not mask.any(-1).all():
        raise ConfigError("mask: every sample must have at least one admissible token")
    return mask.bool()


def _whole(name: str, V: Tensor, E: Tensor | None = None) -> Tensor:
    """Return whole numbers as integers, of embeddings E those of its rows."""
    limit = LARGEST_BASIS if E is None else len(E)
    wrong = V[~((V == V.round()) & (V >= 0) & (V < limit))]
    if wrong.numel():
        must = f"must be whole numbers >= 0 and < {limit}" + (
            "" if E is None else ", the rows of E"
        )
        raise ConfigError(f"{name}: {wrong[0].item():g}; {must}")
    return V.long()


def _embeddings(arrays: Arrays) -> Tensor:
    """Return E (K, d), whose rows are different."""
    E = _array(arrays, "E", ("K", "d"))
    check_array("E", E, tuple(E.shape), torch.float64)
    kind = np.unique(E.numpy(), axis=0, return_inverse=True)[1].ravel()
    for i, j in np.argwhere(np.triu(kind[:, None] == kind, 1))[:1]:
        raise ConfigError(f"E: rows {i} and {j} are equal; must be different")
    return E


def _outputs(arrays: Arrays, E: Tensor) -> Tensor:
    """Return C (K, d): those of the file, or pinv(E)^T."""
    if "C" in arrays:
        return _array(arrays, "C", tuple(E.shape))
    if (rank := int(torch.linalg.matrix_rank(E))) < len(E):
        must = "must be linearly independent, or the file must have C, as C = E"
        raise ConfigError(f"E: {len(E)} rows of rank {rank}; {must}")
    return torch.linalg.pinv(E).mT


def _labels(arrays: Arrays, shape: tuple[int, ...], full: tuple[int, ...]) -> Tensor:
    """Return labels of shape `full`; those of a shape without the queries are those of each."""
    each = "Y" in arrays and arrays["Y"].ndim == len(full)
    Y = _array(arrays, "Y", full if each else shape)
    return Y.reshape(*Y.shape, *[1] * (len(full) - Y.ndim)).expand(full).contiguous()
