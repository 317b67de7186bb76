"""Reading of untrusted files: regular, of bounded size, and unchanged, or refused."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MAX_JSON_BYTES = 2**26
"""Largest JSON file that is read, in bytes."""

MAX_TABLE_BYTES = 2**37
"""Largest file of tables or arrays that is read, in bytes: two minutes at 1 GB per second."""

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class CorruptRecordError(RuntimeError):
    """A file differs from what was written: it is reported and not used."""


@contextmanager
def refused(begin: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise CorruptRecordError, its message after `begin`, for these kinds of error too."""
    try:
        yield
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{begin}{error}") from error
    except kinds as error:
        raise CorruptRecordError(f"{begin}{type(error).__name__}: {error}") from error


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


@contextmanager
def verified(path: Path, stated: str, limit: int = MAX_TABLE_BYTES) -> Iterator[io.BufferedReader]:
    """Yield an open file of at most `limit` bytes whose sha256 is `stated`.

    Raises
    ------
    CorruptRecordError
        If the file is missing, larger, or differs.
    """
    try:
        stream = open_regular(path, limit)
    except FileNotFoundError as error:
        raise CorruptRecordError(f"{path}: missing") from error
    with stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != stated:
            raise CorruptRecordError(f"{path}: its sha256 is not the one recorded")
        stream.seek(0)
        yield stream


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
        unchanged = rendered(content) == raw
        stated = content.pop("checksum")
        checksum = checksum_of(content)
        if b"\\ud" in raw:
            json.dumps(content, ensure_ascii=False).encode()  # half a character cannot be printed
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptRecordError(f"{path}: not a record ({type(error).__name__})") from error
    if stated != checksum:
        raise CorruptRecordError(f"{path}: its checksum does not match its content")
    if not unchanged:
        raise CorruptRecordError(f"{path}: its bytes differ from those that were written")
    return dict(content)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def rendered(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file of a record."""
    return json.dumps(content, indent=1, sort_keys=True).encode()


def checksum_of(content: Mapping[str, Any]) -> str:
    """Return the sha256 of the canonical form of a JSON file without its checksum."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def sha256(content: bytes) -> str:
    """Return the hexadecimal sha256 of `content`."""
    return hashlib.sha256(content).hexdigest()


def usable_memory() -> int:
    """Return the bytes of memory of this machine, or those of its control group if less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no control groups, or "max"
        return physical
