"""Batches of tensors as blocks of eight instances, the layout of compiled code, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.array import LaneArray


def blocks_of(tensor: Tensor) -> LaneArray:
    """Return a tensor (B, ...) as an array of blocks (ceil(B / 8), ...).

    The last instance is repeated in the lanes of the last block that would be empty.
    """
    shape = tensor.shape[1:]
    lanes = to_lanes(tensor.contiguous())
    return LaneArray(lanes.view(len(lanes), *shape, LANES).numpy())


def of_blocks(blocks: LaneArray, B: int) -> Tensor:
    """Return the tensor (B, ...) of an array of blocks, contiguous."""
    count, *shape = blocks.shape
    lanes = torch.from_numpy(blocks.array).view(count, -1)
    return from_lanes(lanes, (B, *shape))


def to_lanes(tensor: Tensor) -> Tensor:
    """Return a tensor (B, ...) as blocks (ceil(B / 8), entries * 8); repeat the last instance."""
    flat = tensor.flatten(1) if tensor.ndim > 1 else tensor.unsqueeze(1)
    (B, entries), blocks = flat.shape, len(tensor) // LANES
    rest = B - blocks * LANES
    lanes = flat.new_empty(blocks + (rest > 0), entries, LANES)
    lanes[:blocks] = flat[: B - rest].reshape(blocks, LANES, entries).mT
    if rest:
        lanes[blocks, :, :rest] = flat[B - rest :].mT
        lanes[blocks, :, rest:] = flat[-1:].mT
    return lanes.flatten(1)


def from_lanes(lanes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor of this shape, (B, ...), from the blocks of `to_lanes`.

    It is contiguous, also for a single block: the last bits of a sum depend on that.
    """
    blocks = len(lanes)
    flat = lanes.view(blocks, -1, LANES).mT.contiguous().view(blocks * LANES, -1)
    return flat[: shape[0]].reshape(shape)
