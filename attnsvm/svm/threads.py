"""One thread for many small matrices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: threads wait for each other.

    Measured on two cores that are also otherwise in use: two threads take 2 (30 000 rows) to 50
    (few rows) times as long as one. Work on many instances is spread over processes.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
