"""Options that plug-ins declare: found, checked, and named where they cannot be used."""

import sys
from contextlib import nullcontext

import pytest

import attnsvm
from attnsvm.cli.help import help_text
from attnsvm.config import GROUPS, ConfigError, plugins
from attnsvm.config.identity import extension_code, option_names, signature
from attnsvm.config.instantiate import named
from attnsvm.config.run import ALL_GROUPS
from attnsvm.config.sources import code_digest, helpers
from tests.config.test_config import composed
from tests.plugin import CONFIG, DECLARED, SCHEMA, write_entry_points, write_package


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """Nothing of a plug-in outlives a test."""

    def forget():
        for cached in (plugins._installed, plugins._imported, code_digest, helpers):
            cached.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "cubic_heads"]:
            del sys.modules[name]

    monkeypatch.setattr(plugins, "_of_extensions", {})
    forget()
    yield
    monkeypatch.undo()
    forget()


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes the package, and its entry points, to the path of Python."""

    def write(*points, **texts):
        write_package(tmp_path, **texts)
        if points:
            write_entry_points(tmp_path, *points)
        monkeypatch.syspath_prepend(tmp_path)
        plugins.use_extensions([] if points else ["cubic_heads"])
        return tmp_path

    return write


def test_an_installed_option_is_one_of_its_group_whose_fields_are_checked(write):
    write(f"head: cubic = {SCHEMA}", declared="")
    run = composed("head=cubic", "head.power=5")
    assert (run.head.power, run.extensions) == (5, ["cubic_heads"])
    assert option_names(run)["head"] == "cubic"
    with pytest.raises(ConfigError, match=r"head\.power=10: must be a whole number >= 1 and <= 9"):
        composed("head=cubic", "head.power=10")
    with pytest.raises(ConfigError, match=r"head\.exponent: unknown field of cubic; must be power"):
        named("head", "cubic", exponent=3)
    assert attnsvm.sample("sphere", head="cubic", power=5).head.power == 5


def test_code_helpers_and_data_of_a_plugin_are_part_of_its_runs_and_are_named(write):
    place = write()
    folder = place / "cubic_heads"
    (folder / "head.py").write_text("def f():\n    from more import g\n")
    (folder / ".#head.py").symlink_to("nobody@nowhere.1")  # an editor has locked it
    (folder / "folder.py").mkdir()
    (place / "more").mkdir()
    for path in ("more/__init__.py", "more/deep.py", "last.py", "other.py", "cubic_heads/a.json"):
        (place / path).write_text("import last, torch, attnsvm\n" if "init" in path else "")
    config = composed("extensions=[cubic_heads]")
    assert extension_code(config)["cubic_heads"].endswith(" with last, more")
    before = signature(config)
    for path in ("other.py", "more/deep.py", "last.py", "cubic_heads/a.json", "cubic_heads/t.csv"):
        (place / path).write_text("# changed")
        code_digest.cache_clear()
        assert (signature(config) == before) == (path == "other.py")
        before = signature(config)


def test_a_field_may_be_one_of_some_numbers_but_none_that_no_record_holds(write):
    config = CONFIG.replace("Range(1, 9)", "OneOf((3, 5))").replace("Range,", "OneOf,")
    write(config=f"{config}    limits: list[float] = option([1.0], None, 'x')\n")
    assert composed("head=cubic", "head.power=5").head.power == 5
    refused = [("power", "4", r"3 \| 5"), *(("limits", x, "finite") for x in ("[1,-inf]", "[nan]"))]
    for name, value, must in refused:
        with pytest.raises(ConfigError, match=rf"head\.{name}=.*: must be {must}"):
            composed("head=cubic", f"head.{name}={value}")


PROBE = """
from dataclasses import dataclass

from attnsvm.config import ProbeConfig, Quantity


@dataclass
class CubicConfig(ProbeConfig):
    QUANTITIES = {quantities}
    _target_: str = "cubic_heads.head.Size"
"""
BROKEN = {
    "No module named 'nothing_like_": "import nothing_like_this\n" + CONFIG,
    "must be a dataclass that extends HeadConfig": CONFIG.replace("HeadConfig", "DataConfig"),
    "must be decorated with @dataclass itself": CONFIG.replace("@dataclass", ""),
    "its _target_ must name a class in cubic_heads": CONFIG.replace("cubic_heads.head", "os"),
    "its field other must be declared as Annotated[": CONFIG + "    other: int = 3\n",
    "field b must be of int | float |": CONFIG + "    b: list[list[int]] = option([], None, 'x')\n",
    "field pair must be of int | float |": CONFIG
    + "    pair: Annotated[tuple[int, int], 'two sizes'] = (1, 2)\n",
    "its defaults must be of their types": CONFIG + "    b: int = option('a', None, 'x')\n",
    "its QUANTITIES must be a mapping of words to Quantity, not empty": "{}",
    "a mapping of words to Quantity": "{'a b': Quantity('largest', '1')}",
    "QUANTITIES must be a mapping": "{'a': 1}.keys()",
    "must be a mapping of words to Quantity, not": "{'a': 'the largest entry'}",
    "a meaning and a unit of one line each": "{'max': Quantity('two\\nlines', '1')}",
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_plugin_that_cannot_be_used_is_named_and_breaks_nothing(message, write):
    is_probe = BROKEN[message].startswith("{")
    config = PROBE.replace("{quantities}", BROKEN[message]) if is_probe else BROKEN[message]
    group = "probe" if is_probe else "head"
    write(f"{group}: cubic = {SCHEMA}", declared="", config=config)
    assert "cubic" not in list(ALL_GROUPS[group])
    with pytest.raises(ConfigError) as caught:
        named(group, "cubic")
    line = str(caught.value)
    assert line.startswith(f"{group}=cubic of package cubic-heads 1.0 ({SCHEMA}): ")
    assert message in line
    assert f"  cannot be used: {line}\n" in help_text()


@pytest.mark.parametrize("base", ["FirstOrderConfig", "GDConfig"])
def test_steps_must_not_depend_on_the_basis(base, write):
    config = CONFIG.replace("import HeadConfig,", "import").replace("HeadConfig", base)
    config = f"from attnsvm.config.optimizer import {base}\n{config}"
    write(f"optimizer: sign = {SCHEMA}", declared="", config=config)
    words = ["optimizer._target_=cubic_heads.head.Other", "extensions=[cubic_heads]"]
    for more in ([], words):
        composed("optimizer=sign", *more)
        known = base == "GDConfig" and not more
        with nullcontext() if known else pytest.raises(ConfigError, match="changes with"):
            composed("optimizer=sign", "data=sphere_in_span", *more)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (DECLARED.replace('"head"', '"haed"'), "must be a mapping"),
        ("raise RuntimeError('no\\nno')\n", "cannot be imported (RuntimeError: no)"),
    ],
)
def test_a_declaration_of_another_form_is_refused(declared, message, write):
    with pytest.raises(ConfigError) as caught:
        write(declared=declared)
    assert message in str(caught.value)


def test_a_name_that_is_taken_is_refused(write):
    place = write(f"head: relu = {SCHEMA}", f"head: cubic = {SCHEMA}", declared="")
    write_entry_points(place, "head: cubic = other.config:Config", dist="other")
    message = GROUPS["head"].broken()
    assert "the name is one of attnsvm's own" in message["relu"]
    assert "has this name too; must be one package" in message["cubic"]
    assert GROUPS["head"]["relu"].__module__ == "attnsvm.config.groups"
