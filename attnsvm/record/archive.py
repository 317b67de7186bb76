"""Zip archives: a record as one file, which can be sent, and arrays in .npz and .npy files.

All are untrusted: names and sizes are checked before anything is written or allocated.
"""

import math
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from attnsvm.record.files import (
    MAX_TABLE_BYTES,
    CorruptRecordError,
    TooLargeError,
    kind_of,
    open_regular,
    refused,
    unreadable,
)

PARTS = (".json", ".npz", ".parquet")
"""How the names of a record's files end."""

MOST_FILES, MOST_BYTES = 10_000, 2**31
"""Largest archive that is read: number of files, and their bytes together."""

UNREADABLE_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    TypeError,
    SyntaxError,
    EOFError,
    RuntimeError,
    OverflowError,
    KeyError,
    OSError,
)
"""Exceptions of zipfile and NumPy for a damaged file."""

OLDEST = (1980, 1, 1, 0, 0, 0)
"""The time of every file in an archive: equal records give equal archives."""


def pack(folder: Path, place: Path) -> Path:
    """Write the record in `folder` to a zip archive in the folder `place`, and return its path."""
    path = place / f"{folder.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(folder.rglob("*")):
            inside = file.relative_to(folder)
            hidden = any(part.startswith(".") for part in inside.parts)
            if kind_of(file) == "a file" and file.suffix in PARTS and not hidden:
                member = zipfile.ZipInfo(f"{folder.name}/{inside.as_posix()}", OLDEST)
                archive.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return path


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield the folder of the record in an archive; it is temporary.

    An archive must be sound, of bounded size, and hold a single folder of plain files.
    """
    with tempfile.TemporaryDirectory() as place:
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
                size = sum(member.file_size for member in members)
                if len(members) > MOST_FILES or size > MOST_BYTES:
                    raise ValueError(f"{len(members)} files of {size} bytes")
                archive.extractall(place)  # within the place, no more than the size of each
                (folder,) = Path(place).iterdir()
        except UNREADABLE_ARCHIVE as error:
            if unreadable(error):
                raise
            must = "must be a zip archive of a record"
            raise CorruptRecordError(f"{path}: {error}; {must}") from error
        yield folder


# --- arrays ---------------------------------------------------------------------------------------

IN_MEMORY_BYTES = 2**20
"""Largest array that is kept in memory; a larger one is kept in a temporary file."""


def read_arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by their names, each checked before it is read.

    They may take half of the room on the disk.
    """
    arrays, place = dict[str, np.ndarray](), tempfile.gettempdir()
    with refused("", *UNREADABLE_ARCHIVE), zipfile.ZipFile(file) as archive:
        members, free = archive.infolist(), shutil.disk_usage(place).free
        needed = sum(member.file_size for member in members)
        if needed > free // 2:
            must = f"must be at most half of the {free} that are free in {place}"
            raise TooLargeError(f"arrays of {needed} bytes; {must}")
        for member in members:
            name = member.filename
            with refused(f"{name[:100]}: ", *UNREADABLE_ARCHIVE), archive.open(member) as stream:
                arrays[name.removesuffix(".npy")] = _array(stream, member.file_size)
    return arrays


def read_array(path: Path) -> np.ndarray:
    """Return the array of an .npy file."""
    with refused("", *UNREADABLE_ARCHIVE), open_regular(path, MAX_TABLE_BYTES) as stream:
        return _array(stream, os.fstat(stream.fileno()).st_size)


def _array(stream: Any, size: int) -> np.ndarray:
    """Return the array of an open .npy file; a large one is mapped from a file without a name.

    It must be of numbers or words, and the file must have the bytes of its shape and type.
    """
    if np.lib.format.read_magic(stream) != (1, 0):
        raise CorruptRecordError("must be of version 1.0 of the format .npy")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise CorruptRecordError(f"{dtype}: must be numbers or words, not Python objects")
    if stream.tell() + math.prod(shape) * dtype.itemsize != size:
        raise CorruptRecordError(f"{size} bytes; must be those of {dtype} of shape {shape}")
    order: Any = "F" if fortran else "C"
    if size <= IN_MEMORY_BYTES:
        return np.ndarray(shape, dtype, bytearray(stream.read()), order=order)
    with tempfile.TemporaryFile() as place:
        shutil.copyfileobj(stream, place)
        place.flush()
        return np.asarray(np.memmap(place, dtype, "c", 0, shape, order))
