"""The arrays of `solutions.npz`: their sizes are checked before anything is allocated."""

from __future__ import annotations

import math
import os
import re
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attnsvm.record.files import MAX_TABLE_BYTES, CorruptRecordError, open_regular
from attnsvm.record.memory import usable_memory
from attnsvm.record.zipped import MAX_NAME, UNREADABLE_ARCHIVE, members

SUFFIX = ".npy"
MAX_ARRAYS = 1000
NAME = re.compile(r"[^\W\d]\w*(\.\d\w*)?\.npy")
"""An identifier; the name of a norm may have a decimal point, as in `l1.75_W`."""

KINDS = "biufU"
"""Kinds of type of an array: booleans, whole numbers, floats and words."""

Header = tuple[tuple[int, ...], np.dtype[Any]]


def array_headers(archive: zipfile.ZipFile, of_record: bool = True) -> dict[str, Header]:
    """Return shape and type of every array in an open .npz file, by its name.

    An array passes if its file within the archive has exactly the bytes of its shape and type, and
    if the archive has the bytes to hold it. No array is read.

    Parameters
    ----------
    archive : ZipFile
        The open file.
    of_record : bool
        Whether it is that of a record, which has numbers and words only, rows first.

    Raises
    ------
    CorruptRecordError
        If the archive is not as a record has it: a name twice or outside, an encrypted or an
        impossibly small file, Python objects, a shape that its bytes do not fill.
    """
    found = members(archive, MAX_ARRAYS)
    for info in found:
        if not NAME.fullmatch(info.filename):
            raise CorruptRecordError(f"{info.filename[:MAX_NAME]!r}: must be the name of an array")
    names = [info.filename.removesuffix(SUFFIX) for info in found]
    headers = [_header(archive, info, of_record) for info in found]
    return dict(zip(names, headers, strict=True))


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, of_record: bool) -> Header:
    name = info.filename[:MAX_NAME]
    try:
        with archive.open(info) as member:
            shape, dtype = array_header(member, of_record)
            begin = member.tell()
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{name}: {error}") from error
    except UNREADABLE_ARCHIVE as error:
        raise CorruptRecordError(f"{name}: {type(error).__name__}: {error}") from error
    if begin + math.prod(shape) * dtype.itemsize != info.file_size:
        raise CorruptRecordError(
            f"{name}: {info.file_size} bytes; must be those of {dtype} of shape {shape}"
        )
    return shape, dtype


def array_header(member: Any, of_record: bool = True) -> Header:
    """Read the header of an array from an open .npy file.

    Raises
    ------
    CorruptRecordError
        If it is not of version 1.0, holds Python objects, or is not one that a record has.
    """
    if np.lib.format.read_magic(member) != (1, 0):
        raise CorruptRecordError("must be of version 1.0 of the format .npy")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    if dtype.hasobject:
        raise CorruptRecordError("Python objects; must be numbers or words")
    if of_record and (fortran or dtype.kind not in KINDS or dtype.subdtype is not None):
        raise CorruptRecordError(f"{dtype}: must be numbers or words, rows first")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise CorruptRecordError(f"shape {shape}: must be whole numbers >= 0")
    return shape, dtype


def read_arrays(stream: BinaryIO, of_record: bool = True) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, checked by `array_headers` first.

    Raises
    ------
    CorruptRecordError
        If they are not as described there, or need more memory than this machine has.
    """
    try:
        with zipfile.ZipFile(stream) as archive:
            headers = array_headers(archive, of_record)
            needed = sum(info.file_size for info in archive.infolist())
            if needed > (there := usable_memory()):
                raise CorruptRecordError(f"arrays of {needed} bytes; this machine has {there}")
            return {name: _array(archive, name) for name in headers}
    except CorruptRecordError:
        raise
    except UNREADABLE_ARCHIVE as error:
        raise CorruptRecordError(f"{type(error).__name__}: {error}") from error


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(f"{name}{SUFFIX}") as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def read_array(path: Path) -> np.ndarray:
    """Return the array of an .npy file, whose size is checked before anything is allocated.

    Raises
    ------
    CorruptRecordError
        If it is not a regular file, not of version 1.0, holds Python objects, or has not the bytes
        of its shape.
    """
    try:
        with open_regular(path, MAX_TABLE_BYTES) as stream:
            shape, dtype = array_header(stream, of_record=False)
            there = os.fstat(stream.fileno()).st_size - stream.tell()
            if there != math.prod(shape) * dtype.itemsize:
                raise CorruptRecordError(
                    f"{there} bytes; must be those of {dtype} of shape {shape}"
                )
            stream.seek(0)
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except (*UNREADABLE_ARCHIVE, OSError) as error:
        raise CorruptRecordError(f"{type(error).__name__}: {error}") from error
