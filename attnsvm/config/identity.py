"""The identity of a run: the fields that affect its numbers, its signature and its folder."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attnsvm.config.run import GROUPS, SECTIONS, WITHOUT_EFFECT, RunConfig
from attnsvm.config.sources import code_digest, content_digest, helpers
from attnsvm.config.version import __version__

UNNAMED_OPTIONS = {"model": "cross_attention", "loss": "logistic"}
"""Options that the name of a run's folder leaves out."""

UNNAMED_FIELDS = (
    "_target_", "n", "T", "d", "path", "init_path", "text", "transformer", "extensions",
    "hypotheses", "keep_path", "keep_stalled", "record", "record_every", "norms",
)  # fmt: skip
"""Fields that it leaves out: sizes, which it has anyway, paths of files, and what is recorded."""

NAME_LENGTH = 80
"""Largest number of characters of the name, besides the 13 of the signature."""


def option_names(config: RunConfig) -> dict[str, str]:
    """Return the name of the chosen option of every group, as a user types it."""
    found = {}
    for group, options in GROUPS.items():
        node = getattr(config, group)
        same = (name for name, schema in options.items()
                if (type(node), node._target_) == (schema, vars(schema)["_target_"]))  # fmt: skip
        found[group] = next(same, str(node._target_))
    return found


def result_fields(config: RunConfig) -> dict[str, Any]:
    """Return the fields on which the run's numbers depend, as plain data."""
    fields = dataclasses.asdict(config)
    return {key: value for key, value in fields.items() if key not in WITHOUT_EFFECT}


def signature(config: RunConfig, fields: dict[str, Any] | None = None) -> str:
    """Return the run's identity: sha256 of its result-affecting fields and the code's version.

    Of the files of data=file, probe=[distance], optimizer.init_path and data=pretrained the content
    counts, not the path; of plug-ins their code, not only their names. `fields` are its
    `result_fields`, if they are known.
    """
    found = fields or result_fields(config)
    return digest({**found, "extensions": extension_code(config)}, __version__)


def digest(fields: dict[str, Any], version: str) -> str:
    """Return the sha256 of a version and fields, with the content of each file for its path."""
    fields = copy.deepcopy(fields)
    for node, key, content in named_files(fields):
        if content is not None:
            node[key] = content
    text = json.dumps([version, fields], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def named_files(fields: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str | None]]:
    """Yield the parts of a config that name files, the field, and the digest of what it names.

    Parts are data, probes and the optimizer; the digest is None for what is not here.
    """
    parts = [(part, "path") for part in (fields["data"], *fields["probe"].values())]
    parts += [(fields["optimizer"], "init_path")]
    parts += [(fields["data"], key) for key in ("text", "transformer")]
    for part, key in parts:
        if isinstance(part, dict) and isinstance(part.get(key), str):
            yield part, key, content_digest(part[key], is_model=key == "transformer")


def extension_code(config: RunConfig) -> dict[str, str]:
    """Return the digest of the code of each plug-in's package, and the helpers that it counts."""
    named = {package: ", ".join(helpers(package)) for package in config.extensions}
    return {
        package: code_digest(package) + (f" with {others}" if others else "")
        for package, others in named.items()
    }


def plan_digest(configs: Iterable[RunConfig]) -> str:
    """Return the identity of a sweep's cells, 12 hexadecimal digits: the same for the same command.

    Neither the order of the cells counts, nor the content of a data file: what a failed run lacked
    may be there when the command is typed again.
    """
    cells = {json.dumps(result_fields(config), sort_keys=True) for config in configs}
    return hashlib.sha256(json.dumps(sorted(cells)).encode()).hexdigest()[:12]


def run_name(config: RunConfig) -> str:
    """Return the folder name of a run: what distinguishes it, then the start of its signature."""
    fields = result_fields(config)
    return folder_name(option_names(config), fields, signature(config, fields))


def folder_name(names: Mapping[str, str], fields: Mapping[str, Any], signature: str) -> str:
    """Return the folder name of a run with these options, fields and signature."""
    sizes = "".join(f"_{key}{fields['data'][key]}" for key in "nTd" if key in fields["data"])
    options = [names[group] for group in ("parameterization", "head", "optimizer")]
    options += [names[group] for group, usual in UNNAMED_OPTIONS.items() if names[group] != usual]
    words = "_".join([f"{names['data']}{sizes}", *options, *_differing(names, fields)])
    words = words.replace("e+", "e")  # 1e+06, which is not 1e-06
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "-" for c in words)
    return f"{safe[:NAME_LENGTH]}-{signature[:12]}"


def _differing(names: Mapping[str, str], fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of our options that are not the default, with their values."""
    schemas = {group: options.own.get(names[group]) for group, options in GROUPS.items()}
    for section, schema in {**schemas, **SECTIONS, "": RunConfig}.items():
        given = fields[section] if section else fields
        for one in dataclasses.fields(schema) if schema else ():
            value = given.get(one.name)
            plain = isinstance(value, bool | int | float | str)
            if plain and one.name not in UNNAMED_FIELDS and value != one.default:
                text = f"{value:.6g}" if isinstance(value, float) else value
                begin = f"{one.name}-" if isinstance(value, str) else one.name
                yield one.name if value is True else f"{begin}{text}"
