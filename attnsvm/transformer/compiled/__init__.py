"""The compiled training loop of several layers (numba): eight instances in the lanes of a vector.

The same formulas as in `network`, `gradient` and `parameters`.
"""

from attnsvm.transformer.compiled.layout import Data, Sizes, work_arrays
from attnsvm.transformer.compiled.loop import descend_layers

__all__ = ["Data", "Sizes", "descend_layers", "work_arrays"]
