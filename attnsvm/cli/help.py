"""What `attnsvm --help` prints: one screen, a group, or the file of an option.

The file of an option in `conf/` is written from its schema by `python -m attnsvm.cli.generated`.
"""

import dataclasses
import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from attnsvm.config import GROUPS, ConfigError, RunConfig
from attnsvm.config.fields import default_of, must_be, shown
from attnsvm.config.names import did_you_mean
from attnsvm.config.run import ALL_GROUPS, SECTIONS
from attnsvm.config.sources import conf_folder

WIDTH = 100
"""Largest number of characters of a line."""


def help_text(
    topics: Iterable[str] = (),
    user_files: Mapping[str, Mapping[str, Sequence[Path]]] | None = None,
) -> str:
    """Return what the words of a command after `--help` are about; one screen without any.

    A topic is a group, an option as `GROUP=OPTION`, or `run`. `user_files` are those of sweeps and
    experiments that are not attnsvm's, by group and name. ConfigError for another topic.
    """
    return "\n".join(map(_topic, topics)) or _screen(user_files or {})


def _screen(user_files: Mapping[str, Mapping[str, Sequence[Path]]]) -> str:
    defaults: Any = OmegaConf.load(conf_folder() / "config.yaml").defaults
    chosen: Any = OmegaConf.merge(*filter(OmegaConf.is_dict, defaults))
    lines = [Path(__file__).with_suffix(".txt").read_text()]
    for group in (*GROUPS, *SECTIONS):
        others = [name for name in options_of(group) if name != chosen[group]]
        lines += _listed(f"{group}=", [f"[{chosen[group]}]", *others])
    lines += _listed("probe=", [f"[{','.join(ALL_GROUPS['probe'])}]"])
    lines += _listed("sweep=", experiments())
    for group, of_names in user_files.items():
        for name, files in of_names.items():
            lines.append(f"  {group}={name}  {' '.join(map(str, files))}")
    broken = (message for options in ALL_GROUPS.values() for message in options.broken().values())
    return "\n".join([*lines, *(f"  cannot be used: {message}" for message in broken), ""])


def _listed(begin: str, names: Iterable[str]) -> list[str]:
    indent = " " * 19
    return textwrap.wrap(
        " | ".join(names).replace(",", ", "),
        WIDTH,
        initial_indent=f"  {begin:17}",
        subsequent_indent=indent,
        break_long_words=False,
    )


def _topic(topic: str) -> str:
    group, _, name = topic.partition("=")
    if topic == "run":
        return "\n".join(field_lines(RunConfig))
    known = (*ALL_GROUPS, *SECTIONS, "sweep")
    if group not in known:
        must = f"must be run, a group, or GROUP=OPTION; groups are {' | '.join(known)}"
        raise ConfigError(f"--help {topic}: {did_you_mean(group, known)}{must}")
    names = options_of(group)
    if not name:
        return "\n".join(f"{group}={option:22} {_about(group, option)[0]}" for option in names)
    if name not in names:
        raise ConfigError(f"{topic}: {did_you_mean(name, names)}must be {' | '.join(names)}")
    return option_text(group, name)


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
    values: Any = None
    if schema := SECTIONS.get(group):
        place, values = f"{group}@_here_", OmegaConf.to_container(OmegaConf.load(path))
    else:
        schema = ALL_GROUPS[group][name]
        place = f"{group}/{name}@{name if group == 'probe' else '_here_'}"
    fields = field_lines(schema, values)
    if group == "probe" and fields:
        fields = ["", f"{name}:", *(f"  {line}" for line in fields[1:])]
    about = [f"# {line}".rstrip() for line in _about(group, name)]
    return "\n".join([*about, "defaults:", f"  - /schema/{place}", *fields, ""])


def _about(group: str, name: str) -> list[str]:
    """Return what an option is, in lines: of its schema, or at the begin of its file."""
    if group in ALL_GROUPS:
        return inspect.cleandoc(ALL_GROUPS[group][name].__doc__ or "").splitlines()
    lines = (conf_folder() / group / f"{name}.yaml").read_text().splitlines()
    comments = lines[: next(k for k, line in enumerate(lines) if not line.startswith("#"))]
    return [line[2:] for line in comments if "@package" not in line]


def field_lines(schema: type, values: Mapping[Any, Any] | None = None) -> list[str]:
    """Return the lines of a config file that set each field, below its meaning as a comment.

    `values` are those that are not the default.
    """
    lines = []
    for f in dataclasses.fields(schema):
        if f.metadata:
            value = (values or {}).get(f.name, default_of(f))
            meaning = textwrap.wrap(_meaning(f), WIDTH - 6, break_on_hyphens=False)
            lines += ["", *(f"# {line}" for line in meaning)]
            pair = OmegaConf.to_yaml({f.name: value})
            lines.append(f"{f.name}: {shown(value)}" if isinstance(value, list) else pair.strip())
    return lines


def _meaning(f: dataclasses.Field[Any]) -> str:
    allowed = must_be(f) if f.metadata["allowed"] else ""
    for words in ("a finite number", "a whole number", "a list without repetition of "):
        allowed = allowed.replace(words, "").strip()
    return f"{f.metadata['doc']} ({allowed})" if allowed else f.metadata["doc"]
