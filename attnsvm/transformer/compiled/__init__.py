"""The compiled training loop of several layers (numba): eight instances in the lanes of a vector.

The same formulas as in `network`, `gradient` and `parameters`. Arrays are passed as addresses of
entries of eight lanes, as in the compiled loop of one layer.
"""

from attnsvm.transformer.compiled.layout import Data, Sizes, Space, space_entries
from attnsvm.transformer.compiled.loop import descend_layers

__all__ = ["Data", "Sizes", "Space", "descend_layers", "space_entries"]
