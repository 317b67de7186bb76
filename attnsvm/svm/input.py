"""The user's input: torch or NumPy, with or without a batch axis."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.svm.problem import SvmProblem


class Given:
    """Array type and batch axis of the input; the result gets the same."""

    def __init__(self, X: Any) -> None:
        self.is_torch = isinstance(X, Tensor)
        self.device = X.device if isinstance(X, Tensor) else torch.device("cpu")
        self.single = _tensor("X", X, self.device).ndim == 3

    def batch(self, name: str, array: Any) -> Tensor:
        """Return the array as a batched tensor."""
        tensor = _tensor(name, array, self.device)
        return tensor[None] if self.single else tensor

    def real(self, name: str, array: Any) -> Tensor:
        """Return the array of real numbers as a batched float64 tensor."""
        tensor = self.batch(name, array)
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise ValueError(f"{name}: {tensor.dtype}; must be real numbers")
        return tensor.to(torch.float64)

    def back(self, result: Any) -> Any:
        """Return a result, nested ones included, with arrays of the input's type and batch axis.

        Problems stay as they are, batched tensors.

        A tuple has one item per instance; without a batch axis its single item is returned.
        """
        changed = {f.name: self._field(getattr(result, f.name)) for f in fields(result)}
        return replace(result, **changed)

    def _field(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._array(value)
        if isinstance(value, tuple):
            return value[0] if self.single else value
        nested = is_dataclass(value) and not isinstance(value, SvmProblem)
        return self.back(value) if nested else value

    def _array(self, tensor: Tensor) -> Any:
        tensor = tensor[0] if self.single else tensor
        return tensor if self.is_torch else tensor.numpy()


def _tensor(name: str, array: Any, device: torch.device) -> Tensor:
    """Return a tensor, a NumPy array of any strides, or nested lists as a tensor."""
    if isinstance(array, Tensor):
        return array.detach().to(device)
    try:
        plain = np.asarray(array)
        native = plain.astype(plain.dtype.newbyteorder("="), order="C")
        return torch.from_numpy(native).to(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: {error}; must be an array of numbers") from error
