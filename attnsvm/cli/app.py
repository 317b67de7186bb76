"""The Hydra entry point: compose, check, run, record."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from attnsvm.cli.cite import citation
from attnsvm.cli.columns import columns_text
from attnsvm.cli.errors import SweepIncompleteError, exit_code, search_message
from attnsvm.cli.help import help_text
from attnsvm.cli.memory import refuse_without_disk, refuse_without_memory, this_machine
from attnsvm.cli.objective import Objective, objective_value, quoted
from attnsvm.cli.other_sweepers import OWN, close_others
from attnsvm.cli.signals import stopping_with_children
from attnsvm.cli.user_sweeps import (
    check_chosen_file,
    check_sweep,
    named_extensions,
    user_sweeps,
)
from attnsvm.config.code import conf_folder
from attnsvm.config.compose import register
from attnsvm.config.identity import validated
from attnsvm.config.instantiate import check_extensions
from attnsvm.config.plugins import use_extensions
from attnsvm.config.version import __version__

register()


def job(composed: DictConfig) -> dict[str, Any] | float | None:
    """Run one cell and write its record; in a sweep a failure becomes a record as well.

    Returns
    -------
    float or None
        The objective of the run, None if it is undefined; the state of a run without an objective.
    """
    config = validated(composed)
    hydra_config = HydraConfig.get()
    folder, command = Path(hydra_config.runtime.output_dir), list(hydra_config.overrides.task)
    text = config.objective
    objective = None if text is None else Objective.of(text, config.probe, config.svm.norms)
    check_sweep(composed, hydra_config, hydra_config.mode is RunMode.MULTIRUN)
    checked = hydra_config.mode is RunMode.MULTIRUN and hydra_config.sweeper._target_ == OWN
    if not checked:  # our sweeper checks all its cells at its start
        refuse_without_memory(config, this_machine())
    if config.dry_run:
        from attnsvm.cli.dry_run import log_plan

        log_plan(folder.parent, {folder.name: command}, {folder.name: config})
        return {}
    from attnsvm.cli.job import perform
    from attnsvm.record import run_state

    if not checked and run_state(folder, verify=False).state != "done":
        refuse_without_disk(config, folder)

    state = perform(config, folder, command, hydra_config.mode is RunMode.MULTIRUN)
    return {"state": state} if objective is None else objective_value(objective, folder)


def main() -> None:
    """Run the command line `attnsvm`: one run, or a sweep with `-m` or `sweep=NAME`."""
    if "--version" in sys.argv[1:]:
        _print(f"attnsvm {__version__}")
        return
    show_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises errors instead of printing them
    with stopping_with_children():
        code = exit_code(_entry, show_traces)
    sys.exit(code)


def _entry() -> None:
    """Run the command with the options of the plug-ins that it names."""
    if named := named_extensions(sys.argv[1:]):
        check_extensions(named)
        use_extensions(named)
        register()
    if sys.argv[1:2] == ["cite"]:
        _print(citation(sys.argv[2:]))
        return
    words = set(sys.argv[1:])
    if {"--help", "-h"} & words:
        _print(help_text(user_sweeps(sys.argv[1:])))
        return
    if "--columns" in words:
        _print(columns_text())
        return
    check_chosen_file(sys.argv[1:])
    sys.argv[1:] = quoted(sys.argv[1:])
    _complete(
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name="config")(job)
    )


def _complete(entry: Callable[[], Any]) -> None:
    """Run Hydra; a sweep of another sweeper ends with its report, even after an error.

    Raises
    ------
    SweepIncompleteError
        If a run of that sweep has no complete record.
    """
    try:
        entry()
    except Exception as error:
        missing, reason = close_others(), search_message(error)
        if missing and reason:
            raise SweepIncompleteError(f"{missing}\n{reason}") from error
        raise
    if missing := close_others():
        raise SweepIncompleteError(missing)


def _print(text: str) -> None:
    try:
        print(text, flush=True)  # noqa: T201
    except BrokenPipeError:  # the reader, for example `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
