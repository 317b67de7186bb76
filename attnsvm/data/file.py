"""`data=file`: instances from an .npz file."""

from collections.abc import Sequence
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
from attnsvm.problem import ProblemBatch, check_labels
from attnsvm.record.archive import read_arrays
from attnsvm.record.files import MAX_TABLE_BYTES, CorruptRecordError, open_regular, reason_of

Arrays = dict[str, np.ndarray[Any, Any]]
SAMPLES = ("X", "Z", "Y", "mask")
SEQUENCES = ("ids", "next", "E", "C", "mask")
KNOWN_PARAMETERS = ("v", "V")
"""Parameters of heads that a file may have even where the head of a run has none of that name."""

LARGEST_BASIS = 1024
"""Most tokens of a vocabulary, or classes, whose embeddings are the standard basis."""


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

    def __init__(self, path: str) -> None:
        self.path = path

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return the first `trials` instances of the file (all, if it has fewer)."""
        arrays = read_npz("data.path", self.path, "X, Z, Y, or ids, next, or X, y")
        if isinstance(head, Vocabulary) or {"ids", "next"} & set(arrays):
            return self._of_ids(arrays, head, model, seed).take(slice(trials))
        if "y" in arrays:
            return self._of_points(arrays, head, model, seed)
        X = _array(arrays, "X")
        if X.ndim == 3:
            arrays, X = {name: value[None] for name, value in arrays.items()}, X[None]
        if X.ndim != 4 or 0 in X.shape:
            raise ConfigError(f"X: shape {tuple(X.shape)}; must be (B, n, T, d) or (n, T, d)")
        B, n, T, d = X.shape
        Y = _labels(_array(arrays, "Y"), (B, n), model.label_shape(n, T))
        Z = None if model.OWN_QUERIES else _array(arrays, "Z")
        mask = _mask(arrays, (B, n, T))
        parameters = head.draw(torch.Generator(), d)
        known = tuple(dict.fromkeys((*SAMPLES, *KNOWN_PARAMETERS, *parameters)))
        self._check_names(arrays, known)
        given = {name: _array(arrays, name) for name in parameters if name in arrays}
        samples = vars(model.expand(X, Z, Y, mask))
        return ProblemBatch.of(**samples, head=head, seed=seed, **given).take(slice(trials))

    def _of_ids(self, arrays: Arrays, head: Head, model: Model, seed: int) -> ProblemBatch:
        """Return the instances of token ids with their next tokens."""
        made, ids = head_of_labels(head, model, "file with ids"), _array(arrays, "ids")
        self._check_names(arrays, SEQUENCES)
        if ids.ndim == 2:
            axis = ("ids", "next", "mask")
            arrays = {name: V[None] if name in axis else V for name, V in arrays.items()}
            ids = ids[None]
        if ids.ndim != 3 or 0 in ids.shape:
            raise ConfigError(f"ids: shape {tuple(ids.shape)}; must be (B, n, T) or (n, T)")
        y, mask = _array(arrays, "next"), _mask(arrays, tuple(ids.shape))
        check_array("next", y, tuple(ids.shape[:2]), torch.float64)
        given = {"ids": ids.where(mask, 0.0), "next": y}
        E = _embeddings(arrays) if "E" in arrays else None
        ids, y = (_whole(name, V, E) for name, V in given.items())
        E = torch.eye(int(ids.max()) + 1).double() if E is None else E
        there = ((ids == y[..., None]) & mask).any(-1)
        for b, i in (~there).nonzero()[:1].tolist():
            known = ", ".join(map(str, sorted({*ids[b, i][mask[b, i]].tolist()})))
            what = f"next: label {int(y[b, i])} of sequence {i} of instance {b}"
            raise ConfigError(f"{what}; must be one of its ids {known}")
        C = _outputs(arrays, E)
        X = E[ids]
        last = mask.shape[-1] - 1 - mask.flip(-1).int().argmax(-1)
        Z = X.gather(2, last[..., None, None].expand(*last.shape, 1, X.shape[-1])).squeeze(2)
        parameters, numbers = made.of_labels(C, y), seed + torch.arange(len(X))
        return ProblemBatch(X, Z, torch.ones_like(Z[..., 0]), mask, made, parameters, numbers)

    def _of_points(self, arrays: Arrays, head: Head, model: Model, seed: int) -> ProblemBatch:
        """Return the instance of points with their classes."""
        check_own_scores(head, model, "file with y", LinearClassifier)
        self._check_names(arrays, ("X", "y"))
        X, y = _array(arrays, "X"), _array(arrays, "y")
        if X.ndim != 2 or 0 in X.shape:
            raise ConfigError(f"X: shape {tuple(X.shape)}; must be (n, d) with y (n,)")
        check_array("X", X, tuple(X.shape), torch.float64)
        check_array("y", y, (len(X),), torch.float64)
        if len(wrong := y[(y != y.floor()) | (y < 0) | (y >= LARGEST_BASIS)]):
            raise ConfigError(f"y: {wrong[0]:g}; must be whole numbers >= 0 and < {LARGEST_BASIS}")
        one = classifier(X, y.long(), max(2, int(y.max()) + 1))
        X, Z, Y = (V[None] for V in (one.X, one.Z, one.Y))
        mask, v = torch.ones(X.shape[:3], dtype=torch.bool), one.head_parameters["v"][None]
        return ProblemBatch(X, Z, Y, mask, RowScores(), {"v": v}, torch.tensor([seed]))

    def _check_names(self, arrays: Arrays, known: Sequence[str]) -> None:
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


def _array(arrays: Arrays, name: str) -> Tensor:
    if name not in arrays:
        there = ", ".join(sorted(arrays)) or "nothing"
        raise ConfigError(f"{name}: missing; must be in the file, which has {there}")
    if arrays[name].dtype.kind not in "fiub":
        raise ConfigError(f"{name}: {arrays[name].dtype}; must be real numbers")
    return real(name, arrays[name])


def _mask(arrays: Arrays, shape: tuple[int, ...]) -> Tensor:
    """Return the admissible tokens, (B, n, T) bool: all of them by default."""
    mask = _array(arrays, "mask") if "mask" in arrays else torch.ones(shape).double()
    check_array("mask", mask, shape, torch.float64)
    if not ((mask == 0) | (mask == 1)).all():
        raise ConfigError("mask: has a value other than 0 and 1; must be booleans")
    if not mask.any(-1).all():
        raise ConfigError("mask: every sample must have at least one admissible token")
    return mask.bool()


def _whole(name: str, V: Tensor, E: Tensor | None) -> Tensor:
    """Return token ids as integers."""
    limit = LARGEST_BASIS if E is None else len(E)
    wrong = V[~((V == V.round()) & (V >= 0) & (V < limit))]
    if wrong.numel():
        of = "or < K with embeddings E (K, d) in the file" if E is None else "the rows of E"
        must = f"must be whole numbers >= 0 and < {limit}, {of}"
        raise ConfigError(f"{name}: {wrong[0].item():g}; {must}")
    return V.long()


def _embeddings(arrays: Arrays) -> Tensor:
    """Return E (K, d), whose rows are different."""
    E = _array(arrays, "E")
    if E.ndim != 2 or 0 in E.shape:
        raise ConfigError(f"E: shape {tuple(E.shape)}; must be (K, d)")
    check_array("E", E, tuple(E.shape), torch.float64)
    kind = np.unique(E.numpy(), axis=0, return_inverse=True)[1].ravel()
    for i, j in np.argwhere(np.triu(kind[:, None] == kind, 1))[:1]:
        raise ConfigError(f"E: rows {i} and {j} are equal; must be different")
    return E


def _outputs(arrays: Arrays, E: Tensor) -> Tensor:
    """Return C (K, d): those of the file, or pinv(E)^T."""
    if "C" in arrays:
        C = _array(arrays, "C")
        check_array("C", C, tuple(E.shape), torch.float64)
        return C
    if (rank := int(torch.linalg.matrix_rank(E))) < len(E):
        must = "must be linearly independent, or the file must have C, as C = E"
        raise ConfigError(f"E: {len(E)} rows of rank {rank}; {must}")
    return torch.linalg.pinv(E).mT


def _labels(Y: Tensor, shape: tuple[int, int], wanted: tuple[int, ...]) -> Tensor:
    """Return labels of shape (B, *wanted), those of shape (B, n) repeated for every query."""
    full = (shape[0], *wanted)
    if tuple(Y.shape) not in (shape, full):
        allowed = " or ".join(str(s) for s in dict.fromkeys((shape, full)))
        raise ConfigError(f"Y: shape {tuple(Y.shape)}; must be {allowed}")
    check_labels(Y)
    return Y.reshape(*Y.shape, *[1] * (len(full) - Y.ndim)).expand(full).contiguous()
