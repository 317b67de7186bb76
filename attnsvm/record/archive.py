"""Zip archives: a record as one file, which can be sent, and arrays in .npz and .npy files.

All are untrusted: names and sizes are checked before anything is written or allocated.
"""

import math
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
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

RATIOS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""Largest ratio by which a method shrinks data, https://zlib.net/zlib_tech.html."""

UNREADABLE_ARCHIVE = (zipfile.BadZipFile, zlib.error, ValueError, TypeError, SyntaxError, EOFError,
                      RuntimeError, OverflowError, KeyError, OSError)  # fmt: skip
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
                found = members(archive, MOST_FILES)
                name = _top_folder(found)
                archive.extractall(place, found)  # reads no more than the size that each states
        except UNREADABLE_ARCHIVE as error:
            if unreadable(error):
                raise
            must = "must be a zip archive of a record"
            raise CorruptRecordError(f"{path}: {error}; {must}") from error
        yield Path(place) / name


def members(archive: zipfile.ZipFile, most: int) -> list[zipfile.ZipInfo]:
    """Return at most `most` members of a zip archive, none of which is read.

    Each name is there once; each member is stored or deflated, not encrypted, and no larger than
    its bytes in the archive can hold.
    """
    found = archive.infolist()
    if len(found) > most:
        raise CorruptRecordError(f"{len(found)} files; must be at most {most}")
    if len({PurePosixPath(info.filename) for info in found}) < len(found):
        raise CorruptRecordError("a name is there twice")
    for info in found:
        ratio = RATIOS.get(info.compress_type, -1)
        if info.flag_bits & 1 or info.file_size > ratio * info.compress_size:
            raise CorruptRecordError(
                f"{info.filename[:100]!r}: {info.file_size} bytes in {info.compress_size} of the "
                f"archive; must be stored or deflated, not encrypted"
            )
    assert archive.fp is not None
    size = archive.fp.seek(0, os.SEEK_END)
    if sum(info.compress_size for info in found) > size:
        raise CorruptRecordError(f"its files claim more than the {size} bytes of the archive")
    return found


def _top_folder(found: list[zipfile.ZipInfo]) -> str:
    """Return the first part of all names; each must be a folder or plain file in the archive."""
    names = [PurePosixPath(member.filename) for member in found]
    for member, name in zip(found, names, strict=True):
        kind = stat.S_IFMT(member.external_attr >> 16)
        outside = name.is_absolute() or ".." in name.parts or "\\" in member.filename
        expected, parts = (stat.S_IFDIR, 1) if member.is_dir() else (stat.S_IFREG, 2)
        if outside or len(name.parts) < parts or kind not in (0, expected):
            raise ValueError(f"{member.filename!r} is no plain file in a folder")
    if (size := sum(member.file_size for member in found)) > MOST_BYTES:
        raise ValueError(f"files of {size} bytes: must be at most {MOST_BYTES}")
    if len(tops := {name.parts[0] for name in names}) != 1:
        raise ValueError(f"{len(tops)} folders")
    return tops.pop()


# --- arrays ---------------------------------------------------------------------------------------

MAX_ARRAYS = 1000

IN_MEMORY_BYTES = 2**20
"""Largest array that is kept in memory; a larger one is kept in a temporary file."""

NAME = re.compile(r"[^\W\d]\w*(\.\d\w*)?(\+[^\W\d]\w*(\.\d\w*)?)?\.npy")
"""An identifier; names of norms may have decimal points and one plus: `l1.75_W`, `l3+max_W`."""

KINDS = "biufcU"
"""Kinds of type of an array: booleans, whole numbers, floats, complex numbers and words."""


def read_arrays(stream: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by their names, each checked before it is read.

    There may be `MAX_ARRAYS`, which may take half of the room on the disk.
    """
    arrays, place = dict[str, np.ndarray](), tempfile.gettempdir()
    with refused("", *UNREADABLE_ARCHIVE), zipfile.ZipFile(stream) as archive:
        found = members(archive, MAX_ARRAYS)
        needed, free = sum(info.file_size for info in found), shutil.disk_usage(place).free
        if needed > free // 2:
            must = f"must be at most half of the {free} that are free in {place}"
            raise TooLargeError(f"arrays of {needed} bytes; {must}")
        for info in found:
            name = info.filename
            if not NAME.fullmatch(name):
                raise CorruptRecordError(f"{name[:100]!r}: must be the name of an array")
            with refused(f"{name[:100]}: ", *UNREADABLE_ARCHIVE), archive.open(info) as member:
                arrays[name.removesuffix(".npy")] = _array(member, info.file_size)
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
    if dtype.kind not in KINDS or dtype.subdtype is not None:
        raise CorruptRecordError(f"{dtype}: must be numbers or words, not Python objects")
    if not all(type(length) is int and length >= 0 for length in shape):
        raise CorruptRecordError(f"shape {shape}: must be whole numbers >= 0")
    if stream.tell() + math.prod(shape) * dtype.itemsize != size:
        raise CorruptRecordError(f"{size} bytes; must be those of {dtype} of shape {shape}")
    order: Any = "F" if fortran else "C"
    if size <= IN_MEMORY_BYTES:
        return np.ndarray(shape, dtype, bytearray(stream.read()), order=order)
    with tempfile.TemporaryFile() as place:
        shutil.copyfileobj(stream, place)
        place.flush()
        return np.asarray(np.memmap(place, dtype, "c", 0, shape, order))
