"""`attnsvm.nn.attention` beside PyTorch's own: a forward and a backward pass, and their memory."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnsvm.nn import attention
from benchmarks._measure import OURS, Program, Work

SHAPES = (64, 16, 16), (8, 128, 64), (8, 512, 64)
FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    OURS: attention,
    "torch": scaled_dot_product_attention,
}


def programs(dtype: torch.dtype, *shape: int) -> dict[str, Program]:
    """Return both, which differ in the digits that torch's gradient loses."""
    inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]

    def passes(function: Callable[..., Tensor]) -> None:
        torch.autograd.grad(function(*inputs).sum(), inputs)

    return {name: Program(partial(passes, function)) for name, function in FUNCTIONS.items()}


WORKS = [
    Work(
        f"attention, {str(dtype).removeprefix('torch.')}",
        "heads, length, dimension",
        shape,
        partial(programs, dtype),
        small=(1, 2, 2),
    )
    for dtype in (torch.float64, torch.float32, torch.bfloat16)
    for shape in SHAPES
]
