"""`attnsvm.nn.attention` beside PyTorch's own: forward and backward passes on one thread."""

from collections.abc import Callable
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnsvm.nn import attention
from benchmarks._measure import apart, best_in_turn, print_head, print_row, with_peak

SHAPES = (1, 16, 16), (64, 16, 16), (8, 128, 64), (8, 512, 64)
"""Heads, length and dimension."""
FUNCTIONS: tuple[Callable[..., Tensor], ...] = attention, scaled_dot_product_attention


def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]


def passes(which: int, inputs: list[Tensor]) -> None:
    torch.autograd.grad(FUNCTIONS[which](*inputs).sum(), inputs)


def peak(which: int, shape: tuple[int, ...], dtype: torch.dtype) -> float:
    torch.set_num_threads(1)
    passes(which, drawn((1, 2, 2), dtype))  # what is loaded once is not counted
    return with_peak(partial(passes, which, drawn(shape, dtype)))[1]


def main() -> None:
    torch.set_num_threads(1)
    print_head("heads, length, dimension", "dtype", "us, torch", "times torch", "MiB, torch", "MiB")
    for shape, dtype in product(SHAPES, (torch.float64, torch.float32, torch.bfloat16)):
        works = {str(i): (partial(passes, i, drawn(shape, dtype)), 1) for i in (0, 1)}
        ours, theirs = (best[1] for best in best_in_turn(works, 50).values())
        mine, other = (f"{apart(peak, i, shape, dtype):.0f}" for i in (0, 1))
        name = str(dtype).removeprefix("torch.")
        print_row(shape, name, f"{theirs:.0f}", f"{ours / theirs:.1f}", other, mine)
