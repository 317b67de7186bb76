"""Odd records: a sound sweep, and what may lie in the place of one of its files."""

import hashlib
import io
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsvm import record
from attnsvm.config.identity import run_name
from attnsvm.record import RUN_FILE, TABLES
from attnsvm.record.files import checksum_of, rendered
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from tests.faults import configs, prepared


def sound_sweep(folder: Path) -> None:
    """Write a sweep of three complete runs."""
    cells = {run_name(config): config for config in configs()}
    for name, config in cells.items():
        (folder / name).mkdir(parents=True)
        write(folder / name, [prepared(config)], provenance(config, ["a=1"]))
    record.write_plan(folder, {name: ["a=1"] for name in cells})


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of every record below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.name in (RUN_FILE, *TABLES))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


@contextmanager
def deadline(seconds: int = 60) -> Iterator[None]:
    """Raise TimeoutError in a block that hangs."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
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


def rewritten(run: Path, **fields: Any) -> None:
    """Write `run.json` again with other values of fields, `config__head__lam`; None removes one."""
    content = json.loads((run / RUN_FILE).read_text())
    del content["checksum"]
    for name, value in fields.items():
        *above, last = name.split("__")
        place = content
        for part in above:
            place = place[part]
        place[last] = value
        if value is None:
            del place[last]
    (run / RUN_FILE).write_bytes(with_checksum(content))


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
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    PLACED[kind](path)


def change_table(run: Path, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Change the trials of a run, and their checksum in `run.json`."""
    sink = io.BytesIO()
    pq.write_table(edit(pq.read_table(run / TABLES[0])), sink)
    replace_file(run, TABLES[0], sink.getvalue())


def replace_file(run: Path, name: str, content: bytes) -> None:
    """Replace a file of a run, and its checksum in `run.json`."""
    (run / name).write_bytes(content)
    stored = record.read_json(run / RUN_FILE)["files"]
    rewritten(run, files={**stored, name: hashlib.sha256(content).hexdigest()})
