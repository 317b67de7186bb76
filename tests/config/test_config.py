import importlib

import pytest

from attnsvm.config import GROUPS, WITHOUT_EFFECT, ConfigError, RunConfig, compose
from attnsvm.config.identity import option_names, result_fields, signature
from attnsvm.config.instantiate import instantiate, named, target_class


def composed(*overrides: str) -> RunConfig:
    return compose.composed(overrides)


ALL_OPTIONS = [(group, name) for group, options in GROUPS.items() for name in options]


@pytest.mark.parametrize(("group", "name"), ALL_OPTIONS)
def test_every_option_composes_and_builds_what_it_names(group, name):
    given = {"path": "x.npz"} if (group, name) == ("data", "file") else {}
    others = ["data=token_graph", "loss=linear"] if name == "vocabulary" else []
    fields = (f"data.{field}={value}" for field, value in given.items())
    run = composed(f"{group}={name}", *fields, *others)
    node, schema = getattr(run, group), GROUPS[group][name]
    assert option_names(run)[group] == name
    assert node == schema(**given)  # the schema alone has defaults, no yaml file
    module, _, cls = node._target_.rpartition(".")
    assert type(instantiate(node, group)) is getattr(importlib.import_module(module), cls)
    assert module == f"attnsvm.{group}"


WRONG = [
    ("data.n=0", "data.n=0: must be a whole number >= 1"),
    ("optimizer.lr=0", "optimizer.lr=0.0: must be a finite number > 0"),
    ("optimizer.lr=nan", "optimizer.lr=nan: must be a finite number > 0"),
    ("optimizer.steps=-1", "optimizer.steps=-1: must be a whole number >= 0"),
    ("optimizer.decay=1.5", "optimizer.decay=1.5: must be a finite number > 0 and <= 1"),
    ("optimizer.gradient=exact", "optimizer.gradient=exact: must be log_domain | direct"),
    ("optimizer.init=ones", "optimizer.init=ones: did you mean cone? must be zero | uniform | "),
    ("optimizer={schedule:geometric,growth:1}", "optimizer.growth=1.0: must be smaller with"),
    ("optimizer.init=file", "optimizer.init_path=None: must be an .npz file with init=file"),
    ("optimizer.init_path=W.npz", "optimizer.init_path=W.npz: must be null with init=uniform"),
    ("optimizer.init_angle=181", "optimizer.init_angle=181.0: must be a finite number >= 0 and <="),
    ("selection.negligible=0.5", "selection.negligible=0.5: must be <= attended=0.001"),
    ("selection.until_accepted=true", "selection.until_accepted=True"),
    ("svm.norms=[fro,max]", "svm.norms=[fro,max]: did you mean frobenius? must be a list without"),
    ("svm.norms=[nuclear,nuclear]", "svm.norms="),
    ("svm.rank_tolerance=1", "svm.rank_tolerance=1.0: must be a finite number > 0 and < 1"),
    ("device=tpu", "device=tpu: did you mean cpu? must be auto | cpu | cuda"),
    ("head._target_=os.system", "head._target_=os.system: must be a class in attnsvm"),
    ("+typo=3", "typo: unknown field; must be model | "),
    ("+data.dd=3", "data.dd: unknown field; did you mean d? must be n | T | d"),
    ("+loss.width=4", "loss.width: unknown field; must be absent, there is none here"),
    ("data=file", "data.path: a value is required, as in data.path=VALUE"),
    ("head=quadratic head.lam=-1", "head.lam=-1.0: must be a finite number >= 0"),
    ("data=orthonormal data.T=11", "data.T=11: must be <= d=10"),
    ("parameterization=kq parameterization.m=11", "must be >= 1 and <= data.d=10"),
    ("model=self_attention model.query=8", "must be >= 0 and < data.T=8"),
    ("data=sphere_in_span svm.norms=[max]", "changes with the basis"),
    ("data=sphere_in_span optimizer=sign_gd", "changes with the basis"),
    ("data=sphere_in_span optimizer=steepest optimizer.norm=max", "changes with the basis"),
    ("head=vocabulary loss=linear", "head=vocabulary: data must be token_graph | text, or"),
    ("head=vocabulary data=token_graph", "head=vocabulary: loss must be linear"),
    ("data=planted probe=[held_out]", "data.held_out >= 1"),
    ("data=planted probe=[held_out] data.held_out=5 head.train=true", "with head.train=true"),
    ("data=planted probe=[held_out] data.held_out=5 model=transformer", "with model=transformer"),
    ("probe=[mixture] model=transformer", "with model=transformer"),
    ("probe=[excess_risk] model=transformer", "probe=[excess_risk]: must be [] with model=transf"),
    ("probe=[excess_risk] head.train=true", "probe=[excess_risk]: must be [] with head.train=true"),
]


@pytest.mark.parametrize(("overrides", "message"), WRONG)
def test_a_wrong_value_is_named_with_what_is_allowed(overrides, message):
    with pytest.raises(ConfigError) as caught:
        composed(*overrides.split())
    assert message in str(caught.value)


def test_what_is_allowed_is_composed():
    composed("data=sphere_in_span", "svm.norms=[spectral]")
    composed("data=planted", "data.held_out=5", "probe=[held_out,mixture,excess_risk]")


def test_signature_changes_with_every_result_affecting_field_and_no_other():
    base = composed()
    changed = {
        "data.n=7", "head=relu", "parameterization=kq", "optimizer.lr=0.2", "loss=linear",
        "selection.saturation=0.9", "svm.gap=1e-8", "trials=99", "seed=1", "model=self_attention",
    }  # fmt: skip
    signatures = {override: signature(composed(override)) for override in changed}
    assert len({*signatures.values(), signature(base)}) == len(changed) + 1
    assert signature(composed("device=cpu")) == signature(base)
    assert set(WITHOUT_EFFECT).isdisjoint(result_fields(base))


HOSTILE = ["os.system", "shutil.copyfile", "builtins.eval", "subprocess.Popen", "logging.os.system"]
INSIDE = ["head.torch", "record.write", "data.np.load", "nothing.Here", "head.Nothing", "head.Head"]
TARGETS = [*HOSTILE, "attnsvm", *(f"attnsvm.{name}" for name in INSIDE)]


@pytest.mark.parametrize("group", [*GROUPS, "probe"])
@pytest.mark.parametrize("target", TARGETS)
def test_targets_that_are_not_of_the_group_are_refused(target, group):
    with pytest.raises(ConfigError, match=f"{group}._target_="):
        target_class(target, group)


def test_an_extension_package_may_name_a_class_of_the_group(tmp_path, monkeypatch):
    (tmp_path / "my_heads.py").write_text(
        "from attnsvm.head import Linear\nclass Mine(Linear): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"extensions=\[package\]"):
        target_class("my_heads.Mine", "head")
    assert target_class("my_heads.Mine", "head", ["my_heads"]).__name__ == "Mine"


WRONG_TYPES = [
    ("data", "sphere", {"n": 2.5}, "data.n=2.5: must be a whole number"),
    ("data", "sphere", {"d": None}, "data.d=None: must be a whole number"),
    ("data", "sphere", {"T": True}, "data.T=True: must be a whole number"),
    ("optimizer", "gd", {"steps": 2.5}, "optimizer.steps=2.5: must be a whole number"),
    ("optimizer", "gd", {"lr": "fast"}, "optimizer.lr=fast: must be a finite number > 0"),
    ("model", "sequence", {"causal": "false"}, "model.causal=false: must be true | false"),
    ("data", "file", {"path": 3}, "data.path=3: must be a word"),
]


@pytest.mark.parametrize(("group", "name", "fields", "message"), WRONG_TYPES)
def test_library_arguments_have_the_type_of_the_schema(group, name, fields, message):
    with pytest.raises(ConfigError) as caught:
        named(group, name, **fields)
    assert message in str(caught.value)
