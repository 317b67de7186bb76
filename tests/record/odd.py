"""Odd records: a sound sweep, and what someone may put in the place of one of its runs."""

import hashlib
import io
import json
import os
import shutil
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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

    def text(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, text)
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
    text = capsys.readouterr()
    lines = (text.out + text.err).splitlines()
    assert all(line.isprintable() for line in lines)
    return code, lines


def with_checksum(content: dict[str, Any]) -> bytes:
    """Return a JSON file with a valid checksum, also of what `write_json` never writes."""
    return rendered({**content, "checksum": checksum_of(content)})


def with_field(run: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a copy of the content of a `run.json` with another value of a field, `config/head`."""
    copy = json.loads(json.dumps(run))
    *above, last = name.split("/")
    place = copy
    for part in above:
        place = place[part]
    place[last] = value
    return copy


RAW = {
    "empty": b"",
    "list": b"[]",
    "bytes": b"\xff\xfe\x00\x01",
    "nan": b'{"checksum": "a", "state": NaN}',
    "huge number": b'{"checksum": "a", "state": ' + b"9" * 5000 + b"}",
    "deep list": b"[" * 200_000,
    "escapes": b'{"state": "\x1b[2J"}',
}
"""Files that are no record."""

PLACED: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/dev/zero"),
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


def npz(shape: str, descr: str = "'<f8'") -> bytes:
    """Return an archive with an array of 64 bytes whose header claims `shape`."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"
    text = header.ljust(117) + "\n"
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("W.npy", array)
    return sink.getvalue()


ODD_ARRAYS = {
    "larger than the file": npz("(4, 11000, 11000)"),
    "larger than any": npz(f"({10**30},)"),
    "pickle": npz("(1,)", "'|O'"),
    "code": npz("(8,)", "__import__('os').abort()"),
    "no archive": b"hello",
}
