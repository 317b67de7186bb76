"""A process that runs one of the commands: its streams, and its environment."""

import io
import os
import sys
from typing import Any


class _Stream(io.FileIO):
    """A stream that leads nowhere once its reader, as `head`, has left or its disk is full."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if not isinstance(error, BrokenPipeError):
                os.write(2, f"what is printed is lost: {error.strerror}\n".encode())
            return memoryview(data).nbytes


def prepare() -> None:
    """Give this process streams that can be written to, and leave figures and compiling to us.

    Files that are opened later would otherwise take the place of a closed stream, and get what is
    printed. Figures are drawn with Agg only. Streams that a notebook or a test captures stay.
    """
    os.environ["MPLBACKEND"] = "agg"
    os.environ.pop("NUMBA_DISABLE_JIT", None)
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the least number that is free
    for number, name in ((1, "stdout"), (2, "stderr")):
        usual: Any = getattr(sys, name)
        if usual is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif usual is getattr(sys, f"__{name}__"):
            usual.flush()
            stream = io.TextIOWrapper(
                io.BufferedWriter(_Stream(number, "w", closefd=False)),
                encoding=usual.encoding,
                errors="backslashreplace",
                line_buffering=usual.line_buffering,
                write_through=usual.write_through,
            )
            setattr(sys, name, stream)
