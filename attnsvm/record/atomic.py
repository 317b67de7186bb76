"""Atomic writing: a reader sees the complete old or the complete new file, also after a crash."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from attnsvm.record.files import (
    MAX_JSON_BYTES,
    CorruptRecordError,
    checksum_of,
    open_handle,
    rendered,
)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`."""
    with replacing([path]) as (stream,):
        stream.write(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` with the sha256 of its canonical form under `checksum`.

    Raises
    ------
    ValueError
        If it is larger than a file that is read.
    """
    text = json.dumps(content, default=str, ensure_ascii=False)
    plain = json.loads(text.encode(errors="replace"))  # a name on disk need not be UTF-8
    written = rendered({**plain, "checksum": checksum_of(plain)})
    if len(written) > MAX_JSON_BYTES:
        raise ValueError(f"{path}: {len(written)} bytes; must have at most {MAX_JSON_BYTES}")
    write_atomically(path, written)


@contextmanager
def replacing(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Yield a new file for each of `paths`; when the block ends they replace these one by one.

    After an error in the block the old files remain.
    """
    with ExitStack() as stack:
        temporaries: list[str] = []
        streams: list[BinaryIO] = []
        for path in paths:
            handle, temporary = _temporary(path)
            stack.callback(Path(temporary).unlink, missing_ok=True)
            streams.append(stack.enter_context(os.fdopen(handle, "wb")))
            temporaries.append(temporary)
        yield streams
        for stream, temporary, path in zip(streams, temporaries, paths, strict=True):
            stream.flush()
            os.fsync(stream.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
    for folder in {path.parent for path in paths}:
        _sync_folder(folder)


def _temporary(path: Path) -> tuple[int, str]:
    """Return a new file beside `path`, locked as long as its handle is open."""
    while True:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            return handle, name  # a file system without locks: `remove_orphans` does not remove it
        if os.fstat(handle).st_nlink:  # 0: `remove_orphans` removed it before it was locked
            return handle, name
        os.close(handle)


def remove_orphans(folder: Path) -> None:
    """Remove the temporary files in `folder` whose writer has ended."""
    for path in folder.glob(".*.tmp"):
        try:
            handle = open_handle(path, os.O_RDWR)
        except (OSError, CorruptRecordError):
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:
            pass  # its writer is running, or the file system has no locks
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
