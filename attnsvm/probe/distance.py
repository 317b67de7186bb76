"""`probe=distance`: the distance of W to a given matrix, of their directions."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from attnsvm.config import ConfigError
from attnsvm.linalg.directions import one_minus_correlation
from attnsvm.probe.base import Probe, Snapshot
from attnsvm.record import CorruptRecordError
from attnsvm.record.arrays import read_array


class Distance(Probe):
    """|| W / ||W||_F - M / ||M||_F ||_F = sqrt(2 (1 - correlation)), from 0 to 2; NaN for W = 0.

    Parameters
    ----------
    path : str
        An .npy file with M, (d, d) finite numbers, not all zero. Nothing is unpickled.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def matrix(self) -> Tensor:
        """M, float64.

        Raises
        ------
        ConfigError
            If the file cannot be read, or holds no such matrix.
        """
        named = f"probe.distance.path={self.path}"
        try:
            M = read_array(Path(self.path).resolve())
        except CorruptRecordError as error:
            raise ConfigError(f"{named}: {error}; must be a readable .npy file") from error
        if M.dtype.kind not in "fiu" or M.ndim != 2 or not np.isfinite(M).all() or not M.any():
            found = f"{M.dtype} of shape {M.shape}"
            raise ConfigError(f"{named}: {found}; must be a matrix of finite numbers, not all zero")
        return torch.from_numpy(M.astype(np.float64))

    def check(self, d: int) -> None:
        """Raise ConfigError unless M is (d, d)."""
        if (shape := tuple(self.matrix.shape)) != (d, d):
            raise ConfigError(f"probe.distance.path={self.path}: shape {shape}; must be {(d, d)}")

    def measure(self, snapshot: Snapshot) -> dict[str, Tensor]:
        """Return the distance."""
        apart = one_minus_correlation(snapshot.W, self.matrix.to(snapshot.W.device))
        return {"direction": (2 * apart).sqrt()}
