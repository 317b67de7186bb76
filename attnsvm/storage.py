"""Files that are there whole or not at all, and that are read only as they were written."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class CorruptRecordError(RuntimeError):
    """A file is not what was written: it is named and left out, never read."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content` so that a reader sees the old file or the new, whole."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


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
    body = dict(content)
    body["checksum"] = sha256(_canonical(body))
    write_atomically(path, json.dumps(body, indent=1, sort_keys=True, default=str).encode())


def _canonical(content: Mapping[str, Any]) -> bytes:
    plain = json.loads(json.dumps(content, default=str))
    return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()


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
    try:
        content = json.loads(path.read_bytes())
        claimed = content.pop("checksum")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CorruptRecordError(f"{path}: not a record ({type(error).__name__})") from error
    if claimed != sha256(_canonical(content)):
        raise CorruptRecordError(f"{path}: its checksum does not fit its content")
    return dict(content)


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
