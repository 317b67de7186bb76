"""The text of `attnsvm --help`, from the schema; Hydra's own help takes a second."""

import dataclasses
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from omegaconf import MISSING, OmegaConf

from attnsvm.config import GROUPS, PROBES, RunConfig
from attnsvm.config.fields import must_be, shown
from attnsvm.config.plugins import Options
from attnsvm.config.run import SECTIONS
from attnsvm.config.sources import conf_folder


def help_text(own: Mapping[str, Sequence[Path]] | None = None) -> str:
    """Return the help text: experiments, groups with their options, fields with ranges.

    `own` are sweeps that are not attnsvm's, with their files.
    """
    names = "  ".join(experiments())
    listed = textwrap.wrap(names, 96, initial_indent="  ", subsequent_indent="  ")
    parts = [Path(__file__).with_suffix(".txt").read_text(), "Experiments, sweep=NAME", *listed]
    if own:
        parts += ["Your own and those of plug-ins"]
        parts += [f"  {name}  {', '.join(map(str, files))}" for name, files in own.items()]
    parts += [""]
    defaults: Any = OmegaConf.load(conf_folder() / "config.yaml").defaults
    chosen: Any = OmegaConf.merge(*filter(OmegaConf.is_dict, defaults))
    for group, options in GROUPS.items():
        heading = f"{group}={' | '.join(options)}  (default: {chosen[group]})"
        parts += [heading, *_shared_fields(group, options), *_broken(options), ""]
    for group, schema in SECTIONS.items():
        parts += [f"{group}={' | '.join(_files(group))}  (default: {chosen[group]})"]
        parts += [*(_line(f"{group}.", f) for f in _fields(schema)), ""]
    parts += [f"probe=[{' | '.join(PROBES)}]  any of them, as probe=[rank,entropy] (default: none)"]
    for name, probe in PROBES.items():
        parts += [f"  {name}: {(probe.__doc__ or '').partition(chr(10))[0]}"]
        parts += [_line(f"  probe.{name}.", f) for f in _fields(probe)]
    parts += [*_broken(PROBES), "", "The run"]
    return "\n".join([*parts, *(_line("", f) for f in _fields(RunConfig) if f.metadata), ""])


def experiments() -> list[str]:
    """Return the names of the experiments, the files of `conf/sweep`."""
    return _files("sweep")


def _files(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))


def _broken(options: Options) -> list[str]:
    return [f"  cannot be used: {message}" for message in options.broken().values()]


def _fields(schema: type) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(schema) if f.name != "_target_"]


def _shared_fields(group: str, options: Options) -> Iterator[str]:
    """Yield a line for each meaning of each field of a group, with the options that have it.

    Defaults that differ from that of the first option are listed too.
    """
    owners: dict[str, dict[str, dict[str, dataclasses.Field[Any]]]] = {}
    for option, schema in options.items():
        for f in _fields(schema):
            owners.setdefault(f.name, {}).setdefault(_meaning(f), {})[option] = f
    for having in chain.from_iterable(of_name.values() for of_name in owners.values()):
        first = next(iter(having.values()))
        missing = [option for option in options if option not in having]
        others = [
            f"{option} {_default(f)}" for option, f in having.items()
            if _default(f) != _default(first)
        ]  # fmt: skip
        note = f" [default of {', '.join(others)}]" if others else ""
        if missing:
            few = len(missing) < len(having)
            note += f" [not {', '.join(missing)}]" if few else f" [{', '.join(having)}]"
        yield _line(f"{group}.", first) + note


def _line(prefix: str, f: dataclasses.Field[Any]) -> str:
    return f"  {prefix}{f.name}={_default(f)}  {_meaning(f)}"


def _meaning(f: dataclasses.Field[Any]) -> str:
    allowed = must_be(f) if f.metadata.get("allowed") else ""
    for words in ("a finite number ", "a whole number ", "a list without repetition of "):
        allowed = allowed.replace(words, "")
    meaning = str(f.metadata.get("doc", ""))
    return f"{meaning} ({allowed})" if allowed else meaning


def _default(f: dataclasses.Field[Any]) -> str:
    value = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
    if value is None or value == MISSING:
        return "null" if value is None else "?"
    return str(value).lower() if isinstance(value, bool) else shown(value)
