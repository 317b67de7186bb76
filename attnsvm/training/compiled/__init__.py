"""The compiled training loop (numba): each value holds eight instances in the lanes of a vector."""

from attnsvm.training.compiled.loop import run
from attnsvm.training.compiled.rule import LOSS_CODES, applies

__all__ = ["LOSS_CODES", "applies", "run"]
