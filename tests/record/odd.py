"""Odd records: a sound sweep, and what someone may put in the place of one of its runs."""

import hashlib
import io
import json
import os
import shutil
import signal
import socket
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.config.identity import run_name
from attnsvm.record import RUN_FILE
from attnsvm.record.files import checksum_of, rendered
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from tests.faults import configs, prepared
from tests.quick import beside


def sound_sweep(folder: Path, count: int = 3) -> list[str]:
    """Write a sweep of complete runs; return the names of their folders."""
    cells = configs(count)
    names = [run_name(config) for config in cells]
    for name, config in zip(names, cells, strict=True):
        (folder / name).mkdir(parents=True)
        write(folder / name, [prepared(config)], provenance(config, ["a=1"]))
    record.write_plan(folder, {name: ["a=1"] for name in names})
    return names


@contextmanager
def deadline(seconds: int = 60) -> Iterator[None]:
    """Raise TimeoutError in a block that hangs."""

    def told(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, told)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def lines_of(
    main: Callable[[list[str]], int], sweep: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    """Return exit code and output of a command; a hang is an error."""
    capsys.readouterr()
    with deadline():
        code = main([str(sweep)])
    told = capsys.readouterr()
    lines = (told.out + told.err).splitlines()
    assert all(line.isprintable() for line in lines)
    return code, lines


def with_checksum(content: dict[str, Any]) -> bytes:
    """Return a JSON file with a valid checksum, also of what `write_json` never writes."""
    return rendered({**content, "checksum": checksum_of(content)})


REMOVED = object()


def with_field(run: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a copy of the content of a `run.json` with another value of a field, `config/head`."""
    copy = json.loads(json.dumps(run))
    *above, last = name.split("/")
    place = copy
    for part in above:
        place = place[part]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return copy


LISTED = beside(__file__)
HUGE = ("config/trials", "config/optimizer/lr", "timings_s/svm")
ODD_FIELDS: list[tuple[str, Any]] = [
    *((name, value) for name, values in LISTED["odd"].items() for value in values),
    *((name, 10**400) for name in HUGE), ("statuses", {"ok": 10**400}), ("config/data/n", 10**30),
    ("timings_s", dict.fromkeys(map(str, range(1001)), 1.0)),
    ("config", json.loads("[" * 400 + "]" * 400)),
]  # fmt: skip
"""Fields of a `run.json` and values that none has."""

OTHER_VERSIONS = [*LISTED["unknown"].items(), *((name, REMOVED) for name in LISTED["missing"])]
"""Fields of the config that another version of the schema has or lacks."""

RAW = {
    "empty": b"",
    "null": b"null",
    "list": b"[]",
    "number": b"3",
    "word": b'"x"',
    "bytes": b"\xff\xfe\x00\x01",
    "zeros": bytes(1000),
    "nan": b'{"checksum": "a", "state": NaN}',
    "huge number": b'{"checksum": "a", "state": ' + b"9" * 5000 + b"}",
    "deep list": b"[" * 200_000,
    "deep object": b'{"a":' * 200_000,
    "escapes": b'{"state": "\x1b[2J"}',
}
"""Files that are no record."""


def _a_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _a_full_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("mine")


PLACED: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "full folder": _a_full_folder,
    "socket": _a_socket,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a folder": lambda path: path.symlink_to("/"),
}


def place(path: Path, kind: str) -> None:
    """Put something else than a file at `path`."""
    path.unlink(missing_ok=True)
    PLACED[kind](path)


def remove(path: Path) -> None:
    """Remove what lies at `path`."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of a run, and its checksum in `run.json`."""
    (folder / name).write_bytes(content)
    run = record.read_json(folder / RUN_FILE)
    files = {**run["files"], name: hashlib.sha256(content).hexdigest()}
    record.write_json(folder / RUN_FILE, {**run, "files": files})


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _typed(name: str, values: Any) -> Callable[[pa.Table], pa.Table]:
    def edit(table: pa.Table) -> pa.Table:
        return table.set_column(table.schema.get_field_index(name), name, values(len(table)))

    return edit


Edit = Callable[[pa.Table], pa.Table]
ODD_TRIALS: dict[str, Edit] = {
    "column missing": lambda t: t.drop_columns(["convergence"]),
    "status missing": lambda t: t.drop_columns(["status"]),
    "column unknown": lambda t: t.append_column("mine", pa.array([1] * len(t))),
    "column twice": lambda t: t.append_column("risk", t["risk"]),
    "words": _typed("risk", lambda n: pa.array(["a"] * n)),
    "numbers": _typed("status", lambda n: pa.array([1.0] * n)),
    "lists": _typed("risk", lambda n: pa.array([[1.0]] * n)),
    "objects": _typed("status", lambda n: pa.array([{"a": 1}] * n)),
    "times": _typed("risk", lambda n: pa.array([0] * n, pa.timestamp("s"))),
    "nothing": _typed("risk", pa.nulls),
    "no seed": _typed("seed", lambda n: pa.nulls(n, pa.int64())),
    "no status": _typed("status", lambda n: pa.nulls(n, pa.large_string())),
    "seeds equal": _typed("seed", lambda n: pa.array([0] * n)),
    "large seeds": _typed("seed", lambda n: pa.array([2.0**60] * n)),
    "other status": _typed("status", lambda n: pa.array(["ok"] * n, pa.large_string())),
    "fewer rows": lambda t: t[:1],
    "no rows": lambda t: t[:0],
    "more rows": lambda t: pa.concat_tables([t, t]),
    "no columns": lambda t: t.select([]),
}
ODD_WORDS = {"escapes": "\x1b[2J", "not UTF-8": b"\xff\xfe", "lines": "a\nb", "long": "x" * 101}
"""What no status and no quantity is; the reason of an instance may be any text."""


def of_words(name: str, word: str | bytes) -> Edit:
    """Return the edit that puts a word, UTF-8 or not, into every row of a column."""
    raw = word if isinstance(word, bytes) else word.encode()
    return _typed(name, lambda n: pa.array([raw] * n, pa.large_binary()).view(pa.large_string()))


def many(table: pa.Table, rows: int, groups: int, compression: str = "snappy") -> bytes:
    """Return a small file of many equal rows, as only one is stored."""
    sink = io.BytesIO()
    one = table[:1].take(pa.array([0] * rows))
    with pq.ParquetWriter(sink, table.schema, compression=compression) as writer:
        for _ in range(groups):
            writer.write_table(one, rows)
    return sink.getvalue()


ODD_HISTORY: dict[str, Edit] = {
    "column missing": lambda t: t.drop_columns(["value"]),
    "column unknown": lambda t: t.append_column("mine", pa.array([1] * len(t))),
    "words": _typed("value", lambda n: pa.array(["a"] * n)),
    "step of words": _typed("step", lambda n: pa.array(["a"] * n)),
    "numbers": _typed("quantity", lambda n: pa.array([1] * n)),
    "objects": _typed("quantity", lambda n: pa.array([{"a": 1}] * n)),
    "other seeds": _typed("seed", lambda n: pa.array([77] * n)),
    "no quantity": _typed("quantity", lambda n: pa.nulls(n, pa.large_string())),
}


def npy(shape: str, descr: str = "'<f8'", data: bytes = b"") -> bytes:
    """Return an .npy file whose header claims `shape`."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    text = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def npz(*members: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return sink.getvalue()


def _claiming(size: int) -> bytes:
    """Return an archive whose directory claims `size` bytes for an array."""
    content = bytearray(npz(("W.npy", npy("(1,)", data=bytes(8)))))
    place = content.rindex(b"PK\x01\x02") + 24
    content[place : place + 4] = size.to_bytes(4, "little")
    return bytes(content)


def _encrypted() -> bytes:
    content = bytearray(npz(("W.npy", npy("(1,)", data=bytes(8)))))
    for start in (content.index(b"PK\x03\x04") + 6, content.rindex(b"PK\x01\x02") + 8):
        content[start] |= 1
    return bytes(content)


def _pickled() -> bytes:
    sink = io.BytesIO()
    np.savez(sink, W=np.array([{}], dtype=object))
    return sink.getvalue()


ONE = npy("(1,)", data=bytes(8))
ODD_ARRAYS = {
    "4 x 11000 x 11000": npz(("W.npy", npy("(4, 11000, 11000)", data=bytes(64)))),
    "10^30": npz(("W.npy", npy(f"({10**30},)", data=bytes(64)))),
    "10^30 x 0": npz(("W.npy", npy(f"({10**30}, 0)", data=bytes(8)))),
    "negative": npz(("W.npy", npy("(-1,)", data=bytes(8)))),
    "negative twice": npz(("W.npy", npy("(-1, -1)", data=bytes(8)))),
    "shape of words": npz(("W.npy", npy("('a',)", data=bytes(8)))),
    "directory claims 4 GB": _claiming(2**32 - 2),
    "directory claims 0": _claiming(0),
    "encrypted": _encrypted(),
    "objects": _pickled(),
    "object header": npz(("W.npy", npy("(1,)", "'|O'", bytes(8)))),
    "records": npz(("W.npy", npy("(1,)", "[('a', '<f8')]", bytes(8)))),
    "times": npz(("W.npy", npy("(1,)", "'<M8[s]'", bytes(8)))),
    "code": npz(("W.npy", npy("(1,)", "__import__('os').abort()", bytes(8)))),
    "absolute": npz(("/tmp/W.npy", ONE)),
    "above": npz(("../W.npy", ONE)),
    "no array": npz(("W.txt", b"hello")),
    "no name": npz((".npy", ONE)),
    "escapes": npz(("\x1b[2J.npy", ONE)),
    "lzma": npz(("W.npy", ONE), compression=zipfile.ZIP_LZMA),
    "bzip2": npz(("W.npy", ONE), compression=zipfile.ZIP_BZIP2),
    "many": npz(*((f"a{k}.npy", ONE) for k in range(1001))),
    "no archive": b"hello",
    "nothing": b"",
    "npy": ONE,
}
