"""Zip archives: a record as one file, which can be sent, and arrays in .npz and .npy files.

All are untrusted: names and sizes are checked before anything is written or allocated.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

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
        except Exception as error:  # whatever zipfile raises for a damaged file
            if unreadable(error):
                raise
            must = "must be a zip archive of a record"
            raise CorruptRecordError(f"{path}: {error}; {must}") from error
        yield folder


# --- arrays ---------------------------------------------------------------------------------------

IN_MEMORY_BYTES = 2**20
"""Largest array that is kept in memory; a larger one is kept in a temporary file."""


def read_arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file, of numbers or words, by their names.

    They may take half of the room on the disk; a large one is mapped from a file without a name.
    """
    with (
        refused("", Exception),
        zipfile.ZipFile(file) as archive,
        tempfile.TemporaryDirectory() as place,
    ):
        members, free = archive.infolist(), shutil.disk_usage(place).free
        needed = sum(member.file_size for member in members)
        if needed > free // 2:
            must = f"must be at most half of the {free} that are free in {place}"
            raise TooLargeError(f"arrays of {needed} bytes; {must}")
        arrays = {}
        for member in members:
            array = _mapped(Path(archive.extract(member, place)))
            small = array.nbytes <= IN_MEMORY_BYTES
            arrays[member.filename.removesuffix(".npy")] = np.array(array) if small else array
        return arrays


def read_array(path: Path) -> np.ndarray:
    """Return the array of an .npy file."""
    with refused("", Exception), open_regular(path, MAX_TABLE_BYTES):
        return _mapped(path)


def _mapped(path: Path) -> np.ndarray:
    """Return the array of an .npy file, whose bytes must be those that follow its header."""
    array = np.lib.format.open_memmap(path, mode="c")
    if (size := array.offset + array.nbytes) != (there := path.stat().st_size):
        raise ValueError(f"{there} bytes; must be {size}")
    return np.asarray(array)
