"""Files that are there whole or not at all, and that are read only as they were written."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Buffer


class CorruptRecordError(RuntimeError):
    """A file is not what was written: it is named and left out, never read."""


class Sink(io.RawIOBase):
    """A file that is written once, from its beginning to its end, and its sha256."""

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
        """Hand all bytes to the system."""
        if not self._file.closed:
            self._file.flush()

    def sync(self) -> None:
        """Return when all bytes are on the disk."""
        self.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, whatever becomes of its last bytes."""
        try:
            self._file.close()
        finally:
            super().close()

    def sha256(self) -> str:
        """Return the hexadecimal sha256 of what was written."""
        return self._digest.hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content` so that a reader sees the old file or the new, whole."""
    with replacing([path]) as (sink,):
        sink.write(content)


@contextmanager
def replacing(paths: Sequence[Path]) -> Iterator[list[Sink]]:
    """Yield a file for each of `paths`, which replace them one by one when the block has ended.

    A reader sees the old file or the new, whole; an error in the block leaves the old ones.
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
            return handle, name  # a file system without locks: `remove_orphans` leaves it alone
        if os.fstat(handle).st_nlink:  # else taken for an orphan before it was locked
            return handle, name
        os.close(handle)


def remove_orphans(folder: Path) -> None:
    """Remove the temporary files in `folder` whose writer is dead."""
    for path in folder.glob(".*.tmp"):
        try:
            handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:
            pass  # its writer lives, or locks are not to be had here
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
    plain = json.loads(json.dumps(content, default=str))
    plain["checksum"] = sha256(_canonical(plain))
    write_atomically(path, _rendered(plain))


def _rendered(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def sha256(content: bytes) -> str:
    """Return the hexadecimal sha256 of `content`."""
    return hashlib.sha256(content).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file of a record.

    Raises
    ------
    CorruptRecordError
        If it cannot be parsed or its checksum does not fit.
    """
    raw = path.read_bytes()
    try:
        content = json.loads(raw)
        rendered = _rendered(content)
        claimed = content.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptRecordError(f"{path}: not a record ({type(error).__name__})") from error
    if claimed != sha256(_canonical(content)):
        raise CorruptRecordError(f"{path}: its checksum does not fit its content")
    if rendered != raw:
        raise CorruptRecordError(f"{path}: its bytes are not those that were written")
    return dict(content)


def verify_file(path: Path, claimed: str) -> None:
    """Raise CorruptRecordError if the file is missing or its sha256 is not `claimed`."""
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise CorruptRecordError(f"{path}: missing") from error
    if found != claimed:
        raise CorruptRecordError(f"{path}: its sha256 is not the one recorded")


def read_verified(path: Path, claimed: str) -> bytes:
    """Return the bytes of a file whose sha256 is `claimed`.

    Raises
    ------
    CorruptRecordError
        If the file is missing or differs.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise CorruptRecordError(f"{path}: missing") from error
    if sha256(content) != claimed:
        raise CorruptRecordError(f"{path}: its sha256 is not the one recorded")
    return content
