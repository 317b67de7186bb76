"""A record as one file: what is packed is unpacked, and nothing else than a record is."""

from pathlib import Path

import pytest

from attnsvm.record import CorruptRecordError
from attnsvm.record import archive as archives
from attnsvm.record.archive import pack, unpacked

FILES = {
    "sweep/sweep.json": b"{}",
    "sweep/run/run.json": b"{1}",
    "sweep/run/solutions.npz": b"\0\1" * 500,
}


def files_below(folder: Path) -> dict[str, bytes]:
    content = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in content}


def test_a_record_is_packed_without_logs_and_comes_back_equal_if_it_is_not_too_large(
    tmp_path, monkeypatch
):
    others = {"sweep/run/log.txt": b"?", "sweep/run/.hydra/x.json": b"?"}
    for name, content in {**FILES, **others}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "sweep/elsewhere.json").symlink_to(__file__)
    path = pack(tmp_path / "sweep", tmp_path)
    first = path.read_bytes()
    with unpacked(path) as folder:
        assert files_below(folder) == FILES
    assert not folder.exists()
    assert pack(tmp_path / "sweep", tmp_path).read_bytes() == first
    for most, value in (("MOST_FILES", 2), ("MOST_BYTES", 1000)):
        with monkeypatch.context() as patched:
            patched.setattr(archives, most, value)
            with pytest.raises(CorruptRecordError, match="files of"):
                unpacked(path).__enter__()


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_archive_is_refused(content, tmp_path):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(CorruptRecordError, match="must be a zip archive"):
        unpacked(tmp_path / "a.zip").__enter__()
