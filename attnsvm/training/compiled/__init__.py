"""The compiled training loop (numba): each value holds eight instances in the lanes of a vector."""

from attnsvm.training.compiled.loop import CompiledLoop, uncompiled
