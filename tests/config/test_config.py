import importlib

import numpy as np
import pytest
import torch

from attnsvm.cli.generated import generated
from attnsvm.config import GROUPS, WITHOUT_EFFECT, ConfigError, RunConfig, compose
from attnsvm.config.identity import option_names, result_fields, signature
from attnsvm.config.instantiate import instantiate, named, target_class
from attnsvm.config.run import ALL_GROUPS, SECTIONS
from attnsvm.config.sources import conf_folder
from attnsvm.data import sample
from tests.quick import quick_rows, refusals


def composed(*typed: str) -> RunConfig:
    """Return the config of what is typed, of words divided by spaces."""
    return compose.composed(" ".join(typed).split())


FIRST = [(group, next(iter(options))) for group, options in GROUPS.items()]
OTHERS = [(group, name) for group, options in GROUPS.items() for name in options]


@pytest.mark.parametrize(
    ("group", "name"), quick_rows(*FIRST, *(o for o in OTHERS if o not in FIRST), count=len(FIRST))
)
def test_every_option_composes_and_builds_what_it_names(group, name):
    others = {"file": "data.path=x.npz", "vocabulary": "data=token_graph loss=linear"}
    run = composed(f"{group}={name}", others.get(name, ""))
    node, schema = getattr(run, group), GROUPS[group][name]
    assert option_names(run)[group] == name
    assert node == schema(**({"path": "x.npz"} if name == "file" else {}))
    module, _, cls = node._target_.rpartition(".")
    assert module == f"attnsvm.{group}"
    assert type(instantiate(node, group)) is getattr(importlib.import_module(module), cls)


def test_files_that_are_written_from_declarations_are_up_to_date():
    texts = dict(generated())
    for path, text in texts.items():
        assert path.read_text() == text, "python -m attnsvm.cli.generated writes it"
    known = {**ALL_GROUPS, **SECTIONS}
    files = {path for group in known for path in (conf_folder() / group).glob("*.yaml")}
    assert files == {path for path in texts if path.suffix == ".yaml"}


@pytest.mark.parametrize(("overrides", "message"), quick_rows(*refusals("config"), count=20))
def test_a_wrong_value_is_named_with_what_is_allowed(overrides, message):
    with pytest.raises(ConfigError) as caught:
        composed(*overrides.split())
    assert message in str(caught.value)


def test_signature_changes_with_every_result_affecting_field_and_no_other():
    base = composed()
    changed = "data.n=7 head=relu parameterization=kq optimizer.lr=0.2 loss=linear trials=99 seed=1"
    changed += " selection.saturation=0.9 svm.gap=1e-8 model=self_attention"
    signatures = {signature(composed(override)) for override in ["", *changed.split()]}
    assert len(signatures) == 11
    assert signature(composed("device=cpu")) == signature(base)
    assert set(WITHOUT_EFFECT).isdisjoint(result_fields(base))


@pytest.mark.parametrize("target", ["logging.os.system", "attnsvm.head.torch", "attnsvm.head.Head"])
def test_targets_that_are_not_of_the_group_are_refused(target):
    with pytest.raises(ConfigError, match=r"head\._target_="):
        target_class(target, "head")


def test_an_extension_package_may_name_a_class_of_the_group(tmp_path, monkeypatch):
    code = "from attnsvm.head import Linear\nclass Mine(Linear): ...\n"
    (tmp_path / "my_heads.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"extensions=\[package\]"):
        target_class("my_heads.Mine", "head")
    assert target_class("my_heads.Mine", "head", ["my_heads"]).__name__ == "Mine"


@pytest.mark.parametrize(
    ("group", "name", "fields"),
    [
        ("data", "sphere", {"T": True}),
        ("optimizer", "gd", {"lr": "fast"}),
        ("model", "sequence", {"causal": "false"}),
    ],
)
def test_library_arguments_have_the_type_of_the_schema(group, name, fields):
    with pytest.raises(ConfigError, match=f"{group}.{next(iter(fields))}=.*: must be "):
        named(group, name, **fields)


def test_library_arguments_may_be_numbers_of_numpy():
    drawn = sample("sphere", n=np.int64(2), d=np.int32(4), trials=np.int64(3), seed=np.int64(1))
    assert torch.equal(drawn.X, sample("sphere", n=2, d=4, trials=3, seed=1).X)
    fields = {"lr": np.float32(0.1), "steps": np.uint8(200), "beta": torch.tensor(0.5)}
    kinds = {type(getattr(named("optimizer", "momentum", **fields), name)) for name in fields}
    assert kinds == {int, float}  # an unsigned count would overflow, a float32 round other numbers
    for name, value in (("n", np.float64(2)), ("trials", 2.5), ("seed", np.float64(1))):
        with pytest.raises(ConfigError, match=f"{name}={value}: must be a whole number"):
            sample("sphere", **{name: value})
