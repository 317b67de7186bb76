"""Compiled steps and gradients of several layers (numba): eight instances in a vector's lanes."""

from attnsvm.transformer.compiled.layout import Data, Sizes, work_arrays
from attnsvm.transformer.compiled.loop import descend_layers
