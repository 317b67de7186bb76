"""Atomic writing of files, and reading with checks: a file is complete, unchanged, or rejected."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer


MAX_JSON_BYTES = 2**26
"""Largest JSON file that is read, in bytes."""

MAX_TABLE_BYTES = 2**37
"""Largest file of tables or arrays that is read, in bytes: two minutes at 1 GB per second."""


class CorruptRecordError(RuntimeError):
    """A file differs from what was written: it is reported and not used."""


class Sink(io.RawIOBase):
    """A file that is written once, sequentially, and its sha256."""

    def __init__(self, handle: int) -> None:
        self._file = os.fdopen(handle, "wb")
        self._digest = hashlib.sha256()

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._file.tell()

    def write(self, content: Buffer) -> int:
        """Append `content`."""
        self._digest.update(content)
        return self._file.write(content)

    def flush(self) -> None:
        """Pass all bytes to the operating system."""
        if not self._file.closed:
            self._file.flush()

    def sync(self) -> None:
        """Wait until all bytes are on the disk."""
        self.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, even if its last bytes cannot be written."""
        try:
            self._file.close()
        finally:
            super().close()

    def sha256(self) -> str:
        """Return the hexadecimal sha256 of the bytes written."""
        return self._digest.hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`; a reader sees the complete old or the complete new file."""
    with replacing([path]) as (sink,):
        sink.write(content)


@contextmanager
def replacing(paths: Sequence[Path]) -> Iterator[list[Sink]]:
    """Yield a new file for each of `paths`; when the block ends they replace these one by one.

    A reader sees a complete old or new file. After an error in the block the old files remain.
    """
    temporaries: list[str] = []
    with ExitStack() as stack:
        sinks = []
        for path in paths:
            handle, temporary = _temporary(path)
            stack.callback(Path(temporary).unlink, missing_ok=True)
            sinks.append(stack.enter_context(closing(Sink(handle))))
            temporaries.append(temporary)
        yield sinks
        for sink, temporary, path in zip(sinks, temporaries, paths, strict=True):
            sink.sync()
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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` with the sha256 of its canonical form under `checksum`."""
    text = json.dumps(content, default=str, ensure_ascii=False)
    plain = json.loads(text.encode(errors="replace"))  # a name on disk need not be UTF-8
    plain["checksum"] = sha256(_canonical(plain))
    write_atomically(path, _rendered(plain))


def _rendered(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def sha256(content: bytes) -> str:
    """Return the hexadecimal sha256 of `content`."""
    return hashlib.sha256(content).hexdigest()


def open_handle(path: Path, flags: int) -> int:
    """Return a handle of a regular file; a pipe or a device could block or never end.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    CorruptRecordError
        If it is a link, a folder, a pipe, a socket or a device.
    """
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise CorruptRecordError(f"{path}: is {kind_of(path)}; must be a file") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise CorruptRecordError(f"{path}: is {kind_of(path)}; must be a file")
    return handle


KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def kind_of(path: Path) -> str:
    """Return what lies at `path`: a file, a link, a folder, ...; "nothing" if nothing does."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError:
        return "out of reach"
    if stat.S_ISREG(mode):
        return "a file"
    return next((kind for holds, kind in KINDS if holds(mode)), "a device")


def open_regular(path: Path, limit: int) -> io.BufferedReader:
    """Open a regular file of at most `limit` bytes for reading.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    CorruptRecordError
        If it is not a regular file, or is larger.
    """
    stream = os.fdopen(open_handle(path, os.O_RDONLY), "rb")
    size = os.fstat(stream.fileno()).st_size
    if size > limit:
        stream.close()
        raise CorruptRecordError(f"{path}: has {size} bytes; must have at most {limit}")
    return stream


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """Return the content of a JSON file of a record.

    Raises
    ------
    CorruptRecordError
        If it is not a regular file, is too large, cannot be parsed or has a wrong checksum.
    """
    with open_regular(path, limit) as stream:
        raw = stream.read(limit)
    try:
        content = json.loads(raw, parse_constant=_refuse_constant)
        rendered = _rendered(content)
        stated = content.pop("checksum")
        canonical = _canonical(content)
        if b"\\ud" in raw:
            json.dumps(content, ensure_ascii=False).encode()  # half a character cannot be printed
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptRecordError(f"{path}: not a record ({type(error).__name__})") from error
    if stated != sha256(canonical):
        raise CorruptRecordError(f"{path}: its checksum does not match its content")
    if rendered != raw:
        raise CorruptRecordError(f"{path}: its bytes differ from those that were written")
    return dict(content)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def verify_file(path: Path, stated: str) -> None:
    """Raise CorruptRecordError if the file is missing or its sha256 is not `stated`."""
    with _opened(path) as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != stated:
        raise CorruptRecordError(f"{path}: its sha256 is not the one recorded")


def read_verified(path: Path, stated: str, limit: int) -> bytes:
    """Return the bytes of a file of at most `limit` bytes whose sha256 is `stated`.

    Raises
    ------
    CorruptRecordError
        If the file is missing, larger, or differs.
    """
    with _opened(path, limit) as stream:
        content = stream.read()
    if sha256(content) != stated:
        raise CorruptRecordError(f"{path}: its sha256 is not the one recorded")
    return content


def _opened(path: Path, limit: int = MAX_TABLE_BYTES) -> io.BufferedReader:
    try:
        return open_regular(path, limit)
    except FileNotFoundError as error:
        raise CorruptRecordError(f"{path}: missing") from error
