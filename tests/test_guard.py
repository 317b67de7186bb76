"""What configs and names must not do: no foreign code runs, no file leaves the sweep's folder."""

from __future__ import annotations

import copy
import importlib
import os

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf, open_dict

from attnsvm import app, experiment, guard
from attnsvm.build import build
from attnsvm.config import ConfigError
from attnsvm.identity import run_name, validated
from attnsvm.state import planned
from attnsvm.storage import CorruptRecordError, write_json
from attnsvm.task import perform
from sweeps.aggregate import load
from tests.command import SMALL, attnsvm
from tests.faults import configs, prepared
from tests.test_config import composed


@pytest.fixture(scope="module")
def composed_config():
    app.register()
    with initialize_config_module("conf", version_base="1.3"):
        return compose("config", return_hydra_config=True)


@pytest.fixture
def with_node(composed_config):
    """Return a function: the config that Hydra composes, with `value` at `where`."""

    def changed(where: str, value: object):
        config = OmegaConf.to_container(composed_config, resolve=False)
        *path, key = where.split(".")
        node = config
        for name in path:
            node = node[name]
        node[key] = value
        return OmegaConf.create(config)

    return changed


NO = "allowed|cannot be imported"

TARGETS = [
    "shutil.copyfile",
    "shutil.rmtree",
    "logging.os.system",
    "os.system",
    "os.popen",
    "posix.system",
    "subprocess.run",
    "subprocess.Popen",
    "builtins.eval",
    "builtins.exec",
    "builtins.open",
    "builtins.__import__",
    "importlib.import_module",
    "runpy.run_path",
    "pickle.loads",
    "torch.load",
    "pandas.read_pickle",
    "numpy.load",
    "code.interact",
    "ctypes.CDLL",
    "webbrowser.open",
    "pathlib.Path.unlink",
    "pathlib.Path.write_text",
    "hydra.utils.call",
    "hydra.utils.instantiate",
    "omegaconf.OmegaConf.load",
    "attnsvm_evil.head.Linear",
    "attnsvm.storage.os.system",
    "attnsvm.storage.write_atomically",
    "attnsvm.app.main",
    "hydra_plugins.attnsvm_sweeper.sweeper.logging.os.system",
    "attnsvm",
    "",
]
"""Callables that must not run, however they are asked for."""


@pytest.fixture
def tripwire(monkeypatch):
    """Make every callable of `TARGETS` that can be found betray that it was called."""
    called = []
    for target in TARGETS:
        module, _, name = target.rpartition(".")
        try:
            owner = importlib.import_module(module)
        except (ImportError, ValueError):
            continue
        if module in ("builtins", "importlib") or not hasattr(owner, name):
            continue  # the test itself needs these
        monkeypatch.setattr(owner, name, lambda *a, t=target, **k: called.append(t))
    yield called
    assert called == []


def built(config, group):
    return build(getattr(validated(config), group), group)


@pytest.mark.parametrize("target", TARGETS)
def test_no_hostile_target_runs(target, composed_config, with_node, tripwire):
    for group in ("head", "data"):
        config = copy.deepcopy(composed_config)
        config[group]._target_ = target
        with pytest.raises(ConfigError):
            built(config, group)
    node = {"_target_": target, "command": "echo"}
    for where, value in (
        ("hydra.callbacks.x", node),
        ("hydra.launcher.x", node),
        ("hydra.launcher.x", [{"y": node}]),
        ("hydra.sweeper.x", node),
        ("hydra.job_logging.handlers", {"x": {"()": target}}),
        ("hydra.job_logging.formatters", {"x": {"class": target}}),
        ("hydra.hydra_logging.handlers", {"x": {"class": target, "y": node}}),
    ):
        with pytest.raises(ConfigError, match=NO):
            guard.check_hydra(with_node(where, value))
    if not target.startswith("hydra_plugins."):  # else Hydra's own registry of plugins refuses it
        for section in ("launcher", "sweeper"):
            with pytest.raises(ConfigError, match=NO):
                guard.check_hydra(with_node(f"hydra.{section}", node))


HIDDEN = [
    ("hydra.callbacks.x", "${y}"),
    ("hydra.callbacks", "${y}"),
    ("hydra.callbacks.x", "${oc.create:'{_target_: os.system, command: id}'}"),
    ("hydra.launcher.x", "${oc.create:'{_target_: os.system}'}"),
    ("hydra.callbacks.x", "os.system"),
    ("hydra.callbacks.x", [{"_target_": "os.system"}]),
    ("hydra.callbacks.x", {"_target_": "attnsvm.task.perform"}),
    ("hydra.callbacks.x", {"_target_": "attnsvm.task.log.warning"}),
    ("hydra.job_logging.handlers.file.stream", "ext://os.environ"),
    ("hydra.job_logging.handlers.file.x", "cfg://formatters"),
    ("hydra.job_logging.handlers.file.filename", "/tmp/elsewhere.log"),
    ("hydra.job_logging.handlers.file.class", "logging.handlers.SocketHandler"),
    ("hydra.job_logging.handlers.file.class", "${y}"),
]


@pytest.mark.parametrize(("where", "value"), HIDDEN)
def test_a_hidden_target_is_found(where, value, with_node):
    config = with_node(where, value)
    with open_dict(config):
        config.y = {"_target_": "os.system", "command": "id"}
    with pytest.raises(ConfigError, match=NO):
        guard.check_hydra(config)


def test_the_command_refuses_before_anything_is_made(tmp_path):
    proof = tmp_path / "proof"
    for override in (
        f"+hydra.callbacks.x={{_target_:os.mkdir,path:{proof}}}",
        "hydra.sweeper._target_=hydra_plugins.attnsvm_sweeper.sweeper.logging.os.system",
    ):
        done = attnsvm("-m", "seed=0,1", *SMALL, override, cwd=tmp_path)
        assert done.returncode in (1, 2)
        assert not list(tmp_path.iterdir())


NAMES = [
    "../x",
    "../../x",
    "..",
    ".",
    "",
    "/etc/x",
    "/tmp/x",
    "a/b",
    "a/../../x",
    "./x",
    "~/x",
    "x\0y",
    "\0",
    "x/",
    "//x",
    "x\n/y",
    "..%2fx/../y",
    "\\..\\x/",
    "$HOME/x",
    "C:/x",
    "x/.",
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_do_not_leave_the_folder(name, with_node, tmp_path):
    for field in ("hydra.sweep.subdir", "hydra.job.name", "hydra.output_subdir"):
        with pytest.raises(ConfigError, match=NO):
            guard.check_hydra(with_node(field, name))
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        write_json(tmp_path / "sweep.json", {"command": [], "runs": {name: []}})
        with pytest.raises(CorruptRecordError, match="not the name of a folder"):
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


@pytest.mark.parametrize("link", ["run", ".hydra", ".claim", "run.json", "trials.parquet"])
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
    except (ConfigError, OSError) as error:
        assert "link" in str(error)  # noqa: PT017
    assert [p.name for p in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "mine"


def test_no_pickle_is_written_by_a_sweep(tmp_path):
    done = attnsvm("-m", "seed=0,1", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for path in tmp_path.rglob("*"):
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".joblib")
        if path.is_file():
            assert not path.read_bytes().startswith(b"\x80")
