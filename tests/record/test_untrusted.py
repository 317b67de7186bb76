"""Names and links do not lead out of a sweep's folder, and nothing in it is pickled."""

from __future__ import annotations

import os

import pytest

from attnsvm import experiment
from attnsvm.cli.job import perform
from attnsvm.config.identity import run_name
from attnsvm.record import CorruptRecordError, obstacle, planned, unobstructed, write_json
from attnsvm.sweeps.aggregate import load
from tests.command import SMALL, attnsvm
from tests.config.test_config import composed
from tests.faults import configs, prepared

NAMES = [
    "../x", "../../x", "..", ".", "", "/etc/x", "/tmp/x", "a/b", "a/../../x", "./x", "~/x", "x\0y",
    "\0", "x/", "//x", "x\n/y", "..%2fx/../y", "\\..\\x/", "$HOME/x", "C:/x", "x/.",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_plan_names_no_folder_outside(name, tmp_path):
    write_json(tmp_path / "sweep.json", {"command": [], "runs": {name: []}})
    with pytest.raises(CorruptRecordError, match="must be the name of a folder"):
        planned(tmp_path)
    assert load(tmp_path).runs["state"].tolist() == ["corrupt"]


TAGS = [*NAMES, "a" * 300, "é", "名", "-rf", "x;rm", "`id`", "$(id)", "x y", ":", "*", "?", "|"]


@pytest.mark.parametrize("tag", [tag for tag in TAGS if tag], ids=repr)
def test_a_run_is_named_within_its_sweep_whatever_its_config_says(tag):
    config = composed("data.n=2")
    config.head._target_ = f"attnsvm.{tag}"
    config.sweep = tag
    name = run_name(config)
    assert len(name) < 120
    assert os.path.basename(name) == name
    assert set(name) <= set(map(chr, range(33, 127))) - set("/\\:*?|`$;\"'<>()& ")
    assert not name.startswith((".", "-"))


@pytest.mark.parametrize("link", ["run", ".hydra", ".lock", "run.json", "trials.parquet"])
def test_links_are_not_followed_out_of_the_folder(link, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "run", prepared)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    folder = tmp_path / "run"
    if link == "run":
        folder.symlink_to(outside)
    else:
        folder.mkdir()
        (folder / link).symlink_to(outside if link == ".hydra" else outside / "file")
    try:
        perform(configs(1)[0], folder, [], in_sweep=True)
    except CorruptRecordError as error:
        assert "link" in str(error)  # noqa: PT017
    assert [p.name for p in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine"


def test_only_the_runs_whose_folder_can_be_written_are_begun(tmp_path):
    for name in ("sound", "own", "log", "hydra", "yaml"):
        (tmp_path / name / ".hydra").mkdir(parents=True)
        (tmp_path / name / "attnsvm.log").write_text("")
    (tmp_path / "own" / "notes").symlink_to(tmp_path)  # no run writes it
    (tmp_path / "log" / "attnsvm.log").unlink()
    os.mkfifo(tmp_path / "log" / "attnsvm.log")
    (tmp_path / "hydra" / ".hydra").rmdir()
    (tmp_path / "hydra" / ".hydra").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "yaml" / ".hydra" / "config.yaml")
    (tmp_path / "link").symlink_to(tmp_path / "sound")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    told = {
        "log": "attnsvm.log: is a pipe; must be a file",
        "hydra": ".hydra: is a link; must be a folder",
        "yaml": ".hydra/config.yaml: is a pipe; must be a file",
        "link": "link: is a link; must be a folder",
        "pipe": "pipe: is a pipe; must be a folder",
        "file": "file: is a file; must be a folder",
    }
    for name, reason in told.items():
        assert obstacle(tmp_path / name).endswith(reason)
    cells = {name: [] for name in ("sound", "own", "missing", *told)}
    assert list(unobstructed(tmp_path, cells)) == ["sound", "own", "missing"]


def test_no_pickle_is_written_by_a_sweep(tmp_path):
    done = attnsvm("-m", "seed=0,1", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for path in tmp_path.rglob("*"):
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".joblib")
        if path.is_file():
            assert not path.read_bytes().startswith(b"\x80")
