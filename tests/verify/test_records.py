"""The stored records of the documentation are proved as they stand."""

from pathlib import Path

import pytest

from attnsvm.verify.command import main

RECORDS = Path(__file__).parents[2] / "docs" / "records"
FOLDERS = sorted(path.parent for path in RECORDS.rglob("sweep.json"))


def test_every_experiment_has_a_stored_record():
    named = {path.stem for path in (RECORDS.parents[1] / "conf" / "sweep").glob("*.yaml")}
    assert {folder.name for folder in FOLDERS if folder.parent == RECORDS} == named


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_stored_record_is_proved(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert " proved, 0 refused" in printed
    assert "corrupt" not in printed
