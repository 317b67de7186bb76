"""One thread for many small matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: on matrices this small, threads wait for each other.

    Measured: up to 50 times slower with two threads on two cores that are also otherwise in use.
    Work on many instances is spread over processes.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
