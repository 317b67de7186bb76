"""`data=file`: instances from an .npz file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.data.base import Data, LabelHead, check_own_scores, head_of_labels
from attnsvm.data.classes import classifier
from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Head, RowScores, Vocabulary
from attnsvm.linalg import check_array, real
from attnsvm.model import LinearClassifier, Model
from attnsvm.record.archive import read_arrays
from attnsvm.record.files import MAX_TABLE_BYTES, CorruptRecordError, open_regular, reason_of

Arrays = dict[str, np.ndarray[Any, Any]]
TOKENS = {"X": "BnTd", "Z": "Bnd", "Y": "Bn", "mask": "BnT"}
SEQUENCES = {"ids": "BnT", "next": "Bn", "E": "Kd", "C": "Kd", "mask": "BnT"}
POINTS = {"X": "nd", "y": "n"}
"""The arrays of a file by their axes, each of one length in all arrays."""

OPTIONAL = ("mask", "E", "C")

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
        stored = read_npz("data.path", self.path, "X, Z, Y, or ids, next, or X, y")
        if isinstance(head, Vocabulary) or {"ids", "next"} & set(stored):
            batch = self._of_ids(stored, head_of_labels(head, model, "file with ids"), seed)
        elif "y" in stored:
            check_own_scores(head, model, "file with y", LinearClassifier)
            batch = self._of_points(stored, seed)
        else:
            batch = self._of_tokens(stored, head, model, seed)
        return batch.take(slice(trials))

    def _of_tokens(self, stored: Arrays, head: Head, model: Model, seed: int) -> ProblemBatch:
        """Return the instances of tokens; the label of a sequence is that of each query."""
        shapes, names = dict(TOKENS), head.draw(torch.Generator(), 1)
        if (
            len(model.label_shape(1, 1)) > 1
            and np.ndim(stored.get("Y", 0)) == np.ndim(stored.get("X", 0)) - 1
        ):
            shapes["Y"] = "BnT"
        if model.OWN_QUERIES:
            del shapes["Z"]
        arrays = self._checked(stored, shapes, "Z", *KNOWN_PARAMETERS, *names)
        X, Y = arrays["X"], arrays["Y"]
        full = len(X), *model.label_shape(*X.shape[1:3])
        Y = Y.reshape(*Y.shape, *[1] * (len(full) - Y.ndim)).expand(full).contiguous()
        samples = vars(model.expand(X, arrays.get("Z"), Y, arrays.get("mask")))
        own = {name: stored[name] for name in names if name in stored}
        return ProblemBatch.of(**samples, head=head, seed=seed, **own)

    def _of_ids(self, stored: Arrays, head: LabelHead, seed: int) -> ProblemBatch:
        """Return the instances of token ids with their next tokens."""
        arrays = self._checked(stored, SEQUENCES)
        ids, E = arrays["ids"], arrays.get("E")
        mask = arrays.get("mask", torch.ones_like(ids, dtype=torch.bool))
        limit = LARGEST_BASIS if E is None else len(E)
        ids, y = _whole("ids", ids.where(mask, 0.0), limit), _whole("next", arrays["next"], limit)
        for b, i in (~((ids == y[..., None]) & mask).any(-1)).nonzero()[:1].tolist():
            what = f"next: label {int(y[b, i])} of sequence {i} of instance {b}"
            raise ConfigError(f"{what}; must be one of its ids {ids[b, i][mask[b, i]].tolist()}")
        E = torch.eye(int(ids.max()) + 1).double() if E is None else E
        check_array("E", E, tuple(E.shape), torch.float64)
        kind = np.unique(E.numpy(), axis=0, return_inverse=True)[1].ravel()
        for i, j in np.argwhere(np.triu(kind[:, None] == kind, 1))[:1]:  # one token for attention
            raise ConfigError(f"E: rows {i} and {j} are equal; must be different")
        if (C := arrays.get("C")) is None:
            if (rank := int(torch.linalg.matrix_rank(E))) < len(E):
                must = "must be linearly independent, or the file must have C, as C = E"
                raise ConfigError(f"E: {len(E)} rows of rank {rank}; {must}")
            C = torch.linalg.pinv(E).mT
        last = mask.shape[-1] - 1 - mask.flip(-1).int().argmax(-1)
        X = E[ids]
        Z = X.take_along_dim(last[..., None, None], 2)[:, :, 0]
        seeds = seed + torch.arange(len(X))
        return ProblemBatch(
            X, Z, torch.ones_like(Z[..., 0]), mask, head, head.of_labels(C, y), seeds
        )

    def _of_points(self, stored: Arrays, seed: int) -> ProblemBatch:
        """Return the instance of points with their classes."""
        arrays = self._checked(stored, POINTS)
        y = _whole("y", arrays["y"], LARGEST_BASIS)
        drawn = classifier(arrays["X"], y, max(2, int(y.max()) + 1))
        X, Z, Y, v = (V[None] for V in (drawn.X, drawn.Z, drawn.Y, drawn.head_parameters["v"]))
        mask = torch.ones(X.shape[:3], dtype=torch.bool)
        return ProblemBatch(X, Z, Y, mask, RowScores(), {"v": v}, torch.tensor([seed]))

    def _checked(
        self, stored: Arrays, shapes: Mapping[str, str], *others: str
    ) -> dict[str, Tensor]:
        """Return the arrays of these shapes, with the axis B; `others` may be in the file too."""
        known = dict.fromkeys((*shapes, *others))
        for name in stored.keys() - known:
            must = f"must be {' | '.join(known)}"
            raise ConfigError(f"data.path={self.path}: unknown array {name}; {must}")
        arrays, sizes = dict[str, Tensor](), dict[str, int]()
        for name in (name for name in shapes if name in stored or name not in OPTIONAL):
            if name not in stored:
                there = ", ".join(sorted(stored)) or "nothing"
                raise ConfigError(f"{name}: missing; must be in the file, which has {there}")
            V, axes = real(name, stored[name]), shapes[name]
            full = V[None] if axes[0] == "B" and V.ndim == len(axes) - 1 else V
            lengths = dict(zip(axes, full.shape, strict=False))
            expected = {axis: sizes.get(axis, max(1, n)) for axis, n in lengths.items()}
            if full.ndim != len(axes) or lengths != expected:
                must = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
                optional = "; B may be missing" * (axes[0] == "B")
                raise ConfigError(f"{name}: shape {tuple(V.shape)}; must be ({must}){optional}")
            arrays[name], sizes = full, sizes | lengths
        if "mask" in arrays:
            if not ((arrays["mask"] == 0) | (arrays["mask"] == 1)).all():
                raise ConfigError("mask: has a value other than 0 and 1; must be booleans")
            arrays["mask"] = arrays["mask"].bool()
            if not arrays["mask"].any(-1).all():
                raise ConfigError("mask: every sample must have at least one admissible token")
        return arrays


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


def _whole(name: str, V: Tensor, limit: int) -> Tensor:
    """Return whole numbers from 0 to limit - 1 as integers."""
    wrong = V[~((V == V.round()) & (V >= 0) & (V < limit))]
    if wrong.numel():
        raise ConfigError(f"{name}: {wrong[0].item():g}; must be whole numbers >= 0 and < {limit}")
    return V.long()
