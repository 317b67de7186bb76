"""Zip archives: a record as one file, which can be sent, and arrays in .npz and .npy files.

All are untrusted: names and sizes are checked before anything is written or allocated.
"""

import errno
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

MALFORMED = (errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG)
"""Errors of the system to which names and places in a damaged archive lead."""

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
            if isinstance(error, OSError) and error.errno not in MALFORMED:
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

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
"""Shape, whether in Fortran's order, and type."""


def array_headers(archive: zipfile.ZipFile) -> dict[str, Header]:
    """Return the header of every array in an open .npz file, by its name; no array is read.

    A member must be an array of numbers or words with exactly the bytes of its shape and type.
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
    """Return the arrays of an .npz file, checked by `array_headers`; large ones stay on disk."""
    with refused("", *UNREADABLE_ARCHIVE), zipfile.ZipFile(stream) as archive:
        headers, place = array_headers(archive), tempfile.gettempdir()
        needed = sum(info.file_size for info in archive.infolist())
        if needed > (free := shutil.disk_usage(place).free):
            raise TooLargeError(f"arrays of {needed} bytes; {place} has {free} free")
        arrays = {}
        for name, header in headers.items():
            with archive.open(f"{name}.npy") as member:
                arrays[name] = np.asarray(_read(member, *header))
        return arrays


def _read(member: Any, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the array of a member of an archive; a large one is mapped from an unnamed file."""
    if math.prod(shape) * dtype.itemsize <= IN_MEMORY_BYTES:
        return np.lib.format.read_array(member, allow_pickle=False)
    with tempfile.TemporaryFile() as place:
        shutil.copyfileobj(member, place)
        place.seek(0)
        np.lib.format.read_magic(place)
        np.lib.format.read_array_header_1_0(place)
        return np.memmap(place, dtype, "c", place.tell(), shape, "F" if fortran else "C")


def read_array(path: Path) -> np.ndarray:
    """Return the array of an .npy file: numbers or words, with the bytes of its shape."""
    with refused("", *UNREADABLE_ARCHIVE), open_regular(path, MAX_TABLE_BYTES) as stream:
        _header(stream, os.fstat(stream.fileno()).st_size)
        stream.seek(0)
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
