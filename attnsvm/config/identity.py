"""The identity of a run: the fields that affect its numbers, its signature and its folder."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attnsvm.config.fields import shown, values_before
from attnsvm.config.run import GROUPS, PROBES, SECTIONS, WITHOUT_EFFECT, RunConfig
from attnsvm.config.sources import code_digest, content_digest, helpers

ABSENT = object()

OWN_PROBES = {vars(schema)["_target_"]: schema for schema in PROBES.own.values()}
"""The schemas of attnsvm's probes, by class."""

UNNAMED_OPTIONS = {"model": "cross_attention", "loss": "logistic"}
"""Options that the name of a run's folder leaves out."""

UNNAMED_FIELDS = (
    "_target_",
    "n",
    "T",
    "d",
    "path",
    "init_path",
    "text",
    "transformer",
    "extensions",
    "hypotheses",
    "keep_path",
    "keep_stalled",
    "record",
    "record_every",
    "norms",
)
"""Fields that it leaves out: sizes, which it has anyway, paths of files, and what is recorded."""

NAME_LENGTH = 80
"""Largest number of characters of the name, besides the 13 of the signature."""


def option_names(config: RunConfig) -> dict[str, str]:
    """Return the name of the chosen option of every group, as a user types it."""
    names = {}
    for group, options in GROUPS.items():
        node = getattr(config, group)
        same = (
            name
            for name, schema in options.items()
            if (type(node), node._target_) == (schema, vars(schema)["_target_"])
        )
        names[group] = next(same, str(node._target_))
    return names


def result_fields(config: RunConfig) -> dict[str, Any]:
    """Return the fields on which the run's numbers depend, as plain data."""
    fields = dataclasses.asdict(config)
    return {key: value for key, value in fields.items() if key not in WITHOUT_EFFECT}


def signature(config: RunConfig) -> str:
    """Return the run's identity: sha256 of its result-affecting fields, as in `digest`.

    Of the files of data=file, probe=[distance], optimizer.init_path and data=pretrained the content
    counts, not the path; of plug-ins their code, not only their names.
    """
    return digest(result_fields(config), option_names(config), extension_code(config))


def digest(
    fields: Mapping[str, Any],
    options: Mapping[str, str],
    code: Mapping[str, str],
    *,
    contents: bool = True,
) -> str:
    """Return the sha256 of the fields that differ from `values_before`, and of plug-ins' `code`.

    So a new field that has its value of before changes nothing. Of a group the class counts too. Of
    a plug-in's option all fields count, and the `code`; of a file that is named the content, or the
    path without `contents`.
    """
    fields = with_contents(fields) if contents else fields
    own = _differing("", RunConfig, fields) | in_parts(fields, options, _differing)
    return _sha256({**own, "extensions": code})


def digest_before_formats(fields: Mapping[str, Any], code: Mapping[str, str], version: str) -> str:
    """Return the signature of a run as it was before records had a format: of all its fields."""
    return _sha256([version, with_contents({**fields, "extensions": code})])


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _differing(place: str, schema: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    before = values_before(schema)
    return {name: value for name, value in fields.items() if before.get(name, ABSENT) != value}


def in_parts(
    fields: Mapping[str, Any],
    options: Mapping[str, str],
    change: Callable[[str, Any, Mapping[str, Any]], Any],
) -> dict[str, Any]:
    """Return the groups, sections and probes of a config, each as `change(place, schema, fields)`.

    The schema of a plug-in's option is None.
    """
    probes = {
        name: change(f"probe.{name}", OWN_PROBES.get(str(node.get("_target_"))), node)
        for name, node in fields["probe"].items()
    }
    of_options = schemas_of(options).items()
    parts = {name: change(name, schema, fields[name]) for name, schema in of_options}
    return {**parts, "probe": probes}


def schemas_of(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of each group's option and of each section; None of a plug-in's."""
    groups = {name: known.own.get(options[name]) for name, known in GROUPS.items()}
    return {**groups, **SECTIONS}


def with_contents(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the sha256 of a file's content for its path, if it is here."""
    copied = copy.deepcopy(dict(fields))
    for node, key, content in named_files(copied):
        if content is not None:
            node[key] = content
    return copied


def named_files(fields: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str | None]]:
    """Yield the parts of a config that name files, the field, and the digest of what it names.

    Parts are data, probes and the optimizer; the digest is None for what is not here.
    """
    data, optimizer = fields["data"], fields["optimizer"]
    parts = [(part, "path") for part in (data, *fields["probe"].values())]
    for part, key in (*parts, (optimizer, "init_path"), (data, "text"), (data, "transformer")):
        if isinstance(part, dict) and isinstance(part.get(key), str):
            yield part, key, content_digest(part[key], is_model=key == "transformer")


def extension_code(config: RunConfig) -> dict[str, str]:
    """Return the digest of the code of each plug-in's package, and the helpers that it counts."""
    named = {package: ", ".join(helpers(package)) for package in config.extensions}
    return {
        p: code_digest(p) + (f" with {others}" if others else "") for p, others in named.items()
    }


# --- as users type them ---------------------------------------------------------------------------


def fields_of(config: RunConfig) -> dict[str, Any]:
    """Return the fields of a config as users type them: `{"data": "sphere", "data.d": 4}`."""
    return recorded_fields(result_fields(config), option_names(config))


def recorded_fields(config: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a run on record as users type them.

    `config` is plain data, a group a mapping of its fields; `options` has the option of each group.
    """
    typed: dict[str, Any] = dict(options)
    for key, value in config.items():
        if key == "probe":
            typed["probe"] = plain_value(sorted(value))
            typed |= recorded_fields({f"probe.{name}": part for name, part in value.items()}, {})
        elif isinstance(value, Mapping):
            below = {name: part for name, part in value.items() if name != "_target_"}
            typed |= {f"{key}.{name}": plain_value(part) for name, part in below.items()}
        elif key not in options:
            typed[key] = plain_value(value)
    return typed


def plain_value(value: Any) -> Any:
    """Return a value as a number, a word or None; a list as users type it."""
    if isinstance(value, list):
        return shown(value)
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else value


def plan_digest(configs: Iterable[RunConfig]) -> str:
    """Return the identity of a sweep's cells, 12 hexadecimal digits: the same for the same command.

    Neither the order of the cells counts, nor the content of a data file: what a failed run lacked
    may be there when the command is typed again.
    """
    return digest_of_cells(fields_of(config) for config in configs)


def digest_of_cells(cells: Iterable[Mapping[str, Any]]) -> str:
    """Return the `plan_digest` of cells, each its `fields_of`, in this version or an older one."""
    texts = set[str]()
    for cell in cells:
        schemas = schemas_of({group: str(cell.get(group)) for group in GROUPS})
        schemas |= {f"probe.{name}": schema for name, schema in PROBES.own.items()}
        known = {name: values_before(schema) for name, schema in schemas.items()}
        before = recorded_fields({**values_before(RunConfig), **known}, {})
        own = {name: value for name, value in cell.items() if before.get(name, ABSENT) != value}
        texts.add(json.dumps(own, sort_keys=True))
    return _sha256(sorted(texts))[:12]


# --- folders --------------------------------------------------------------------------------------


def run_name(config: RunConfig) -> str:
    """Return the folder name of a run: what distinguishes it, then the start of its signature."""
    return folder_name(option_names(config), result_fields(config), signature(config))


def folder_name(names: Mapping[str, str], fields: Mapping[str, Any], signature: str) -> str:
    """Return the folder name of a run with these options, fields and signature."""
    sizes = "".join(f"_{key}{fields['data'][key]}" for key in "nTd" if key in fields["data"])
    options = [names[group] for group in ("parameterization", "head", "optimizer")]
    options += [names[group] for group, usual in UNNAMED_OPTIONS.items() if names[group] != usual]
    words = "_".join([f"{names['data']}{sizes}", *options, *_words(names, fields)])
    words = words.replace("e+", "e")  # 1e+06, which is not 1e-06
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_.") else "-" for c in words)
    return f"{safe[:NAME_LENGTH]}-{signature[:12]}"


def _words(options: Mapping[str, str], fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of our options that differ from `values_before`, with their values."""
    for section, schema in {**schemas_of(options), "": RunConfig}.items():
        values = fields[section] if section else fields
        for name, usual in values_before(schema).items():
            value = values.get(name)
            plain = isinstance(value, bool | int | float | str)
            if plain and name not in UNNAMED_FIELDS and value != usual:
                text = f"{value:.6g}" if isinstance(value, float) else value
                begin = f"{name}-" if isinstance(value, str) else name
                yield name if value is True else f"{begin}{text}"
