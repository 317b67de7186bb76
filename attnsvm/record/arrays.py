"""Arrays of untrusted .npz and .npy files: sizes are checked before anything is allocated."""

from __future__ import annotations

import math
import os
import re
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attnsvm.record.archive import UNREADABLE_ARCHIVE, members
from attnsvm.record.files import (
    MAX_TABLE_BYTES,
    CorruptRecordError,
    open_regular,
    refused,
    usable_memory,
)

MAX_ARRAYS = 1000
NAME = re.compile(r"[^\W\d]\w*(\.\d\w*)?\.npy")
"""An identifier; the name of a norm may have a decimal point, as in `l1.75_W`."""

KINDS = "biufcU"
"""Kinds of type of an array: booleans, whole numbers, floats, complex numbers and words."""

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
"""Shape, whether in Fortran's order, and type."""


def array_headers(archive: zipfile.ZipFile) -> dict[str, Header]:
    """Return the header of every array in an open .npz file, by its name; no array is read.

    Raises
    ------
    CorruptRecordError
        If a member is no array of numbers or words, has not exactly the bytes of its shape and
        type, or is refused by `members`.
    """
    headers = {}
    for info in members(archive, MAX_ARRAYS):
        if not NAME.fullmatch(info.filename):
            raise CorruptRecordError(f"{info.filename[:100]!r}: must be the name of an array")
        with refused(f"{info.filename[:100]}: ", *UNREADABLE_ARCHIVE), archive.open(info) as member:
            headers[info.filename.removesuffix(".npy")] = _header(member, info.file_size)
    return headers


def _header(stream: Any, size: int) -> Header:
    """Return the header of the array in an open .npy file of `size` bytes."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise CorruptRecordError("must be of version 1.0 of the format .npy")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in KINDS or dtype.subdtype is not None:
        raise CorruptRecordError(f"{dtype}: must be numbers or words, not Python objects")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise CorruptRecordError(f"shape {shape}: must be whole numbers >= 0")
    if stream.tell() + math.prod(shape) * dtype.itemsize != size:
        raise CorruptRecordError(f"{size} bytes; must be those of {dtype} of shape {shape}")
    return shape, fortran, dtype


def read_arrays(stream: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, checked by `array_headers` first.

    Raises
    ------
    CorruptRecordError
        If they are not as described there, or need more memory than this machine has.
    """
    with refused("", *UNREADABLE_ARCHIVE), zipfile.ZipFile(stream) as archive:
        headers = array_headers(archive)
        needed = sum(info.file_size for info in archive.infolist())
        if needed > (there := usable_memory()):
            raise CorruptRecordError(f"arrays of {needed} bytes; this machine has {there}")
        arrays = {}
        for name in headers:
            with archive.open(f"{name}.npy") as member:
                arrays[name] = _array(member)
        return arrays


def read_array(path: Path) -> np.ndarray:
    """Return the array of an .npy file.

    Raises
    ------
    CorruptRecordError
        If it is not a regular file, holds anything but numbers or words, or has not the bytes of
        its shape.
    """
    with refused("", *UNREADABLE_ARCHIVE), open_regular(path, MAX_TABLE_BYTES) as stream:
        _header(stream, os.fstat(stream.fileno()).st_size)
        stream.seek(0)
        return _array(stream)


def _array(stream: Any) -> np.ndarray:
    return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
