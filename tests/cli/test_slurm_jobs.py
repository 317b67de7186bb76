"""Following SLURM's jobs, with a queue that is made up; on a real SLURM: tests/slurm."""

from __future__ import annotations

import os

from hydra_plugins.attnsvm_launcher.slurm import note, noted


def test_a_note_tells_who_runs_which_cells_and_an_odd_one_hides_no_other(tmp_path, caplog):
    for cells in ({"7_0": ["a", "b"], "7_1": ["c"]}, {"9": ["d"]}, {}):
        note(tmp_path, cells)
    ours = {"a": "7_0", "b": "7_0", "c": "7_1", "d": "9"}
    assert noted(tmp_path, ["7_0", "7_1", "8", "9"]) == ours
    assert noted(tmp_path, ["7_1", "8"]) == {"c": "7_1"}  # the others are over
    assert noted(tmp_path, []) == {}
    (tmp_path / "8.json").write_text("{")
    os.mkfifo(tmp_path / "10.json")
    (tmp_path / "11.json").mkdir()
    assert noted(tmp_path, ["8", "9", "10", "11"]) == {"d": "9"}
    assert len(caplog.records) == 3
