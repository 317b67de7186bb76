"""From a composed config to a checked `RunConfig`, its signature and the name of its folder."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import stat
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from attnsvm.config.code import code_digest, package_of
from attnsvm.config.fields import ConfigError
from attnsvm.config.instantiate import check_extensions, check_package
from attnsvm.config.names import did_you_mean
from attnsvm.config.plugins import use_extensions
from attnsvm.config.pretrained import model_files
from attnsvm.config.probe import MAX_NAME, ProbeConfig
from attnsvm.config.run import GROUPS, PROBES, WITHOUT_EFFECT, RunConfig
from attnsvm.config.version import __version__

LARGEST = 2**37
"""Most bytes of a file that a run reads."""

BLOCK = 2**20
"""Bytes of a file that are read at once."""


def validated(composed: DictConfig) -> RunConfig:
    """Return the config that Hydra composed, with every field declared, typed and in range.

    Raises
    ------
    ConfigError
        Names the first field that is undeclared, missing or out of range.
    """
    run = [key for key in composed if key != "hydra"]
    _refuse_undeclared(composed, RunConfig)
    missing = sorted(name for key in run for name in _missing(composed, str(key)))
    if missing:
        raise ConfigError(f"{missing[0]}: a value is required, as in {missing[0]}=VALUE")
    config = RunConfig(**{str(key): _plain(composed[key]) for key in run})
    check_extensions(config.extensions)
    use_extensions(config.extensions)
    _allow_plugins(config)
    for group in GROUPS:
        check_package(getattr(config, group)._target_, group, config.extensions)
    for name, probe in config.probe.items():
        named = name.isidentifier() and len(name) < MAX_NAME
        if not (named and isinstance(probe, ProbeConfig)):
            raise ConfigError(f"probe.{name}: must be a probe, its name letters, digits and _")
        check_package(probe._target_, f"probe.{name}", config.extensions)
    return config


def _allow_plugins(config: RunConfig) -> None:
    """Add the packages of the chosen options that plug-ins declare to `extensions`.

    So the config, and with it identity and record, does not depend on how they were declared.
    """
    chosen = [*(getattr(config, group) for group in GROUPS), *config.probe.values()]
    groups = [*GROUPS.values(), *[PROBES] * len(config.probe)]
    for schema, options in zip(map(type, chosen), groups, strict=True):
        if schema not in options.own.values() and schema in options.values():
            package = package_of(vars(schema)["_target_"])
            if package not in config.extensions:
                config.extensions.append(package)


def _missing(node: DictConfig, key: str) -> list[str]:
    """Return the names of the fields of `node` from `key` on that have no value."""
    if OmegaConf.is_missing(node, key):
        return [key]
    below = node[key]
    return sorted(OmegaConf.missing_keys(below)) if OmegaConf.is_dict(below) else []


def _plain(value: Any) -> Any:
    return OmegaConf.to_object(value) if OmegaConf.is_config(value) else value


def _refuse_undeclared(node: Any, schema: Any, prefix: str = "") -> None:
    """Raise ConfigError for a field below `node` that `schema`, a dataclass or dict, lacks."""
    known = [f.name for f in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else ()
    for key in node:
        if key == "hydra" and not prefix:
            continue
        if known and key not in known:
            raise ConfigError(f"{prefix}{key}: {unknown_field(key, schema)}")
        below: Any = None if OmegaConf.is_missing(node, key) else node[key]
        if OmegaConf.is_dict(below):
            _refuse_undeclared(below, OmegaConf.get_type(below), f"{prefix}{key}.")


def unknown_field(name: str, schema: type) -> str:
    """Return the end of an error message: the field that is meant, and all fields of `schema`."""
    names = [f.name for f in dataclasses.fields(schema) if not f.name.startswith("_")]
    group = getattr(schema, "GROUP", "")
    others = GROUPS.get(group, {}).items()
    having = [option for option, other in others if name in vars(other)["__dataclass_fields__"]]
    found = f"{group}={' | '.join(having)} has it; " if having else did_you_mean(name, names)
    return f"unknown field; {found}must be {' | '.join(names) or 'absent, there is none here'}"


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


def signature(config: RunConfig) -> str:
    """Return the run's identity: sha256 of its result-affecting fields and the code's version.

    Of the files of data=file, probe=[distance], optimizer.init_path and data=pretrained the content
    counts, not the path; of plug-ins their code, not only their names.
    """
    fields = result_fields(config)
    fields["extensions"] = extension_code(config)
    return digest(fields, __version__)


def digest(fields: dict[str, Any], version: str) -> str:
    """Return the sha256 of a version and fields, with the content of each file for its path."""
    fields = copy.deepcopy(fields)
    for node, key in named_files(fields):
        if (content := file_content(node, key)) is not None:
            node[key] = content
    text = json.dumps([version, fields], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def named_files(fields: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Return the parts of a config that name files, with the field: data, probes, optimizer."""
    parts = [(part, "path") for part in (fields["data"], *fields["probe"].values())]
    parts += [(fields["optimizer"], "init_path")]
    parts += [(fields["data"], key) for key in ("text", "transformer")]
    return [(p, key) for p, key in parts if isinstance(p, dict) and isinstance(p.get(key), str)]


def file_content(node: dict[str, Any], key: str) -> str | None:
    """Return the sha256 of a file, or of the digests of a model's files; None without them."""
    path = node[key]
    return _content_digest(model_files(path) if key == "transformer" else [Path(path)])


def extension_code(config: RunConfig) -> dict[str, str]:
    """Return the digest of the code of each plug-in's package."""
    return {package: code_digest(package) for package in config.extensions}


def plan_digest(configs: Iterable[RunConfig]) -> str:
    """Return the identity of a sweep's cells, 12 hexadecimal digits: the same for the same command.

    Neither the order of the cells counts, nor the content of a data file: what a failed run lacked
    may be there when the command is typed again.
    """
    cells = {json.dumps(result_fields(config), sort_keys=True) for config in configs}
    return hashlib.sha256(json.dumps(sorted(cells)).encode()).hexdigest()[:12]


def _content_digest(paths: list[Path]) -> str | None:
    """Return the sha256 of a file, or of the digests of several; None if one cannot be read."""
    digests = []
    for path in paths:
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                return None
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            digests.append(_file_digest(str(path), *version))
        except (OSError, ValueError):
            return None  # the run itself reports the error
    if len(digests) > 1:
        return hashlib.sha256("".join(digests).encode()).hexdigest()
    return digests[0] if digests else None


@lru_cache
def _file_digest(path: str, time: int, size: int, inode: int) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        for start in range(0, size, BLOCK):  # not to its end: some have none
            found.update(stream.read(min(BLOCK, size - start)))
    return found.hexdigest()


def run_name(config: RunConfig) -> str:
    """Return the folder name of a run: readable keys, then the start of its signature."""
    return folder_name(option_names(config), vars(config.data), signature(config))


def folder_name(names: Mapping[str, str], data: Mapping[str, Any], signature: str) -> str:
    """Return the folder name of a run with these options, fields of `data` and signature."""
    shape = "".join(f"_{key}{data[key]}" for key in "nTd" if key in data)
    words = f"{names['data']}{shape}_{names['parameterization']}_{names['head']}"
    safe = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "-" for c in words)
    return f"{safe[:80]}-{signature[:12]}"
