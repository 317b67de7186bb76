"""What a config may make Hydra itself run and write: checked on every config that Hydra composes.

Hydra instantiates callbacks, launcher, sweeper and logging handlers from its own part of the config
before the job sees anything. `install` puts the check between composing and instantiating; Hydra
has no hook of its own there.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from hydra._internal import hydra as hydra_internal
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.conf import HydraConf
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnsvm.composition import composed_once
from attnsvm.config import ConfigError

PLUGIN_PACKAGES = ("hydra_plugins.", "hydra._internal.core_plugins.")
LOGGING_CLASSES = ("logging.StreamHandler", "logging.FileHandler", "logging.NullHandler")
LOGGING_FACTORIES = ("colorlog.ColoredFormatter",)
LOGGING_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
JOB_LOG = "${hydra.runtime.output_dir}/${hydra.job.name}.log"
RUN_FOLDER = "${run_name:}"

PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")
WHOLE_INTERPOLATION = re.compile(r"\s*\$\{.*\}\s*", re.DOTALL)

Leaf = tuple[str, str, Any]
"""Where a value stands (hydra.launcher.x._target_), its key and the value as written."""


class CheckedLoader(ConfigLoaderImpl):
    """Hydra's composer; what it composes is checked before anybody acts on it."""

    def load_configuration(self, *args: Any, **kwargs: Any) -> DictConfig:
        """Return the composed config.

        Raises
        ------
        ConfigError
            If its hydra section names code or files outside what is allowed.
        """
        composed = super().load_configuration(*args, **kwargs)
        check_hydra(composed)
        return composed

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """Return the config of a sweep's job, as Hydra composes it, checked as well."""
        by_hydra = partial(super().load_sweep_config, master_config)
        composed = composed_once(self, master_config, sweep_overrides, by_hydra)
        check_hydra(composed)
        return composed


def install() -> None:
    """Let Hydra compose with `CheckedLoader`."""
    hydra_internal.ConfigLoaderImpl = CheckedLoader  # type: ignore[attr-defined]


def check_hydra(composed: DictConfig) -> None:
    """Raise ConfigError if the hydra section of `composed` may run or write what it must not."""
    hydra = OmegaConf.to_container(composed.hydra, resolve=False)
    assert isinstance(hydra, dict)
    known = [*(f.name for f in dataclasses.fields(HydraConf)), "env"]  # Hydra's own defaults set it
    for key in hydra:
        if key not in known:
            raise ConfigError(f"hydra.{key!s}: unknown field; allowed is {' | '.join(known)}")
    for section in ("launcher", "sweeper"):
        _check_plugin(f"hydra.{section}", hydra[section], composed)
    callbacks = hydra["callbacks"] or {}
    for name in callbacks:  # the letters of a string are refused as any other non-callback
        callback = callbacks[name] if isinstance(callbacks, dict) else name
        _check_callback(f"hydra.callbacks.{name}", callback, composed)
    for section in ("job_logging", "hydra_logging"):
        for where, key, value in _leaves(f"hydra.{section}", hydra[section], composed):
            _check_logging(where, key, value)
    _check_names(hydra)


def _leaves(where: str, node: Any, composed: DictConfig, key: str = "") -> Iterator[Leaf]:
    """Yield the values of a tree; refuse an interpolation that stands for a tree of its own."""
    if isinstance(node, dict):
        for name, below in node.items():
            yield from _leaves(f"{where}.{name}", below, composed, str(name))
    elif isinstance(node, list):
        for index, below in enumerate(node):
            yield from _leaves(f"{where}.{index}", below, composed, key)
    else:
        if isinstance(node, str) and WHOLE_INTERPOLATION.fullmatch(node):
            _check_interpolation(where, node, composed)
        yield where, key, node


def _check_interpolation(where: str, text: str, composed: DictConfig) -> None:
    try:
        value = OmegaConf.select(composed, where)
    except OmegaConfBaseException:
        return  # it has no value yet, and none of a node
    if OmegaConf.is_config(value):
        raise ConfigError(f"{where}={text}: allowed are values here, not whole nodes")


def _check_plugin(where: str, node: Any, composed: DictConfig) -> None:
    for place, key, value in _leaves(where, node, composed):
        if key != "_target_":
            continue
        if place != f"{where}._target_" or not str(value).startswith(PLUGIN_PACKAGES):
            raise ConfigError(f"{place}={value}: allowed are Hydra's plugins (hydra_plugins)")


def _check_callback(where: str, node: Any, composed: DictConfig) -> None:
    if not isinstance(node, dict):
        raise ConfigError(f"{where}={node}: allowed is a callback: its _target_ and its options")
    for place, key, value in _leaves(where, node, composed):
        if key == "_target_":
            if place != f"{where}._target_":
                raise ConfigError(f"{place}={value}: allowed is one _target_, the callback's")
            _check_callback_class(place, str(value), ("attnsvm", "sweeps", *_extensions(composed)))


def _extensions(composed: DictConfig) -> list[str]:
    return [str(name) for name in composed.get("extensions") or []]


def _check_callback_class(where: str, target: str, packages: tuple[str, ...]) -> None:
    from hydra.experimental.callback import Callback

    module, _, name = target.rpartition(".")
    if module.split(".")[0] not in packages:
        raise ConfigError(
            f"{where}={target}: allowed are callbacks in {', '.join(packages)}; "
            f"name a package of your own with extensions=[package]"
        )
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{where}={target}: cannot be imported ({error})") from error
    own = isinstance(cls, type) and cls.__module__.split(".")[0] in packages
    if not (own and issubclass(cls, Callback)):
        raise ConfigError(f"{where}={target}: allowed are subclasses of hydra's Callback")


def _check_logging(where: str, key: str, value: Any) -> None:
    allowed: dict[str, tuple[str, ...]] = {
        "class": LOGGING_CLASSES,
        "()": LOGGING_FACTORIES,
        "filename": (JOB_LOG,),
        "stream": LOGGING_STREAMS,
    }
    words = allowed.get(key)
    if words is None and isinstance(value, str) and re.match(r"\s*[a-z]+://", value):
        words = LOGGING_STREAMS
    if key in (".", "_target_") or (words is not None and value not in words):
        raise ConfigError(f"{where}={value}: allowed is {' | '.join(words or ('no such key',))}")


def _check_names(hydra: Mapping[Any, Any]) -> None:
    if hydra["sweep"]["subdir"] != RUN_FOLDER:
        raise ConfigError(
            f"hydra.sweep.subdir={hydra['sweep']['subdir']}: allowed is {RUN_FOLDER}, the run's "
            f"identity; choose the sweep's folder with hydra.sweep.dir"
        )
    for where, name in (
        ("hydra.job.name", hydra["job"]["name"]),
        ("hydra.output_subdir", hydra["output_subdir"]),
    ):
        if name is not None and not PLAIN_NAME.fullmatch(str(name)):
            raise ConfigError(f"{where}={name!r}: allowed is a plain name of a file or folder")
