"""The config of a run, composed by Hydra from the files in `conf` and the registered schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from attnsvm.config import RunConfig, SelectionConfig, SvmConfig
from attnsvm.config.code import conf_folder
from attnsvm.config.identity import run_name, validated
from attnsvm.config.run import ALL_GROUPS


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
    store.store(group="schema", name="selection", node=SelectionConfig)
    store.store(group="schema", name="svm", node=SvmConfig)
    OmegaConf.register_new_resolver(
        "run_name", lambda *, _root_: run_name(validated(_root_)), replace=True
    )


def composed(overrides: Sequence[str]) -> RunConfig:
    """Return the config of a run with these overrides."""
    return validated(_compose(overrides))


def sweep_grid(name: str) -> dict[str, str]:
    """Return the values of each field that a named sweep varies."""
    config = _compose([f"sweep={name}"], return_hydra_config=True)
    return dict(config.hydra.sweeper.params)


def _compose(overrides: Sequence[str], **options: bool) -> Any:
    register()
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        return compose("config", list(overrides), **options)
