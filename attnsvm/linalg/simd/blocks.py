"""Batches of tensors as blocks of eight instances, the layout of compiled code, and back."""

from collections import namedtuple
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray, arrays


class Workspace(tuple[LaneArray, ...]):
    """Work arrays of a thread by name, of a class that `workspace` returns."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> LaneArray: ...


def workspace(module: str, shapes: dict[str, str]) -> Any:
    """Return the class `Work`, an attribute of the module, of work arrays by their axes.

    `shapes` has the names of arrays by the letters of their axes.
    """
    make: Any = namedtuple
    return arrays(make("Work", " ".join(shapes.values()), module=module))


def work_arrays(kind: Any, shapes: dict[str, str], lengths: dict[str, Any]) -> Any:
    """Return the work arrays of a thread, of a class of `workspace`, by the lengths of axes."""
    sizes = (
        [tuple(lengths[axis] for axis in axes)] * len(names.split())
        for axes, names in shapes.items()
    )
    return kind(*LaneArray.several(*chain.from_iterable(sizes)))


def blocks_of(tensor: Tensor) -> LaneArray:
    """Return a tensor (B, ...) as an array of blocks (ceil(B / 8), ...), an instance in each lane.

    The last instance is repeated in the lanes of the last block that would be empty.
    """
    B, whole, entries = len(tensor), len(tensor) // LANES, prod(tensor.shape[1:])
    blocks, flat = -(-B // LANES), tensor.numpy().reshape(B, entries)
    (array,) = LaneArray.several((blocks, *tensor.shape[1:]))
    lanes = array.array.reshape(blocks, entries, LANES)
    lanes[:whole] = flat[: whole * LANES].reshape(whole, LANES, entries).swapaxes(1, 2)
    if whole < blocks:
        lanes[whole] = flat[np.minimum(np.arange(whole * LANES, blocks * LANES), B - 1)].T
    return array


def of_blocks(blocks: LaneArray, B: int) -> Tensor:
    """Return a copy of an array of blocks as a tensor (B, ...).

    It is contiguous, also for a single block: the last bits of a sum depend on that.
    """
    lanes = torch.from_numpy(blocks.array)
    count, *shape, _ = lanes.shape
    flat = lanes.reshape(count, prod(shape), LANES).mT.clone(memory_format=torch.contiguous_format)
    return flat.view(count * LANES, *shape)[:B]
