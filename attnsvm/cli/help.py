"""What `attnsvm --help` prints: one screen, a group, the file of an option, or a field.

The file of an option in `conf/` is written from its schema by `python -m attnsvm.cli.generated`.
"""

import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from attnsvm.config import GROUPS, ConfigError, RunConfig
from attnsvm.config.fields import default_of, must_be, shown
from attnsvm.config.instantiate import declared_fields
from attnsvm.config.names import did_you_mean, must_be_one_of
from attnsvm.config.run import ALL_GROUPS, SECTIONS
from attnsvm.config.sources import conf_folder

WIDTH = 80
"""Largest number of characters of a line."""


Files = Mapping[str, Mapping[str, Sequence[Path]]]
"""Group -> name -> files of sweeps and experiments that are not attnsvm's."""


def help_text(topics: Iterable[str] = (), user_files: Files | None = None) -> str:
    """Return what the words of a command after `--help` are about; one screen without any.

    A topic is a group, an option as `GROUP=OPTION`, a field, or `run`. ConfigError for another one.
    """
    files = user_files or {}
    return "\n".join(_topic(topic, files) for topic in topics) or _screen(files)


def wrapped(text: str, begin: str = "", indent: str = "") -> list[str]:
    """Return the lines of a text: after `begin` the first, after `indent` the others."""
    breaks: Any = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, WIDTH, initial_indent=begin, subsequent_indent=indent, **breaks)


def _screen(files: Files) -> str:
    defaults: Any = OmegaConf.load(conf_folder() / "config.yaml").defaults
    chosen: Any = OmegaConf.merge(*filter(OmegaConf.is_dict, defaults))
    listed = {
        group: [
            f"[{chosen[group]}]",
            *(name for name in options_of(group) if name != chosen[group]),
        ]
        for group in (*GROUPS, *SECTIONS)
    }
    listed["probe"] = [f"[{', '.join(ALL_GROUPS['probe'])}]"]
    listed["sweep"] = [f"{len(experiments())} experiments, listed by attnsvm --help sweep"]
    lines = [Path(__file__).with_suffix(".txt").read_text()]
    for group, names in listed.items():
        lines += wrapped(" | ".join(names), f"  {group + '=':17}", " " * 19)
    lines += [f"  {line}" for group in files for line in _listed(group, files)]
    broken = (message for options in ALL_GROUPS.values() for message in options.broken().values())
    return "\n".join([*lines, *(f"  cannot be used: {message}" for message in broken), ""])


def _listed(group: str, files: Files) -> list[str]:
    """Return a line for each of the user's files of a group."""
    of_names = files.get(group, {}).items()
    return [f"{group}={name}  {' '.join(map(str, paths))}" for name, paths in of_names]


def _topic(topic: str, files: Files) -> str:
    group, _, name = topic.partition("=")
    known = (*ALL_GROUPS, *SECTIONS, "sweep", "experiment")
    if topic == "run":
        return "\n".join(field_lines(RunConfig))
    if topic.startswith("hydra"):
        section = ".".join(group.replace("/", ".").split(".")[:2])
        must = f"is in Hydra's own section: attnsvm --cfg hydra --package {section} shows it"
        raise ConfigError(f"--help {topic}: {must}")
    if group not in known:
        if text := _fields(group):
            return text
        meant = did_you_mean(group, ["run", *known, *(f.name for *_, f in declared_fields())])
        must = f"must be run | {' | '.join(known)}, GROUP=OPTION, or a field"
        raise ConfigError(f"--help {topic}: {meant}{must}")
    names, others = options_of(group), files.get(group, {})
    if name in others:
        return "\n".join(path.read_text(errors="replace") for path in others[name])
    if name in names:
        return option_text(group, name)
    if name:
        raise ConfigError(f"{topic}: {must_be_one_of(name, [*names, *others] or [OF_USER])}")
    lines = [f"{group}=NAME: {OF_USER}"] if group == "experiment" else []
    for option in names:
        begin = f"{group}={option:22} "
        lines += wrapped(_about(group, option)[0], begin, " " * len(begin))
    return "\n".join([*lines, *_listed(group, files)])


OF_USER = "a file of yours, DIR/experiment/NAME.yaml, with --config-dir DIR"


def _fields(name: str) -> str:
    """Return the fields that are called `name`: their options, meaning and default."""
    having: dict[tuple[str, ...], list[str]] = {}
    for place, option, f in declared_fields():
        if name in (f.name, f"{place}.{f.name}") and f.metadata:
            key = f"{place}.{f.name}".lstrip("."), *_field_lines(f, default_of(f))
            having.setdefault(key, []).append(option)
    blocks = []
    for (place, *lines), options in having.items():
        listed = " | ".join(filter(None, options))
        blocks += ["", *wrapped(f"{place}, of {listed}" if listed else place), *lines]
    return "\n".join(blocks[1:])


def experiments() -> list[str]:
    """Return the names of the experiments, the files of `conf/sweep`."""
    return options_of("sweep")


def options_of(group: str) -> list[str]:
    """Return the options of a group, those of plug-ins included."""
    files = sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))
    return [*ALL_GROUPS.get(group, files)]


def option_text(group: str, name: str) -> str:
    """Return the config file of an option: what it is, each field with its meaning and default."""
    path = conf_folder() / group / f"{name}.yaml"
    if group == "sweep":
        return path.read_text()
    values: Any = {}
    if schema := SECTIONS.get(group):
        place, values = f"{group}@_here_", OmegaConf.to_container(OmegaConf.load(path))
    else:
        schema = ALL_GROUPS[group][name]
        place = f"{group}/{name}@{name if group == 'probe' else '_here_'}"
    fields = field_lines(schema, values)
    if group == "probe" and fields:
        fields = ["", f"{name}:", *(f"  {line}" for line in fields[1:])]
    about = list[str]()
    for paragraph in _about(group, name):
        about += ["#", *wrapped(paragraph, "# ", "# ")]
    return "\n".join([*about[1:], "defaults:", f"  - /schema/{place}", *fields, ""])


def _about(group: str, name: str) -> list[str]:
    """Return what an option is, in paragraphs: of its schema or its file; a sweep's question."""
    path = conf_folder() / group / f"{name}.yaml"
    if group in ALL_GROUPS:
        text = inspect.cleandoc(ALL_GROUPS[group][name].__doc__ or "")
    elif group == "sweep":
        text = OmegaConf.load(path).question
    else:
        lines = path.read_text().splitlines()
        comments = itertools.takewhile(lambda line: line.startswith("#"), lines)
        text = "\n".join(line.removeprefix("#") for line in comments)
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def field_lines(schema: type, values: Mapping[Any, Any] | None = None) -> list[str]:
    """Return the lines of a config file that set each field, below its meaning as a comment.

    `values` are those that are not the default.
    """
    lines = []
    for f in dataclasses.fields(schema):
        if f.metadata:
            lines += ["", *_field_lines(f, (values or {}).get(f.name, default_of(f)))]
    return lines


def _field_lines(f: dataclasses.Field[Any], value: Any) -> list[str]:
    allowed = must_be(f) if f.metadata["allowed"] else ""
    for words in ("a finite number", "a whole number", "a list without repetition of "):
        allowed = allowed.replace(words, "").strip()
    meaning = f"{f.metadata['doc']} ({allowed})" if allowed else f.metadata["doc"]
    pair = OmegaConf.to_yaml({f.name: value}).strip()
    setting = f"{f.name}: {shown(value)}" if isinstance(value, list) else pair
    return [*(f"# {line}" for line in textwrap.wrap(meaning, WIDTH - 4)), setting]
