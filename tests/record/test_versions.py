"""Records outlive versions of the code: those of older commits, in `format1`, are read and kept."""

import dataclasses
import errno
import json
import logging
import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import attnsvm
from attnsvm import experiment, record
from attnsvm.cli import job
from attnsvm.config import GROUPS, PROBES, ConfigError, RunConfig
from attnsvm.config.fields import values_before
from attnsvm.config.identity import (
    digest,
    folder_name,
    option_names,
    plan_digest,
    result_fields,
    run_name,
    signature,
)
from attnsvm.config.optimizer import NormalizedGDConfig
from attnsvm.config.run import SECTIONS
from attnsvm.record import RUN_FILE, TABLES, CorruptRecordError, is_of, run_state
from attnsvm.record import run as content
from attnsvm.record.columns import DECLARED
from attnsvm.record.folder import read_record
from attnsvm.sweeps import status
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.export import export
from attnsvm.sweeps.report import command as report
from attnsvm.verify import command as verify
from tests.command import SMALL, ran
from tests.config.test_config import composed
from tests.faults import configs, parts, refusing
from tests.quick import quick
from tests.record.odd import parquet, replace_file, with_checksum, with_field

FORMAT_1 = Path(__file__).with_name("format1")
RUNS = sorted(path.parent for path in FORMAT_1.rglob(RUN_FILE))
KINDS = sorted(path.name for path in FORMAT_1.iterdir() if path.is_dir())


def overrides(run: Path) -> list[str]:
    return json.loads((run / RUN_FILE).read_text())["overrides"]


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of every record below a folder."""
    kept = (RUN_FILE, *TABLES)
    paths = sorted(path for path in folder.rglob("*") if path.name in kept)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def frozen(tmp_path, monkeypatch) -> Path:
    """A copy of the frozen records; the current folder is that of the files that runs name."""
    folder = Path(shutil.copytree(FORMAT_1, tmp_path / "format1"))
    for name in ("file/d.npz", "failed/w.npz"):
        shutil.copy(folder / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return folder


# --- the format -----------------------------------------------------------------------------------


def test_fields_and_columns_of_format_1_are_there_with_their_values():
    """A change that fails here needs `BEFORE` in the schema, or another format."""
    declared = json.loads((FORMAT_1 / "declared.json").read_text())
    schemas = {
        f"{group}={name}": schema
        for group, known in (*GROUPS.items(), ("probe", PROBES))
        for name, schema in known.own.items()
    }
    schemas |= {**SECTIONS, "run": RunConfig}
    for option, fields in declared["fields"].items():
        before = values_before(schemas[option])
        there = {f.name for f in dataclasses.fields(schemas[option])}
        for name, value in fields.items():
            assert name in there, (option, name)
            assert before.get(name, "required") == value, (option, name)
    for table, columns in declared["columns"].items():
        content = {column.name: column.dtype for column in DECLARED[table]}
        assert columns.items() <= content.items()


@pytest.mark.parametrize("run", quick(*RUNS, count=4), ids=lambda run: run.parent.name)
def test_records_of_older_commits_are_read_and_are_those_of_their_command(run, frozen):
    state = run_state(frozen / run.relative_to(FORMAT_1))
    config = composed(*overrides(run))
    assert is_of(state.run, config)
    assert not is_of(state.run, dataclasses.replace(config, seed=config.seed + 1))
    assert not is_of(state.run, composed(*overrides(run), "svm.gap=1e-8"))
    if run.parent.name == "failed":
        assert state.state == "failed"
    else:
        assert state.state == "stale"
        content, _ = read_record(run)
        assert len(content.trials) == state.run["drawn"]
        assert content.lacking == frozenset()


def test_what_older_records_lack_has_the_value_that_behaved_as_before():
    (run,) = (FORMAT_1 / "muon").iterdir()
    content = record.read_run(run)
    added = set(content["config"]["optimizer"]) - set(content["as_written"]["optimizer"])
    assert added == {"weight_decay", "batch", "order", "order_seed", "polynomial"}
    assert content["config"]["optimizer"]["polynomial"] == "jordan"


@pytest.mark.parametrize("kind", quick("failed", "probes"))
def test_older_records_are_loaded_reported_and_exported(kind, frozen, tmp_path, capsys, caplog):
    folder, done = frozen / kind, kind != "failed"
    before = files(folder)
    with caplog.at_level(logging.WARNING):
        sweep = attnsvm.load(folder)
    assert len(sweep.left_out) == (0 if done else 1)
    assert ("Not shown: 1 failed of 1 runs" in caplog.text) != done
    assert ("of version 0" in sweep.runs["reason"].iloc[0]) == done
    assert ("are stale" in caplog.text) == done
    assert (len(sweep.trials) > 0) == (len(sweep.history) > 0) == done
    assert report.main([str(folder)]) == (0 if done else 1)
    assert ("are stale" in (folder / "report.html").read_text()) == done
    assert status.main([str(folder)]) == (0 if done else 1)
    assert ("hydra.sweeper.rerun=stale" in capsys.readouterr().out) == done
    to = tmp_path / "export"
    with nullcontext() if done else pytest.raises(ConfigError, match="must have a finished run"):
        export([str(folder), "--to", str(to), "--instances", "1"])
    assert (to / "report.html").exists() == done
    assert files(folder) == before


@pytest.mark.full
def test_the_sweep_of_an_older_commit_goes_on_with_new_runs(frozen):
    """Its folders have names of their version."""
    folder = frozen / "probes"
    before = files(folder)
    command = json.loads((folder / record.PLAN_FILE).read_text())["command"]
    words = [word.replace("seed=0,1", "seed=0,1,5") for word in command if "hydra." not in word]
    words.append("hydra.sweep.dir=format1/probes")
    ran(*words, cwd=frozen.parent)
    after = files(folder)
    assert before.items() < after.items()
    assert sorted(load(folder).runs["state"]) == ["done", "stale", "stale"]
    assert "2 versions of the code" in (folder / "report.html").read_text()
    ran(*words, "hydra.sweeper.rerun=stale", cwd=frozen.parent)
    assert load(folder).runs["state"].tolist() == ["done"] * 3
    assert after.items() < files(folder).items()


@pytest.mark.full
def test_the_run_of_an_older_commit_is_not_made_again(frozen):
    (run,) = (frozen / "multi").iterdir()
    before = files(frozen)
    done = ran(*overrides(run), "hydra.sweep.dir=format1/multi", cwd=frozen.parent)
    assert "1 runs: 1 stale" in done.stderr + done.stdout
    assert files(frozen) == before


def test_the_folder_of_a_plan_without_a_name_is_found_again(frozen, monkeypatch):
    from attnsvm.cli.sweep import _adhoc

    configs = [composed(*overrides(run)) for run in RUNS if run.parent.name == "probes"]
    assert _adhoc(plan_digest(configs)).name == f"adhoc-{plan_digest(configs)}"
    older = Path("multirun/adhoc-0123456789ab")
    older.parent.mkdir()
    shutil.copytree(frozen / "probes", older)
    assert _adhoc(plan_digest(configs)) == older
    assert _adhoc(plan_digest(configs[:1])) != older


def test_older_records_are_verified(capsys):
    (run,) = (FORMAT_1 / "multi").iterdir()
    assert verify.main([str(run)]) == 0
    out = capsys.readouterr().out
    assert "0 differ" in out
    assert "of version 0" in out


# --- names ----------------------------------------------------------------------------------------


def test_a_field_that_has_its_value_of_before_is_in_no_name():
    """So a new field with a default changes none."""
    config = composed(*SMALL)
    options, fields = option_names(config), result_fields(config)
    older = json.loads(json.dumps(fields))
    for name in ("batch", "order", "order_seed", "weight_decay"):
        del older["optimizer"][name]
    del older["selection"]["settled"], older["hypotheses"]
    assert digest(older, options, {}) == digest(fields, options, {}) == signature(config)
    assert folder_name(options, older, "0" * 64) == folder_name(options, fields, "0" * 64)
    for field, value in (("lr", 0.2), ("batch", 1)):
        assert signature(composed(*SMALL, f"optimizer.{field}={value}")) != signature(config)


def test_a_default_that_changes_keeps_names_and_older_records(monkeypatch):
    (run,) = (FORMAT_1 / "next_token").iterdir()
    config = composed(*SMALL)
    monkeypatch.setattr(NormalizedGDConfig, "BEFORE", {"lr": 0.05, "decay": 0.7})
    values_before.cache_clear()
    try:
        older = json.loads((run / RUN_FILE).read_text())
        del older["config"]["optimizer"]["decay"]
        older = content.BEFORE_FORMATS | older
        assert content._completed(older)["optimizer"]["decay"] == 0.7
        assert "lr0.1" in run_name(config)  # 0.1 is the default now, and was not
        changed = composed(*SMALL, "optimizer.lr=0.05", "optimizer.decay=0.7")
        assert "lr" not in run_name(changed)
    finally:
        monkeypatch.undo()
        values_before.cache_clear()
    assert "lr" not in run_name(config)


# --- other versions -------------------------------------------------------------------------------


@pytest.fixture
def run(sweep) -> Path:
    """The folder of a complete run."""
    return sweep / next(iter(record.read_plan(sweep).runs))


def config_of(run: Path) -> RunConfig:
    (config,) = [item for item in configs() if run_name(item) == run.name]
    return config


def rewritten(run: Path, **fields) -> None:
    """Write `run.json` again with other values of fields, as another version would."""
    changed = record.read_json(run / RUN_FILE)
    for name, value in fields.items():
        changed = with_field(changed, name.replace("__", "/"), value)
    (run / RUN_FILE).write_bytes(with_checksum(changed))


CHANGES = {
    "numbers": (0, "stale"),
    "columns": ("0" * 12, "stale"),
    "format": (2, "other_version"),
    "config__optimizer__warmup": (3, "other_version"),
    "options__optimizer": ("lion", "other_version"),
    "config__optimizer__schedule": ("cosine", "other_version"),
}
"""Fields of a `run.json` as other versions write them, and its state."""


@pytest.mark.parametrize("field", CHANGES)
def test_a_record_of_another_version_is_told_from_a_damaged_one_and_not_replaced(
    field, run, sweep, runs_made
):
    value, state = CHANGES[field]
    rewritten(run, **{field: value})
    before = files(run)
    content = run_state(run)
    assert (content.state, content.finished) == (state, state == "stale")
    frames = load(sweep)
    assert frames.runs.set_index("run")["state"][run.name] == state
    assert len(frames.trials) == (9 if content.finished else 6)
    assert job.perform(config_of(run), run, [], in_sweep=True) == state
    if state == "stale":
        assert job.perform(config_of(run), run, [], in_sweep=False) == state
    else:
        with pytest.raises(CorruptRecordError, match="nothing was replaced"):
            job.perform(config_of(run), run, [], in_sweep=False)
    assert files(run) == before
    assert not runs_made


@pytest.mark.parametrize(
    ("column", "kind"), [("risk", "float64"), ("convergence", "str"), ("frobenius_rank", "Int64")]
)
def test_a_column_that_an_older_record_lacks_is_empty(column, kind, run):
    table = pq.read_table(run / TABLES[0]).drop_columns([column])
    replace_file(run, TABLES[0], parquet(table))
    with pytest.raises(CorruptRecordError, match=f"column {column} missing"):
        read_record(run)  # it says that it has it
    rewritten(run, columns="0" * 12)
    content, _ = read_record(run)
    assert content.lacking == {column}
    assert str(content.trials[column].dtype) == kind
    values = content.trials[column]
    assert (values == "").all() if kind == "str" else values.isna().all()
    necessary = pq.read_table(run / TABLES[0]).drop_columns(["status"])
    replace_file(run, TABLES[0], parquet(necessary))
    with pytest.raises(CorruptRecordError, match="column status missing"):
        read_record(run)


# --- nothing finished is replaced -----------------------------------------------------------------


@pytest.fixture
def runs_made(monkeypatch):
    """The configs whose runs are made, in order; their numbers are prepared."""
    configs: list[RunConfig] = []

    def prepared_parts(config):
        configs.append(config)
        return parts(config)

    monkeypatch.setattr(experiment, "parts", prepared_parts)
    return configs


def test_the_record_of_another_run_is_not_replaced(sweep, runs_made, tmp_path):
    first, second, _ = configs()
    fixed = Path(shutil.copytree(sweep / run_name(first), tmp_path / "fixed"))
    before = files(tmp_path)
    assert job.perform(first, fixed, [], in_sweep=False) == "done"
    with pytest.raises(CorruptRecordError, match="holds the record of another run"):
        job.perform(second, fixed, [], in_sweep=False)
    shutil.rmtree(sweep / run_name(second))
    swapped = Path(shutil.copytree(sweep / run_name(first), sweep / run_name(second)))
    assert run_state(swapped).state == "other_run"
    assert job.perform(second, swapped, [], in_sweep=True) == "other_run"
    (swapped / TABLES[0]).write_bytes(b"PAR1")
    with pytest.raises(CorruptRecordError, match="holds the record of another run"):
        job.perform(second, swapped, [], in_sweep=False)
    shutil.copy(fixed / TABLES[0], swapped)
    assert files(fixed) == {name[6:]: text for name, text in before.items() if "fixed/" in name}
    assert not runs_made


def test_a_stale_record_that_is_to_be_made_again_stays_until_that_is_complete(
    run, runs_made, monkeypatch
):
    rewritten(run, numbers=0)
    before, config = files(run), config_of(run)

    def failing(config):
        yield parts(config)[0]
        assert files(run).items() >= before.items()
        raise ValueError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(experiment, "parts", failing)
        assert job.perform(config, run, [], in_sweep=True, rerun=True) == "failed"
    assert run_state(run).state == "stale"
    assert files(run) == before
    for _ in range(2):
        assert job.perform(config, run, [], in_sweep=True, rerun=True) == "done"
    assert run_state(run).state == "done"
    assert len(runs_made) == 1


# --- what cannot be read now ----------------------------------------------------------------------

NOW = (errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.ENOLCK)


@pytest.mark.parametrize("name", [RUN_FILE, *TABLES])
@pytest.mark.parametrize("code", quick(*NOW), ids=errno.errorcode.get)
def test_a_record_that_cannot_be_read_now_is_kept(name, code, sweep, run, runs_made, monkeypatch):
    before = files(sweep)
    cells = configs()
    plan = {run_name(config): [] for config in cells}
    with monkeypatch.context() as patched:
        refusing(patched, name, code)
        assert {run_state(sweep / cell).state for cell in plan} == {"unreadable"}
        with pytest.raises(CorruptRecordError, match="cannot be read now"):
            read_record(run)
        assert record.begin_sweep(sweep, plan, {}, "") == {}
        assert job.perform(cells[0], sweep / run_name(cells[0]), [], True) == "unreadable"
    assert files(sweep) == before
    assert not runs_made
    assert run_state(run).state == "done"


def test_what_cannot_be_read_is_shown_and_replaces_no_report(
    sweep, run, capsys, caplog, monkeypatch
):
    assert report.main([str(sweep)]) == 0
    before = {path: path.read_bytes() for path in sweep.rglob("*") if path.is_file()}
    capsys.readouterr()
    with monkeypatch.context() as patched:
        refusing(patched, TABLES[0], errno.EIO)
        assert status.main([str(sweep)]) == 1
        out = capsys.readouterr().out
        assert "3 runs: 3 unreadable" in out
        assert "nothing was replaced" in out
        assert "Input/output error" in out
        assert report.main([str(sweep)]) == 1
        out = capsys.readouterr().out
        assert "report.html: stays, it shows 9 instances, and there are 0 now" in out
        assert attnsvm.load(sweep).left_out["state"].tolist() == ["unreadable"] * 3
        assert "Not shown: 3 unreadable of 3 runs" in caplog.text
        with pytest.raises(ConfigError, match="3 unreadable of 3 runs"):
            export([str(sweep), "--to", str(sweep.parent / "export")])
    rewritten(run, format=7)
    assert report.main([str(sweep)]) == 1
    assert "it shows 9 instances, and there are 6 now" in capsys.readouterr().out
    assert {path for path, text in before.items() if path.read_bytes() != text} == {run / RUN_FILE}
    (sweep / "report.html").unlink()
    assert report.main([str(sweep)]) == 1
    page = (sweep / "report.html").read_text()
    assert "1 other_version of 3 runs" in page
    assert "read them with the version of attnsvm that made them" in page


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_single_run_is_found_kept_and_made_again_only_by_name(tmp_path):
    words = [*SMALL, "optimizer.steps=5", "hydra.run.dir=fixed"]
    ran(*words, cwd=tmp_path)
    rewritten(tmp_path / "fixed", numbers=0)
    before = files(tmp_path)
    assert "already done, stale" in (done := ran(*words, cwd=tmp_path)).stderr + done.stdout
    refused = ran(*words, "seed=77", cwd=tmp_path, code=2)
    assert "holds the record of another run" in refused.stderr
    assert (
        "must be stale | null" in ran(*words, "hydra.sweeper.rerun=x", cwd=tmp_path, code=2).stderr
    )
    assert files(tmp_path) == before
    ran(*words, "hydra.sweeper.rerun=stale", cwd=tmp_path)
    assert run_state(tmp_path / "fixed").state == "done"
