"""The files of a record: untrusted when they are read, atomic when they are written.

A file is read if it is regular, of bounded size and unchanged, else it is refused. A reader sees
the complete old or the complete new file, also after a crash.

Times and sizes in words, and text of a record made safe to print.
"""

import errno
import hashlib
import io
import json
import math
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MAX_JSON_BYTES = 2**26
"""Largest JSON file that is read, in bytes."""

MAX_TABLE_BYTES = 2**37
"""Largest file of tables or arrays that is read, in bytes: two minutes at 1 GB per second."""

ORPHAN_S = 600.0
"""Age in seconds of a temporary file whose writer was killed: a write takes less than a second."""

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class CorruptRecordError(RuntimeError):
    """A record cannot be used: it is reported, and its run is in this `state`.

    An error of this class itself: a file differs from what was written.
    """

    state = "corrupt"


class TooLargeError(CorruptRecordError):
    """A file or a table is larger than what is read here; it may be as it was written."""

    state = "too_large"


class OtherVersionError(CorruptRecordError):
    """A record has a form or fields that this version does not know; it may be as it was."""

    state = "other_version"


class UnreadableError(CorruptRecordError):
    """The system cannot read a record now; it may be as it was written."""

    state = "unreadable"


class OtherRunError(CorruptRecordError):
    """A folder holds the record of another run than its name or its command says."""

    state = "other_run"


MALFORMED = (errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EOVERFLOW)
"""Errors of the system to which names, places and sizes in a damaged file lead."""


def unreadable(error: BaseException) -> bool:
    """Whether an error says that the system cannot read now, not that the content is damaged."""
    damaged = (FileNotFoundError, NotADirectoryError)
    system = isinstance(error, OSError) and error.errno not in (None, *MALFORMED)
    return (system and not isinstance(error, damaged)) or isinstance(error, MemoryError)


@contextmanager
def refused(begin: str, *kinds: type[Exception]) -> Iterator[None]:
    """Raise CorruptRecordError for these kinds of error, UnreadableError if the system caused one.

    Their message, and that of every CorruptRecordError, is after `begin`.
    """
    caught: tuple[type[Exception], ...] = (OSError, MemoryError, *kinds)
    try:
        yield
    except CorruptRecordError as error:
        raise type(error)(f"{begin}{error}") from error
    except caught as error:
        if unreadable(error):
            place = begin or f"{getattr(error, 'filename', None) or 'file system'}: "
            raise UnreadableError(f"{place}cannot be read now ({reason_of(error)})") from error
        if not isinstance(error, kinds):
            raise
        raise CorruptRecordError(f"{begin}{type(error).__name__}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return what an error says, without the number and the path of the operating system's."""
    return str(getattr(error, "strerror", None) or error)


KINDS = {"-": "a file", "l": "a link", "d": "a folder", "p": "a pipe", "s": "a socket"}
"""First letter of what `ls -l` prints -> what it is; the others are devices."""


def kind_of(path: Path) -> str:
    """Return what lies at `path`: a file, a link, a folder, ...; "nothing" if nothing does."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError:
        return "out of reach"
    return KINDS.get(stat.filemode(mode)[0], "a device")


def open_handle(path: Path, flags: int) -> int:
    """Return a handle of a regular file; a pipe or a device could block or never end.

    Raises FileNotFoundError, or CorruptRecordError for a link, a folder, a pipe, ...
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
    """Open a regular file of at most `limit` bytes for reading, else raise as `open_handle`."""
    stream = os.fdopen(open_handle(path, os.O_RDONLY), "rb")
    size = os.fstat(stream.fileno()).st_size
    if size > limit:
        stream.close()
        raise TooLargeError(f"{path}: has {size} bytes; must have at most {limit}")
    return stream


@contextmanager
def verified(path: Path, stated: str, limit: int = MAX_TABLE_BYTES) -> Iterator[io.BufferedReader]:
    """Yield an open file of at most `limit` bytes whose sha256 is `stated`.

    Raises CorruptRecordError if it is missing, larger, or differs.
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
    """Return the content of a JSON file of a record: a regular file with the right checksum."""
    with open_regular(path, limit) as stream:
        raw = stream.read(limit)
    try:
        content = json.loads(raw)
        unchanged = rendered(content) == raw
        stated = content.pop("checksum")
        checksum = checksum_of(content)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CorruptRecordError(f"{path}: not a record ({type(error).__name__})") from error
    if stated != checksum:
        raise CorruptRecordError(f"{path}: its checksum does not match its content")
    if not unchanged:
        raise CorruptRecordError(f"{path}: its bytes differ from those that were written")
    return dict(content)


def rendered(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file of a record; ValueError for NaN and Inf."""
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False).encode()


def checksum_of(content: Mapping[str, Any]) -> str:
    """Return the sha256 of the canonical form of a JSON file without its checksum."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def usable_memory() -> int:
    """Return the bytes of memory of this machine, or those of its control group if less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(physical, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no control groups, or "max"
        return physical


# --- writing --------------------------------------------------------------------------------------


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(handle)
        os.umask(mask := os.umask(0))
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    synced(path.parent)


def remove_orphans(folder: Path, older_s: float = ORPHAN_S) -> None:
    """Remove the temporary files in `folder` that are older; their writers were killed."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            if time.time() - path.lstat().st_mtime >= older_s:
                path.unlink()


def synced(path: Path) -> None:
    """Return when what was written to a file, or moved to a folder, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write `content` with the sha256 of its canonical form under `checksum`.

    ValueError if it is larger than a file that is read.
    """
    text = json.dumps(content, default=str, ensure_ascii=False)
    plain = json.loads(text.encode(errors="replace"))  # a name on disk need not be UTF-8
    written = rendered({**plain, "checksum": checksum_of(plain)})
    if len(written) > MAX_JSON_BYTES:
        raise ValueError(f"{path}: {len(written)} bytes; must have at most {MAX_JSON_BYTES}")
    write_atomically(path, written)


def duration(seconds: float) -> str:
    """Return a time in words: 3.2 s, 4 min 10 s, 2 h 5 min; a dash if unknown."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def byte_size(count: float) -> str:
    """Return a number of bytes in words: 512 B, 23.5 GiB, 1.6e+06 PiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} PiB"


def one_line(text: object, mark: str = " ") -> str:
    """Return `text` with `mark` for each line break, control character or invisible character.

    Control characters in untrusted text could send commands to a terminal.
    """
    return "".join(c if c.isprintable() else mark for c in str(text))


def shortened(text: object, length: int = 500) -> str:
    """Return the start of `text` as one line that is safe to print; of an OSError, what it says."""
    if isinstance(text, OSError):
        text = f"{text.filename or 'file system'}: {reason_of(text)}"
    shown = one_line(str(text)[: length + 1])
    return shown if len(shown) <= length else f"{shown[:length]}..."
