"""An odd plan, name or thing in a sweep's folder: named, not followed, and the runs are told."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from attnsvm import experiment, record
from attnsvm.cli.job import perform
from attnsvm.config import ConfigError
from attnsvm.config.identity import run_name
from attnsvm.record import LOCK_FILE, PLAN_FILE, RUN_FILE, TABLES, CorruptRecordError, write_plan
from attnsvm.record.plan import MAX_RUNS
from attnsvm.sweeps import status
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.report import command as report
from attnsvm.verify.command import main as verify
from tests.command import SMALL, attnsvm, ran
from tests.config.test_config import composed
from tests.faults import configs, prepared, refusing
from tests.record.odd import PLACED, RAW, deadline, lines_of, place, remove, with_checksum

OUTSIDE = ("../x", "..", "", "/etc/x", "./x", "x\n/y")
"""Names of runs that lead outside."""

PLANS = [{}, {"runs": ["a"]}, {"runs": {"a": []}, "fields": {"shared": {}, "own": {"a": None}}}]


def test_a_plan_of_another_form_and_names_that_lead_outside(sweep, tmp_path):
    plans = {str(content): with_checksum(content) for content in PLANS}
    plans |= {name: with_checksum({"runs": {name: []}}) for name in OUTSIDE}
    for what, content in (plans | RAW).items():
        (sweep / PLAN_FILE).write_bytes(content)
        with deadline(), pytest.raises(CorruptRecordError, match=f"{PLAN_FILE}: ") as refused:
            record.read_plan(sweep)
        assert ("must be the name of a folder" in str(refused.value)) or what not in OUTSIDE, what
    with pytest.raises(ConfigError, match=f"must be at most {MAX_RUNS}"):
        write_plan(tmp_path / "many", {str(k): [] for k in range(MAX_RUNS + 1)})
    with pytest.raises(ConfigError, match=r"1 runs in one sweep: .* must have at most"):
        write_plan(tmp_path / "long", {"a": ["x" * 2**26]})
    assert not [*tmp_path.glob("many/*"), *tmp_path.glob("long/*")]


@pytest.mark.parametrize("kind", [*PLACED, "changed", "unreadable"])
def test_a_plan_that_cannot_be_used_is_named_and_hides_no_run(
    kind, sweep, tmp_path, capsys, monkeypatch
):
    changed = (sweep / PLAN_FILE).read_bytes().replace(b"a=1", b"a=2")  # and its checksum is not
    if kind == "unreadable":
        refusing(monkeypatch, PLAN_FILE, errno.EIO)
    elif kind == "changed":
        (sweep / PLAN_FILE).write_bytes(changed)
    else:
        place(sweep / PLAN_FILE, kind)
        with pytest.raises(CorruptRecordError, match=rf"{PLAN_FILE}: is .*; must be a file"):
            write_plan(sweep, {"a": []})
    state = "unreadable" if kind == "unreadable" else "corrupt"
    code, lines = lines_of(status.main, sweep, capsys)
    assert code == 1
    assert lines[0].startswith(f"{state}  {PLAN_FILE}  ")
    assert f"4 runs: 3 done, 1 {state}" in lines
    frames = load(sweep)
    assert frames.runs["state"].tolist() == [state, *["done"] * 3]
    assert frames.incomplete["run"].tolist() == [PLAN_FILE]
    assert len(frames.trials) == 9
    assert frames.command == ""
    if kind == "changed":
        runs = load(sweep, shutil.copytree(sweep, tmp_path / "other")).runs
        assert (runs["run"].nunique(), (runs["state"] == "corrupt").sum()) == (8, 2)


NAMES = [b"\x1b[2J\r\n", "\u202egnp\u2028".encode(), b"\xff\xfe", b"<script>alert(1)<script>"]


def test_names_that_send_commands_to_a_terminal(sweep, capsys):
    """Without a plan the names are those of the folders on disk."""
    (sweep / PLAN_FILE).unlink()
    for name in NAMES:
        odd = os.path.join(os.fsencode(sweep), name)
        os.mkdir(odd)
        os.mkfifo(os.path.join(odd, b"run.json"))
    code, lines = lines_of(status.main, sweep, capsys)
    count = len(NAMES)
    assert (code, lines[-1]) == (1, f"{count + 3} runs: 3 done, {count} corrupt")
    assert len(lines) == count + 1
    code, lines = lines_of(report.main, sweep, capsys)
    assert code == 1
    assert len([line for line in lines if line.startswith("corrupt: ")]) == count
    page = (sweep / "report.html").read_text()
    assert not {"\x1b", "\u202e", "\u2028"} & set(page)
    assert "<script>alert" not in page


@pytest.mark.parametrize("tag", [*OUTSIDE[1:5], "a" * 300, "é", "-rf", "$(id)"])
def test_a_run_is_named_within_its_sweep_whatever_its_config_says(tag):
    config = composed("data.n=2")
    config.head._target_, config.sweep = f"attnsvm.{tag}", tag
    name = run_name(config)
    assert len(name) < 120
    assert re.fullmatch(r"\w[\w.-]*", name, re.ASCII)


def test_links_in_the_place_of_figures_and_tables_are_not_followed(sweep, tmp_path, capsys):
    (tmp_path / "outside").mkdir()
    for name in ("tables", "figures"):
        (sweep / name).symlink_to(tmp_path / "outside")
        code, lines = lines_of(report.main, sweep, capsys)
        assert code == 2
        assert f"/{name}: is a link; must be a folder)" in lines[-1]
        (sweep / name).unlink()
        shutil.rmtree(sweep / "tables", ignore_errors=True)
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("main", [status.main, report.main, verify])
def test_a_path_that_is_no_folder_is_refused(main, tmp_path, capsys, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nowhere", "loop", "x" * 5000):
        assert main([str(tmp_path / name)]) == 2
        assert "no such folder; must have run.json" in capsys.readouterr().err
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path}: must be a folder that can be read" in capsys.readouterr().err


@pytest.mark.parametrize("link", ["run", ".hydra", ".lock", "trials.parquet"])
def test_links_are_not_followed_out_of_the_folder(link, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "parts", lambda config: [prepared(config)])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    folder = tmp_path / "run"
    if link == "run":
        folder.symlink_to(outside)
    else:
        folder.mkdir()
        (folder / link).symlink_to(outside if link == ".hydra" else outside / "file")
    with pytest.raises(CorruptRecordError, match="link"):
        perform(configs(1)[0], folder, [], in_sweep=True)
    assert [p.name for p in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine"


def test_only_the_runs_whose_folder_can_be_written_are_begun(tmp_path):
    for name in ("sound", "log", "hydra"):
        (tmp_path / name).mkdir()
    (tmp_path / "sound" / "notes").symlink_to(tmp_path)  # no run writes it
    os.mkfifo(tmp_path / "log" / "attnsvm.log")
    (tmp_path / "hydra" / ".hydra").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "sound")
    reasons = {
        "log": "attnsvm.log: is a pipe; must be a file",
        "hydra": ".hydra: is a link; must be a folder",
        "link": "link: is a link; must be a folder",
    }
    for name, reason in reasons.items():
        assert record.obstacle(tmp_path / name).endswith(reason)
    cells = {name: [] for name in ("sound", "missing", *reasons)}
    assert list(record.unobstructed(tmp_path, cells)) == ["sound", "missing"]


REPLACED = PLACED | {
    "link out": lambda path: path.symlink_to("/etc/passwd"),
    "empty": Path.touch,
    "zeros": lambda path: (path.touch(), os.truncate(path, 2**30)),
    "unreadable": lambda path: (path.write_text("x"), path.chmod(0)),
}


FILES = (".hydra", "attnsvm.log", RUN_FILE, *TABLES, LOCK_FILE, ".hydra/config.yaml")
FILES += (".hydra/hydra.yaml", ".hydra/overrides.yaml")
EVERY = [(mode, kind, FILES) for mode in ("-m", "") for kind in REPLACED]


@pytest.mark.parametrize(
    ("mode", "kind", "files"),
    [("", "pipe", FILES[:2]), *(pytest.param(*item, marks=pytest.mark.faults) for item in EVERY)],
)
def test_every_command_answers_where_one_file_is_replaced(mode, kind, files, tmp_path):
    place_of = "hydra.sweep.dir=a" if mode else "hydra.run.dir=a"
    words = [*mode.split(), *SMALL, "mixed_code=true", place_of]
    ran(*words, cwd=tmp_path)
    sound = Path(shutil.copytree(tmp_path / "a", tmp_path / "sound", symlinks=True))
    (run,) = (path.parent.relative_to(sound) for path in sound.rglob(RUN_FILE))
    for file in files:
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(sound, tmp_path / "a", symlinks=True)
        path = tmp_path / "a" / run / file
        if path.exists():
            remove(path)
        REPLACED[kind](path)
        for command in ("attnsvm-status", "attnsvm-report", "attnsvm-verify", "attnsvm"):
            arguments = words if command == "attnsvm" else ["a"]
            done = attnsvm(*arguments, cwd=tmp_path, command=command)
            text = done.stdout + done.stderr
            assert done.returncode == 0 or path.name in text, (command, file, text)
            assert not any(word in text for word in ("Traceback", "Errno")), (command, file, text)


@pytest.mark.full
def test_a_sweep_goes_on_where_runs_are_odd(tmp_path):
    grid = ["-m", *SMALL, "seed=0,10,20,30,40"]
    ran(*grid, cwd=tmp_path)
    for path in tmp_path.rglob("*"):
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".joblib")
        assert not (path.is_file() and path.read_bytes().startswith(b"\x80"))  # a pickle
    runs = sorted(path.parent for path in (tmp_path / "multirun").glob(f"*/*/{RUN_FILE}"))
    for k in (0, 3, 4):
        (runs[k] / RUN_FILE).unlink()
    place(runs[0] / LOCK_FILE, "pipe")
    place(runs[1] / RUN_FILE, "folder")
    place(runs[2] / LOCK_FILE, "folder")  # beside a record that is done
    place(runs[4] / ".hydra/config.yaml", "pipe")  # Hydra would write to it and wait for ever
    plan = runs[0].parent / PLAN_FILE
    (plan.parent / ".x.tmp").mkdir()
    resumed = ran(*grid, cwd=tmp_path, code=1)
    assert "Traceback" not in resumed.stderr
    summary = resumed.stderr[resumed.stderr.rindex("attnsvm: ") :].splitlines()
    assert "3 corrupt of 5 runs" in summary[0]
    assert len(summary) == 4
    for words in (".lock: is a pipe", "run.json: is a folder", ".hydra/config.yaml: is a pipe"):
        assert f"{words}; must be a file" in resumed.stderr
    assert [record.run_state(runs[k]).state for k in (2, 3)] == ["done"] * 2
    place(plan, "folder")
    refused = ran(*grid, cwd=tmp_path, code=2)
    assert refused.stderr.splitlines()[-1].endswith("sweep.json: is a folder; must be a file")
