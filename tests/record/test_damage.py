"""What happens to a record is named in a line, hides no other, hangs nothing, and loses nothing."""

import errno
import io
import os
import re
import shutil
import zipfile
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from attnsvm import record
from attnsvm.cli import job
from attnsvm.config import ConfigError
from attnsvm.config.identity import run_name
from attnsvm.record import KEPT, LOCK_FILE, PLAN_FILE, RUN_FILE, TABLES, CorruptRecordError
from attnsvm.record.state import NEW, complete, run_state
from attnsvm.record.stored import StoredRun
from attnsvm.sweeps import status
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.report import command as report
from attnsvm.verify.command import main as verify
from tests.command import SMALL, ran
from tests.config.test_config import composed
from tests.faults import configs, refusing
from tests.quick import quick, quick_rows
from tests.record import odd

CONFIGS = {run_name(config): config for config in configs()}


def edited(**fields):
    return lambda run: odd.rewritten(run, **fields)


def without_record(then):
    return lambda run: ((run / RUN_FILE).unlink(), then(run))


def at(name, kind):
    return lambda run: odd.place(run / name, kind)


def of_another_run(run):
    shutil.copytree(run.parent / list(CONFIGS)[1], run, dirs_exist_ok=True)


UNKNOWN = "unknown field, made by another version of attnsvm"
DAMAGE = {
    "numbers": (edited(numbers=0), "stale", "of version 0"),
    "columns": (edited(columns="0" * 12), "stale", "columns are not those"),
    "format": (edited(format=2), "other_version", "format=2"),
    "field": (
        edited(config__optimizer__warmup=3),
        "other_version",
        f"config.optimizer.warmup: {UNKNOWN}",
    ),
    "group": (edited(options__kernel="w"), "other_version", f"options.kernel: {UNKNOWN}"),
    "group missing": (edited(config__loss=None), "other_version", "made by another version"),
    "option": (edited(options__optimizer="lion"), "other_version", "made by another version"),
    "value": (edited(config__optimizer__schedule="cosine"), "other_version", "schedule=cosine"),
    **{
        f"{name} missing": (edited(**{name: None}), "corrupt", f"{name}: missing")
        for name in ("signature", "files")
    },
    "field of another type": (edited(files=5), "corrupt", "files=5: must be of type dict"),
    "another run": (of_another_run, "other_run", "record of another run"),
    "torn": (lambda run: (run / TABLES[0]).write_bytes(b"PAR1"), "corrupt", "sha256"),
    "gone": (lambda run: (run / TABLES[2]).unlink(), "corrupt", f"{TABLES[2]}: missing"),
    "folder": (
        lambda run: (shutil.rmtree(run), run.write_text("")),
        "corrupt",
        "must be a folder",
    ),
    **{
        f"{RUN_FILE} {what}": (
            partial(lambda run, content: (run / RUN_FILE).write_bytes(content), content=content),
            "corrupt",
            RUN_FILE,
        )
        for what, content in odd.RAW.items()
    },
    **{
        f"{name} {kind}": (at(name, kind), "corrupt", f"{name}: is a {kind}; must be a file")
        for name in (RUN_FILE, *TABLES)
        for kind in odd.PLACED
        if name == RUN_FILE or kind == "pipe"
    },
    **{
        f"{name} {kind}": (without_record(at(name, kind)), "corrupt", f"{name}: is a {kind}; must")
        for name, kind in (("attnsvm.log", "pipe"), (LOCK_FILE, "folder"), (".hydra", "link"))
    },
}
"""Name -> what is done to the folder of a run, its state then, and words of the reason."""


@pytest.mark.parametrize("name", quick(*DAMAGE, count=12))
def test_a_damaged_record_is_named_hides_no_other_and_is_replaced_only_if_it_is_of_no_worth(
    name, sweep, run, runs_made
):
    damage, state, words = DAMAGE[name]
    damage(run)
    before = odd.files(sweep)
    with odd.deadline():
        current, loaded = run_state(run), load(sweep)
        assert current.state == state
        assert loaded.runs["state"].tolist() == [state, "done", "done"]
        for reason in (current.reason, loaded.runs["reason"].iloc[0]):
            assert words in reason
            assert len(reason) <= 503
            assert reason.isprintable()
        assert len(loaded.trials) == (9 if current.finished else 6)
        perform = partial(job.perform, CONFIGS[run.name], run, [])
        if state == "stale":
            assert perform(in_sweep=False) == perform(in_sweep=True) == state
        elif state in KEPT:
            assert perform(in_sweep=True) == state
        if not current.finished and (state in KEPT or record.obstacle(run)):
            with pytest.raises(CorruptRecordError, match=r"must be|nothing was replaced"):
                perform(in_sweep=False)
        elif state == "corrupt":
            assert perform(in_sweep=True) == run_state(run).state == "done"
            return
    assert odd.files(sweep) == before
    assert not runs_made


NOW = (errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.ENOLCK)


@pytest.mark.parametrize(
    ("name", "code"),
    quick_rows(
        *((name, errno.EIO) for name in TABLES), *((RUN_FILE, code) for code in NOW), count=4
    ),
)
def test_a_record_that_cannot_be_read_now_is_kept(name, code, sweep, run, runs_made, monkeypatch):
    before, plan = odd.files(sweep), {name: [] for name in CONFIGS}
    with monkeypatch.context() as patched:
        refusing(patched, name, code)
        assert {run_state(sweep / cell).state for cell in plan} == {"unreadable"}
        with pytest.raises(CorruptRecordError, match="cannot be read now"):
            StoredRun(run).record()
        assert record.begin_sweep(sweep, plan, {}, "") == {}
        assert job.perform(CONFIGS[run.name], run, [], in_sweep=True) == "unreadable"
    assert odd.files(sweep) == before
    assert not runs_made
    assert run_state(run).state == "done"


FAR = "out of reach"


def test_a_new_record_that_cannot_be_read_now_is_kept(run, monkeypatch):
    before = odd.files(run)
    shutil.copytree(run, run.parent / "copy")
    (run.parent / "copy").rename(run / NEW)
    with monkeypatch.context() as patched:
        kinds = {NEW: "a folder"}
        patched.setattr("attnsvm.record.state.kind_of", lambda path: kinds.get(path.name, FAR))
        complete(run)
    assert (run / NEW / RUN_FILE).exists()
    complete(run)
    assert odd.files(run) == before


# --- tables and arrays ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [RUN_FILE, *TABLES])
def test_an_absurd_size_is_refused(name, run):
    os.truncate(run / name, 2**40)  # sparse
    assert "bytes; must have at most" in run_state(run).reason


def test_more_rows_than_there_is_memory(sweep, run, monkeypatch):
    """A table that is too large for this machine is not corrupt."""
    odd.change_table(run, lambda rows: rows.take(pa.array([0] * 10**5)))
    with pytest.raises(record.TooLargeError, match="of memory; must be at most"):
        StoredRun(run).tables(2**21)
    monkeypatch.setattr(record, "usable_memory", lambda: 200)
    runs = load(sweep).incomplete
    assert set(runs["state"]) == {"too_large"}
    assert all(re.search(r"has \d+ bytes; must have at most 100$", why) for why in runs["reason"])


ARRAYS = {
    "pickle": lambda: (np.array([{}]), b""),
    "fewer than its bytes": lambda: (np.zeros(8), b"(7,), }" + 9 * b" "),
    "larger than the file": lambda: (np.zeros(8), b"(8800000000,), }"),
}


@pytest.mark.parametrize("kind", [*ARRAYS, "no archive"])
def test_arrays_that_are_none_are_refused(kind, run):
    sink, content = io.BytesIO(), io.BytesIO()
    if kind in ARRAYS:
        array, shape = ARRAYS[kind]()
        np.save(sink, array)
        with zipfile.ZipFile(content, "w") as archive:
            archive.writestr("W.npy", sink.getvalue().replace(b"(8,), }" + 9 * b" ", shape))
    odd.replace_file(run, TABLES[2], content.getvalue())
    with odd.deadline(), pytest.raises(CorruptRecordError, match=r"solutions\.npz: ") as error:
        StoredRun(run).record()
    assert error.value.state == "corrupt"


# --- plans and names ------------------------------------------------------------------------------

PLANS = [
    *({}, {"runs": ["a"]}),
    {"runs": {"a": []}, "fields": {"shared": {}, "own": {"a": None}}},
]


def test_a_plan_of_another_form_or_that_is_too_long_is_refused(sweep, tmp_path, monkeypatch):
    for content in (*map(odd.with_checksum, PLANS), *odd.RAW.values()):
        (sweep / PLAN_FILE).write_bytes(content)
        with odd.deadline(), pytest.raises(CorruptRecordError, match=f"{PLAN_FILE}: "):
            record.read_plan(sweep)
    monkeypatch.setattr("attnsvm.record.plan.MAX_RUNS", 2)
    monkeypatch.setattr("attnsvm.record.files.MAX_JSON_BYTES", 999)
    for plan in ({str(k): [] for k in range(3)}, {"a": ["x" * 999]}):
        with pytest.raises(ConfigError, match="at most"):
            record.write_plan(tmp_path / "new", plan)
    assert not [*tmp_path.glob("new/*")]


@pytest.mark.parametrize("kind", [*odd.PLACED, "changed", "unreadable"])
def test_a_plan_that_cannot_be_used_is_named_and_hides_no_run(kind, sweep, capsys, monkeypatch):
    state, changed = "corrupt", (sweep / PLAN_FILE).read_bytes().replace(b"a=1", b"a=2")
    if kind == "unreadable":
        state = kind
        refusing(monkeypatch, PLAN_FILE, errno.EIO)
    elif kind == "changed":  # and its checksum is not
        (sweep / PLAN_FILE).write_bytes(changed)
    else:
        odd.place(sweep / PLAN_FILE, kind)
        with pytest.raises(CorruptRecordError, match=rf"{PLAN_FILE}: is .*; must be a file"):
            record.write_plan(sweep, {"a": []})
    code, lines = odd.lines_of(status.main, sweep, capsys)
    assert code == 1
    assert f"4 runs: 3 done, 1 {state}" in lines
    loaded = load(sweep)
    assert loaded.runs["state"].tolist() == [state, *["done"] * 3]
    assert len(loaded.trials) == 9


NAMES = [b"\x1b[2J\r\n", "\u202egnp\u2028".encode(), b"\xff\xfe<script>alert(1)<script>"]


def test_names_that_send_commands_to_a_terminal(sweep, capsys):
    """Without a plan the names are those of the folders on disk."""
    (sweep / PLAN_FILE).unlink()
    for name in NAMES:
        folder = os.path.join(os.fsencode(sweep), name)
        os.mkdir(folder)
        os.mkfifo(os.path.join(folder, b"run.json"))
    code, lines = odd.lines_of(status.main, sweep, capsys)
    assert (code, lines[-1], len(lines)) == (1, "6 runs: 3 done, 3 corrupt", 4)
    code, lines = odd.lines_of(report.main, sweep, capsys)
    assert (code, sum(line.startswith("corrupt: ") for line in lines)) == (1, 3)
    page = (sweep / "report.html").read_text()
    assert not {"\x1b", "\u202e", "\u2028"} & set(page)
    assert "<script>alert" not in page


def test_a_run_is_named_within_its_sweep_whatever_its_config_says():
    config = composed("data.n=2")
    for tag in ("..", "", "/etc/x", "a" * 300, "é", "-rf", "$(id)"):
        config.head._target_, config.sweep = f"attnsvm.{tag}", tag
        assert re.fullmatch(r"\w[\w.-]{,118}", run_name(config), re.ASCII)


@pytest.mark.parametrize("main", [status.main, report.main, verify])
def test_a_path_that_is_no_folder_is_refused(main, tmp_path, capsys, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    for name in ("nowhere", "loop", "x" * 5000):
        assert main([str(tmp_path / name)]) == 2
        assert "no such folder; must have run.json" in capsys.readouterr().err
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    assert main([str(tmp_path)]) == 2
    assert f"{tmp_path}: must be a folder that can be read" in capsys.readouterr().err


@pytest.mark.parametrize("link", ["", ".hydra", LOCK_FILE, TABLES[0], "tables", "figures"])
def test_links_are_not_followed_out_of_the_folder(link, sweep, tmp_path, runs_made, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    config, folder = next(iter(CONFIGS.values())), tmp_path / "run"
    if link in ("tables", "figures"):
        (sweep / link).symlink_to(outside)
        code, lines = odd.lines_of(report.main, sweep, capsys)
        assert code == 2
        assert f"/{link}: is a link; must be a folder)" in lines[-1]
    else:
        if link:
            folder.mkdir()
        (folder / link).symlink_to(outside / "file" if link in (LOCK_FILE, TABLES[0]) else outside)
        with pytest.raises(CorruptRecordError, match="link"):
            job.perform(config, folder, [], in_sweep=True)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "mine"}


@pytest.mark.full
def test_a_sweep_goes_on_where_runs_are_odd(tmp_path):
    grid = ["-m", *SMALL, "seed=0,10,20,30"]
    ran(*grid, cwd=tmp_path)
    runs = sorted(path.parent for path in (tmp_path / "multirun").glob(f"*/*/{RUN_FILE}"))
    for k in (0, 3):
        (runs[k] / RUN_FILE).unlink()
    odd.place(runs[0] / LOCK_FILE, "pipe")
    odd.place(runs[1] / RUN_FILE, "folder")
    odd.place(runs[2] / LOCK_FILE, "folder")  # beside a record that is done
    odd.place(runs[3] / ".hydra/config.yaml", "pipe")  # Hydra would write to it and wait for ever
    resumed = ran(*grid, cwd=tmp_path, code=1)
    assert "Traceback" not in resumed.stderr
    assert resumed.stderr.endswith("4 runs: 1 done, 3 corrupt\n")
    for words in (".lock: is a pipe", "run.json: is a folder", ".hydra/config.yaml: is a pipe"):
        assert f"{words}; must be a file" in resumed.stderr
    assert run_state(runs[2]).state == "done"
    odd.place(runs[0].parent / PLAN_FILE, "folder")
    assert "sweep.json: is a folder" in ran(*grid, cwd=tmp_path, code=2).stderr


def retyped(column, kind):
    def change(rows):
        at = rows.column_names.index(column)
        return rows.set_column(at, column, rows[column].cast(kind))

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (retyped("seed", pa.string()), "column seed is string; must be int64"),
        (retyped("frobenius_objective", pa.float32()), "is float; must be double"),
        (lambda rows: rows.append_column("status", rows["status"]), "status"),
        (lambda rows: rows.slice(1), "has 2 rows; must have drawn=3"),
    ],
)
def test_columns_of_another_type_or_twice_or_fewer_rows(change, words, run):
    odd.change_table(run, change)
    with pytest.raises(CorruptRecordError, match=rf"trials\.parquet: .*{words}"):
        StoredRun(run).record()


def test_a_skipped_cell_keeps_its_name_and_counts_once(sweep, monkeypatch):
    skipped = {f"data.path=/tmp/{part}/x.npz m=3": "m=3: must be <= 2" for part in "ab"}
    record.write_plan(sweep, {name: ["a=1"] for name in CONFIGS}, skipped=skipped)
    monkeypatch.chdir(sweep)
    assert load(sweep, ".").runs["run"].tolist() == [*sorted(skipped), *CONFIGS]
