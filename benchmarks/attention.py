"""`attnsvm.nn.attention` beside PyTorch's own: forward and backward passes on one thread."""

import math
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from attnsvm.nn import attention
from benchmarks._measure import apart, best_in_turn, print_head, print_row, with_peak

SHAPES = (1, 16, 16), (64, 16, 16), (8, 128, 64), (8, 512, 64)
"""Heads, length and dimension."""
FUNCTIONS = {"ours": attention, "torch": scaled_dot_product_attention}


def passes(name: str, shape: tuple[int, ...], dtype: torch.dtype, times: int) -> None:
    given = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
    for _ in range(times):
        torch.autograd.grad(FUNCTIONS[name](*given).sum(), given)


def peak(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> float:
    torch.set_num_threads(1)
    passes(name, (1, 2, 2), dtype, 1)  # what is loaded once is not counted
    return with_peak(lambda: passes(name, shape, dtype, 1))[1]


def main() -> None:
    torch.set_num_threads(1)
    print_head("heads, length, dimension", "dtype", "us, torch", "times torch", "MiB, torch", "MiB")
    for shape in SHAPES:
        times = max(1, 2**20 // math.prod(shape) // shape[1])
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            works = {n: (partial(passes, n, shape, dtype, times), times) for n in FUNCTIONS}
            ours, theirs = (best[1] for best in best_in_turn(works, 20).values())
            mine, other = (apart(peak, name, shape, dtype) for name in FUNCTIONS)
            cells = f"{theirs:.0f}", f"{ours / theirs:.1f}", f"{other:.0f}", f"{mine:.0f}"
            print_row(shape, str(dtype).removeprefix("torch."), *cells)
