"""The config of a run: composed by Hydra from `conf` and the schema, then checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from attnsvm.config.fields import ConfigError, refusal
from attnsvm.config.identity import run_name
from attnsvm.config.instantiate import check_package, unknown_field
from attnsvm.config.plugins import use_extensions
from attnsvm.config.probe import MAX_NAME, ProbeConfig
from attnsvm.config.run import ALL_GROUPS, GROUPS, SECTIONS, RunConfig
from attnsvm.config.sources import conf_folder, package_of


def register() -> None:
    """Register the schema and the name of a run's folder with Hydra."""
    store = ConfigStore.instance()
    _store(store, "_run", RunConfig)
    for group, options in ALL_GROUPS.items():
        for name, schema in options.items():
            _store(store, name, schema, f"schema/{group}")
            if name not in options.own:  # ours have a file in conf/
                package = f"probe.{name}" if group == "probe" else None
                _store(store, name, schema, group, package)
    for name, schema in SECTIONS.items():
        _store(store, name, schema, "schema")
    OmegaConf.register_new_resolver(RUN_NAME, _run_name, replace=True)


@cache
def _store(store: ConfigStore, name: str, schema: type, *place: str | None) -> None:
    """Store a schema in a group and package, once."""
    store.store(name, schema, *place)


RUN_NAME = "run_name"


def _run_name(*, _root_: DictConfig) -> str:
    """Return the name of a run's folder; its reference where Hydra shows its own section only."""
    is_run = "model" in _root_
    return run_name(validated(_root_)) if is_run else f"${{{RUN_NAME}:}}"


def composed(overrides: Sequence[str]) -> RunConfig:
    """Return the config of a run with these overrides."""
    register()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return validated(compose("config", list(overrides)))


def validated(composed: DictConfig) -> RunConfig:
    """Return the config that Hydra composed, with every field declared, typed and in range.

    Fields of `composed` that refer to others get their values, once and for all.
    """
    names = [str(key) for key in composed if key != "hydra"]
    for name in names:
        if name not in RunConfig.__dataclass_fields__:
            raise ConfigError(f"{name}: {unknown_field(name, RunConfig)}")
    try:
        for place in [*references(composed)]:
            _set_value(composed, place)
        config = RunConfig(**{name: _plain(composed[name]) for name in names})
    except MissingMandatoryValue as error:
        field = error.full_key
        raise ConfigError(f"{field}: a value is required, as in {field}=VALUE") from error
    use_extensions(config.extensions)
    for name, probe in config.probe.items():
        if not (name.isidentifier() and len(name) < MAX_NAME and isinstance(probe, ProbeConfig)):
            raise ConfigError(f"probe.{name}: must be a probe, its name letters, digits and _")
    for _, node in _nodes(config):  # the config does not depend on how plug-ins were declared
        package = package_of(getattr(type(node), "_target_", "attnsvm"))
        if package not in ("attnsvm", MISSING, *config.extensions):
            config.extensions.append(package)
    for place, node in _nodes(config):
        for name in vars(node):
            if name not in node.__dataclass_fields__:
                raise ConfigError(f"{place}.{name}: {unknown_field(name, type(node))}")
        if hasattr(node, "_target_"):
            check_package(node._target_, place, config.extensions)
    return config


def _plain(value: Any) -> Any:
    """Return a field as plain data or schemas."""
    return OmegaConf.to_object(value) if OmegaConf.is_config(value) else value


def references(composed: DictConfig) -> Iterator[str]:
    """Yield the fields of a run that refer to something else, or lists with such an element."""

    def below(place: str, value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for name, part in value.items():
                yield from below(f"{place}.{name}", part)
        elif "${" in str(value):
            yield place

    fields: Any = OmegaConf.to_container(composed, resolve=False)
    fields.pop("hydra", None)
    for name, value in fields.items():
        yield from below(str(name), value)


def _set_value(composed: DictConfig, place: str) -> None:
    """Replace a reference by its value; a word that stands for a list is read as if typed."""
    above, _, key = place.rpartition(".")
    node: Any = OmegaConf.select(composed, above) if above else composed
    value, schema = node[key], getattr(OmegaConf.get_type(node), "__dataclass_fields__", {})
    is_list = key in schema and "list[" in str(schema[key].type).lower()
    if is_list and isinstance(value, str):
        value = OverridesParser.create().parse_override(f"{key}={value}").value()
        if not isinstance(value, list):
            raise ConfigError(refusal(schema[key], value, place))
    node[key] = value
    if OmegaConf.is_config(node[key]):
        OmegaConf.resolve(node[key])  # the elements of a list


def _nodes(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Yield the options of the groups and the probes, each with the name of its place."""
    for group in (*GROUPS, *SECTIONS):
        yield group, getattr(config, group)
    for name, probe in config.probe.items():
        yield f"probe.{name}", probe
