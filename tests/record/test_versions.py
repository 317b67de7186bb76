"""Records outlive versions of the code: those of older commits, in `format1`, are read and kept."""

import dataclasses
import errno
import json
import logging
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

import attnsvm
from attnsvm import experiment, record
from attnsvm.cli import job
from attnsvm.cli.sweep import _adhoc
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
from attnsvm.record.columns import DECLARED
from attnsvm.record.stored import StoredRun
from attnsvm.sweeps import status
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.export import export
from attnsvm.sweeps.report import command as report
from attnsvm.verify import command as verify
from tests.command import SMALL, ran
from tests.config.test_config import composed
from tests.faults import configs, parts, refusing
from tests.quick import quick
from tests.record.odd import change_table, files, rewritten

FORMAT_1 = Path(__file__).with_name("format1")
RUNS = {path.parent.parent.name: path.parent for path in sorted(FORMAT_1.rglob(RUN_FILE))}
"""Kind -> the folder of its run; of several the last one."""


SINCE = {"multi": ["probe=[]"]}
"""What the sweep that a command names has added since."""


def overrides(run: Path) -> list[str]:
    return json.loads((run / RUN_FILE).read_text())["overrides"]


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
        there = {f.name: "required" for f in dataclasses.fields(schemas[option])}
        assert fields.items() <= (there | values_before(schemas[option])).items(), option
    for table, columns in declared["columns"].items():
        content = {column.name: column.dtype for column in DECLARED[table]}
        assert columns.items() <= content.items()


@pytest.mark.parametrize("kind", quick(*RUNS, count=4))
def test_records_of_older_commits_are_read_and_are_those_of_their_command(kind, frozen):
    run = RUNS[kind]
    state = run_state(frozen / run.relative_to(FORMAT_1))
    config = composed(*overrides(run), *SINCE.get(kind, ()))
    assert is_of(state.run, config)
    svm = dataclasses.replace(config.svm, gap=1e-8)
    for other in ({"seed": config.seed + 1}, {"svm": svm}):
        assert not is_of(state.run, dataclasses.replace(config, **other))
    assert state.state == ("failed" if kind == "failed" else "stale")
    if kind != "failed":
        content = StoredRun(run).record()
        assert len(content.trials) == state.run["drawn"]
        assert content.lacking == frozenset()


@pytest.mark.parametrize("kind", quick("failed", "probes"))
def test_older_records_are_loaded_reported_and_exported(kind, frozen, tmp_path, caplog):
    folder, done = frozen / kind, kind != "failed"
    before = files(folder)
    with caplog.at_level(logging.WARNING):
        sweep = attnsvm.load(folder)
    assert len(sweep.left_out) == (0 if done else 1)
    assert ("Not shown: 1 failed of 1 runs" in caplog.text) != done
    assert ("are stale" in caplog.text) == done
    assert (len(sweep.trials) > 0) == (len(sweep.history) > 0) == done
    assert report.main([str(folder)]) == status.main([str(folder)]) == (0 if done else 1)
    assert ("are stale" in (folder / "report.html").read_text()) == done
    to = tmp_path / "export"
    with nullcontext() if done else pytest.raises(ConfigError, match="must have a finished run"):
        export([str(folder), "--to", str(to), "--instances", "1"])
    assert (to / "report.html").exists() == done
    assert files(folder) == before


@pytest.mark.full
def test_the_sweep_of_an_older_commit_goes_on_with_new_runs(frozen):
    """Its folders have names of their version, and it does not make its runs again."""
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


def test_the_folder_of_a_plan_without_a_name_is_found_again(frozen):
    configs = [composed(*overrides(run)) for run in (FORMAT_1 / "probes").iterdir() if run.is_dir()]
    assert _adhoc(plan_digest(configs)).name == f"adhoc-{plan_digest(configs)}"
    older = Path("multirun/adhoc-0123456789ab")
    older.parent.mkdir()
    shutil.copytree(frozen / "probes", older)
    assert _adhoc(plan_digest(configs)) == older
    assert _adhoc(plan_digest(configs[:1])) != older


def test_older_records_are_verified(capsys):
    assert verify.main([str(RUNS["multi"])]) == 0
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


def test_a_default_that_changes_keeps_names_and_older_records(frozen, monkeypatch):
    (run,) = (frozen / "next_token").iterdir()
    config = composed(*SMALL)
    rewritten(run, config__optimizer__decay=None)
    monkeypatch.setattr(NormalizedGDConfig, "BEFORE", {"lr": 0.05, "decay": 0.7})
    values_before.cache_clear()
    try:
        assert record.read_run(run)["config"]["optimizer"]["decay"] == 0.7
        assert "lr0.1" in run_name(config)  # 0.1 is the default now, and was not
        changed = composed(*SMALL, "optimizer.lr=0.05", "optimizer.decay=0.7")
        assert "lr" not in run_name(changed)
    finally:
        monkeypatch.undo()
        values_before.cache_clear()
    assert "lr" not in run_name(config)


# --- nothing finished is replaced -----------------------------------------------------------------


def test_a_stale_record_that_is_to_be_made_again_stays_until_that_is_complete(
    run, runs_made, monkeypatch
):
    rewritten(run, numbers=0)
    before = files(run)
    (config,) = [item for item in configs() if run_name(item) == run.name]

    def failing(config):
        yield parts(config)[0]
        assert files(run).items() >= before.items()
        raise ValueError("no more")

    with monkeypatch.context() as patched:
        patched.setattr(experiment, "parts", failing)
        assert job.perform(config, run, [], in_sweep=True, rerun=True) == "failed"
    assert run_state(run).state == "stale"
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    for _ in range(2):
        assert job.perform(config, run, [], in_sweep=True, rerun=True) == "done"
    assert run_state(run).state == "done"
    assert len(runs_made) == 1


def test_what_cannot_be_read_is_shown_and_replaces_no_report(
    sweep, run, capsys, caplog, monkeypatch
):
    def reported():
        assert report.main([str(sweep)]) == 1
        return capsys.readouterr().out

    assert report.main([str(sweep)]) == 0
    before = {path: path.read_bytes() for path in sweep.rglob("*") if path.is_file()}
    with monkeypatch.context() as patched:
        refusing(patched, TABLES[0], errno.EIO)
        assert "it shows 9 instances, and there are 0 now" in reported()
        assert attnsvm.load(sweep).left_out["state"].tolist() == ["unreadable"] * 3
        assert "Not shown: 3 unreadable of 3 runs" in caplog.text
        with pytest.raises(ConfigError, match="3 unreadable of 3 runs"):
            export([str(sweep), "--to", str(sweep.parent / "export")])
    rewritten(run, format=7)
    assert "it shows 9 instances, and there are 6 now" in reported()
    assert {path for path, text in before.items() if path.read_bytes() != text} == {run / RUN_FILE}
    (sweep / "report.html").unlink()
    reported()
    assert "1 other_version of 3 runs" in (sweep / "report.html").read_text()


@pytest.mark.full
def test_a_single_run_is_kept_and_made_again_only_by_name(tmp_path):
    words = [*SMALL, "optimizer.steps=5", "hydra.run.dir=fixed"]
    ran(*words, cwd=tmp_path)
    rewritten(tmp_path / "fixed", numbers=0)
    before = files(tmp_path)
    assert "already done, stale" in (done := ran(*words, cwd=tmp_path)).stderr + done.stdout
    for word, why in (("seed=77", "another run"), ("hydra.sweeper.rerun=x", "be stale | null")):
        assert why in ran(*words, word, cwd=tmp_path, code=2).stderr
    assert files(tmp_path) == before
    ran(*words, "hydra.sweeper.rerun=stale", cwd=tmp_path)
    assert run_state(tmp_path / "fixed").state == "done"


@pytest.mark.parametrize(
    ("column", "kind"), [("risk", "float64"), ("convergence", "str"), ("frobenius_rank", "Int64")]
)
def test_a_column_that_an_older_record_lacks_is_empty(column, kind, run):
    change_table(run, lambda rows: rows.drop_columns([column]))
    with pytest.raises(CorruptRecordError, match=f"column {column} missing"):
        StoredRun(run).record()  # it says that it has it
    rewritten(run, columns="0" * 12)
    stored = StoredRun(run).record()
    assert stored.lacking == {column}
    values = stored.trials[column]
    assert str(values.dtype) == kind
    assert (values == "").all() if kind == "str" else values.isna().all()
    change_table(run, lambda rows: rows.drop_columns(["status"]))
    with pytest.raises(CorruptRecordError, match="column status missing"):
        StoredRun(run).record()
