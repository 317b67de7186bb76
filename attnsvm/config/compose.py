"""The config of a run: composed by Hydra from `conf` and the schema, then checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from attnsvm.config.fields import ConfigError
from attnsvm.config.identity import run_name
from attnsvm.config.instantiate import check_extensions, check_package, unknown_field
from attnsvm.config.plugins import use_extensions
from attnsvm.config.probe import MAX_NAME, ProbeConfig
from attnsvm.config.run import ALL_GROUPS, GROUPS, SECTIONS, RunConfig
from attnsvm.config.sources import conf_folder, package_of


def register() -> None:
    """Register the schema and the name of a run's folder with Hydra."""
    store = ConfigStore.instance()
    store.store(name="_run", node=RunConfig)
    for group, options in ALL_GROUPS.items():
        for name, schema in options.items():
            store.store(group=f"schema/{group}", name=name, node=schema)
            if name not in options.own:  # ours have a file in conf/
                package = f"probe.{name}" if group == "probe" else None
                store.store(group=group, name=name, node=schema, package=package)
    for name, schema in SECTIONS.items():
        store.store(group="schema", name=name, node=schema)
    OmegaConf.register_new_resolver(
        "run_name", lambda *, _root_: run_name(validated(_root_)), replace=True
    )


def composed(overrides: Sequence[str]) -> RunConfig:
    """Return the config of a run with these overrides."""
    register()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return validated(compose("config", list(overrides)))


def validated(composed: DictConfig) -> RunConfig:
    """Return the config that Hydra composed, with every field declared, typed and in range."""
    run = [str(key) for key in composed if key != "hydra"]
    for name in run:
        if name not in RunConfig.__dataclass_fields__:
            raise ConfigError(f"{name}: {unknown_field(name, RunConfig)}")
    fields = OmegaConf.masked_copy(composed, run)
    if missing := OmegaConf.missing_keys(fields):
        raise ConfigError(f"{min(missing)}: a value is required, as in {min(missing)}=VALUE")
    plain: Any = OmegaConf.to_object(fields)
    config = RunConfig(**plain)
    check_extensions(config.extensions)
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


def _nodes(config: RunConfig) -> Iterator[tuple[str, Any]]:
    """Yield the options of the groups and the probes, each with the name of its place."""
    for group in (*GROUPS, *SECTIONS):
        yield group, getattr(config, group)
    for name, probe in config.probe.items():
        yield f"probe.{name}", probe
