"""Batches of tensors as blocks of eight instances, the layout of compiled code, and back."""

from __future__ import annotations

import torch
from torch import Tensor

from attnsvm.lanes.arithmetic import LANES


def to_lanes(tensor: Tensor) -> Tensor:
    """Return a tensor (B, ...) as blocks (ceil(B / 8), entries * 8); repeat the last instance."""
    B = len(tensor)
    blocks = -(-B // LANES)
    index = torch.arange(blocks * LANES).clamp(max=B - 1)
    flat = tensor.reshape(B, -1)[index].view(blocks, LANES, -1)
    return flat.mT.reshape(blocks, -1).contiguous()


def from_lanes(lanes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the tensor of this shape, (B, ...), from the blocks of `to_lanes`.

    It is contiguous, also for a single block: the last bits of a sum depend on that.
    """
    blocks = len(lanes)
    flat = lanes.view(blocks, -1, LANES).mT.contiguous().view(blocks * LANES, -1)
    return flat[: shape[0]].reshape(shape)
