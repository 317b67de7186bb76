"""A record as one file: what is packed is unpacked, and nothing else than a record is."""

import zipfile
from pathlib import Path

import pytest

from attnsvm.record import CorruptRecordError
from attnsvm.record import archive as archives
from attnsvm.record.archive import pack, unpacked

FILES = {
    "one/sweep.json": b"{}",
    "one/run/run.json": b"{1}",
    "one/run/solutions.npz": b"\0\1" * 500,
}


def packed(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def files_below(folder: Path) -> dict[str, bytes]:
    content = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in content}


def test_a_record_is_packed_without_logs_and_comes_back_equal(tmp_path):
    for name, content in {**FILES, "one/run/log.txt": b"?", "one/run/.hydra/x.json": b"?"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "one/elsewhere.json").symlink_to(__file__)
    path = pack(tmp_path / "one", tmp_path)
    assert path == tmp_path / "one.zip"
    first = path.read_bytes()
    with unpacked(path) as folder:
        assert folder.name == "one"
        assert files_below(folder) == FILES
    assert not folder.exists()
    assert pack(tmp_path / "one", tmp_path).read_bytes() == first


@pytest.mark.parametrize(("most", "value"), [("MOST_FILES", 2), ("MOST_BYTES", 1000)])
def test_a_large_archive_is_refused(most, value, tmp_path, monkeypatch):
    path = packed(tmp_path / "a.zip", FILES)
    with unpacked(path) as folder:
        assert files_below(folder) == FILES
    monkeypatch.setattr(archives, most, value)
    with pytest.raises(CorruptRecordError, match="files of"), unpacked(path):
        pytest.fail("it is unpacked")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_archive_is_refused(content, tmp_path):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(CorruptRecordError, match="must be a zip archive"):
        unpacked(tmp_path / "a.zip").__enter__()
