"""The members of a zip archive, whoever made it: checked before any of them is read."""

from __future__ import annotations

import os
import zipfile
import zlib

from attnsvm.record.files import CorruptRecordError

MAX_NAME = 100
"""Largest number of characters of a name in a message."""

DEFLATE_RATIO = 1032
"""Largest ratio by which deflate shrinks data, https://zlib.net/zlib_tech.html."""

RATIOS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}

UNREADABLE_ARCHIVE = (
    zipfile.BadZipFile, zlib.error, ValueError, TypeError, SyntaxError, RecursionError, EOFError,
    NotImplementedError, RuntimeError, OverflowError, KeyError,
)  # fmt: skip
"""Exceptions of zipfile and NumPy for a damaged file."""


def members(archive: zipfile.ZipFile, most: int) -> list[zipfile.ZipInfo]:
    """Return at most `most` members of an archive, none of which is read.

    Raises
    ------
    CorruptRecordError
        If there are more, a name is there twice, or one is encrypted, compressed in another way
        than by deflate, or larger than its bytes in the archive can hold.
    """
    found = archive.infolist()
    if len(found) > most:
        raise CorruptRecordError(f"{len(found)} files; must be at most {most}")
    if len({info.filename for info in found}) < len(found):
        raise CorruptRecordError("a name is there twice")
    for info in found:
        name, ratio = repr(info.filename[:MAX_NAME]), RATIOS.get(info.compress_type)
        if info.flag_bits & 1:
            raise CorruptRecordError(f"{name}: is encrypted")
        if ratio is None:
            raise CorruptRecordError(f"{name}: must be stored or deflated")
        if info.file_size > ratio * info.compress_size:
            raise CorruptRecordError(
                f"{name}: claims {info.file_size} bytes; its {info.compress_size} stored bytes "
                f"hold at most {ratio * info.compress_size}"
            )
    stream = archive.fp
    assert stream is not None
    size = stream.seek(0, os.SEEK_END)
    if sum(info.compress_size for info in found) > size:
        raise CorruptRecordError(f"its files claim more than the {size} bytes of the archive")
    return found
