"""Hydra entry point, nothing but: compose, check, run, record."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnsvm import guard
from attnsvm.claim import HeldError
from attnsvm.config import GROUPS, KINDS, ConfigError, RunConfig, SelectionConfig, SvmConfig
from attnsvm.identity import run_name, unknown_field, validated
from attnsvm.interrupt import stopping_with_children
from attnsvm.state import run_state
from attnsvm.usage import usage

INTERRUPTED = "interrupted; what was finished is on disk, the same command does the rest"


class SweepIncompleteError(RuntimeError):
    """Some runs of a sweep have no complete record; what they have is on disk and reported."""


def register() -> None:
    """Make the schema and the run's folder name known to Hydra."""
    store = ConfigStore.instance()
    store.store(name="_run", node=RunConfig)
    for group, options in GROUPS.items():
        for name, schema in options.items():
            store.store(group=f"schema/{group}", name=name, node=schema)
    store.store(group="schema", name="selection", node=SelectionConfig)
    store.store(group="schema", name="svm", node=SvmConfig)
    OmegaConf.register_new_resolver(
        "run_name", lambda *, _root_: run_name(validated(_root_)), replace=True
    )


register()


def job(composed: DictConfig) -> dict[str, Any]:
    """Run one cell and write its record; in a sweep a failure becomes a record as well."""
    config = validated(composed)
    hydra_config = HydraConfig.get()
    folder, command = Path(hydra_config.runtime.output_dir), list(hydra_config.overrides.task)
    if config.dry_run:
        return {"state": run_state(folder).state}
    from attnsvm.task import perform

    return {"state": perform(config, folder, command, hydra_config.mode is RunMode.MULTIRUN)}


def main() -> None:
    """Run the command line `attnsvm`: one run, or a sweep with `-m` or `sweep=NAME`."""
    if {"--help", "-h"} & set(sys.argv[1:]):
        _print_usage()
        return
    show_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra hands errors over; they are told below
    guard.install()
    entry = hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(job)
    with stopping_with_children():
        code = exit_code(entry, show_traces)
    sys.exit(code)


def _print_usage() -> None:
    try:
        print(usage(), flush=True)  # noqa: T201
    except BrokenPipeError:  # read by `head`: nobody wants the rest, nor a complaint at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code(command: Callable[[], Any], show_traces: bool = False) -> int:
    """Return 0 if `command` succeeds, else tell its error on stderr and return a code for it.

    2 for a config or an environment that the user can mend, 1 for a run that failed, 128 and the
    signal's number after a signal.
    """
    try:
        command()
    except KeyboardInterrupt as stop:
        print(f"attnsvm: {INTERRUPTED}", file=sys.stderr)  # noqa: T201
        return 128 + getattr(stop, "signum", signal.SIGINT)
    except Exception as error:
        message = user_message(error)
        if message is None or show_traces:
            traceback.print_exc()
        if message is not None:
            print(f"attnsvm: {message}", file=sys.stderr)  # noqa: T201
        return 1 if message is None or isinstance(error, SweepIncompleteError) else 2
    return 0


def user_message(error: BaseException) -> str | None:
    """Return what a user should read of `error`, None for an error that is not the user's."""
    chain = [error]
    while (below := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(below)
    for told_by in (_own_message, _schema_message, _hydra_message, _os_message):
        for link in chain:
            message = told_by(link)
            if message is not None:
                return message
    return None


def _own_message(error: BaseException) -> str | None:
    mine = isinstance(error, ConfigError | SweepIncompleteError | HeldError)
    return str(error) if mine else None


def _schema_message(error: BaseException) -> str | None:
    if not isinstance(error, OmegaConfBaseException) or error.object_type is None:
        return None
    known = getattr(error.object_type, "__dataclass_fields__", {})
    name = str(error.full_key).rpartition(".")[2]
    if known and name not in known:
        return f"{error.full_key}: {unknown_field(error.object_type)}"
    field = known.get(name)
    allowed = (field.metadata.get("allowed") or KINDS.get(str(field.type))) if field else None
    also = f"; allowed is {allowed}" if allowed is not None else ""
    return f"{error.full_key}: {str(error.msg).splitlines()[0]}{also}"


def _hydra_message(error: BaseException) -> str | None:
    misused = isinstance(error, ValueError) and str(error).startswith("Config group override")
    if not isinstance(error, HydraException) and not misused:
        return None
    return str(error).partition("\nConfig search path:")[0].strip()


def _os_message(error: BaseException) -> str | None:
    if not isinstance(error, OSError):
        return None
    return f"{error.filename or 'file system'}: {error.strerror or error}"


if __name__ == "__main__":
    main()
