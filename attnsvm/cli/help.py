"""The text of `attnsvm --help`, from the schema; Hydra's own help takes a second."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from attnsvm.config import GROUPS, PROBES, RunConfig, SelectionConfig, SvmConfig
from attnsvm.config.code import conf_folder

HEADER = """\
attnsvm - train attention, solve the SVM that it converges to, compare.

  one run               attnsvm data.n=6 data.T=8 data.d=10 parameterization=kq trials=100
  a whole experiment    attnsvm sweep=rank_vs_d
  an ad-hoc sweep       attnsvm -m data.d=2,4,8 optimizer=normalized_gd,gd
  a search (Optuna)     attnsvm -m hydra/sweeper=optuna \\
                          'objective=median(one_minus_corr_frobenius)' \\
                          'optimizer.lr=interval(0.01, 1)' hydra.sweeper.n_trials=20
  tracking              hydra/callbacks=mlflow | wandb | tensorboard
  less output           hydra/job_logging=quiet hydra/hydra_logging=quiet
  more output           hydra.verbose=[attnsvm]
  in colour             hydra/job_logging=colorlog hydra/hydra_logging=colorlog
  what would be run     attnsvm --cfg job
  columns of results    attnsvm --columns
  launchers, sweepers   attnsvm --hydra-help
"""


WIDTH = 96
"""Characters in a line of names."""


def help_text(own: Mapping[str, Sequence[Path]] | None = None) -> str:
    """Return the help text: experiments, groups with their options, fields with ranges.

    `own` are sweeps that are not attnsvm's, with their files.
    """
    parts = [HEADER, "Experiments, sweep=NAME", *_wrapped(experiments())]
    if own:
        parts += ["Your own and those of plug-ins", *(f"  {name}  {', '.join(map(str, files))}"
                  for name, files in own.items())]  # fmt: skip
    parts += [""]
    for group, options in GROUPS.items():
        parts += [f"{group}={' | '.join(options)}", *_shared_fields(group, options)]
        parts += [f"  cannot be used: {message}" for message in options.broken().values()] + [""]
    for group, schema in (("selection", SelectionConfig), ("svm", SvmConfig)):
        parts += [f"{group}={' | '.join(_files(group))}", *_lines(group, _fields(schema)), ""]
    parts += [f"probe=[{' | '.join(PROBES)}]  any number of them, as in probe=[rank,entropy]"]
    for name, probe in PROBES.items():
        parts += [f"  {name}: {_first_line(probe)}", *_lines(f"  probe.{name}", _fields(probe))]
    parts += [f"  cannot be used: {message}" for message in PROBES.broken().values()] + [""]
    run = [f for f in _fields(RunConfig) if f.metadata.get("doc")]
    return "\n".join([*parts, "The run", *_lines("", run), ""])


def _first_line(schema: type) -> str:
    return (schema.__doc__ or "").partition("\n")[0]


def experiments() -> list[str]:
    """Return the names of the experiments, the files of `conf/sweep`."""
    return _files("sweep")


def _files(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_folder() / group).glob("*.yaml"))


def _wrapped(words: list[str]) -> list[str]:
    lines = ["  "]
    for word in words:
        if len(lines[-1]) + len(word) > WIDTH:
            lines.append("  ")
        lines[-1] += word + "  "
    return [line.rstrip() for line in lines]


def _fields(schema: type) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(schema) if f.name != "_target_"]


def _shared_fields(group: str, options: Mapping[str, type]) -> list[str]:
    """Return the lines of a group's fields, each with the options that have it, if not all do.

    Defaults that differ from that of the first option are listed too.
    """
    owners: dict[str, dict[str, dataclasses.Field[Any]]] = {}
    for option, schema in options.items():
        for f in _fields(schema):
            owners.setdefault(f.name, {})[option] = f
    fields = [next(iter(having.values())) for having in owners.values()]
    notes = {
        name: _other_defaults(having) + _owners(list(having), list(options))
        for name, having in owners.items()
    }
    return _lines(group, fields, notes)


def _other_defaults(having: dict[str, dataclasses.Field[Any]]) -> str:
    first = _default(next(iter(having.values())))
    others = {option: _default(f) for option, f in having.items() if _default(f) != first}
    listed = ", ".join(f"{option} {default}" for option, default in others.items())
    return f" [default of {listed}]" if others else ""


def _owners(having: list[str], options: list[str]) -> str:
    missing = [option for option in options if option not in having]
    if not missing:
        return ""
    if len(missing) < len(having):
        return f" [not {', '.join(missing)}]"
    return f" [{', '.join(having)}]"


def _lines(
    group: str, fields: list[dataclasses.Field[Any]], notes: dict[str, str] | None = None
) -> list[str]:
    return [
        f"  {f'{group}.{f.name}'.lstrip('.')}={_default(f)}"
        f"  {f.metadata.get('doc', '')}{_allowed(f)}{(notes or {}).get(f.name, '')}"
        for f in fields
    ]


def _default(f: dataclasses.Field[Any]) -> str:
    value = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
    if value == MISSING:
        return "?"
    if isinstance(value, list):
        return f"[{','.join(str(item) for item in value)}]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(f: dataclasses.Field[Any]) -> str:
    allowed = f.metadata.get("allowed")
    words = (
        str(allowed).replace("a finite number ", "").replace("a list without repetition of ", "")
    )
    return f" ({words})" if allowed is not None else ""
