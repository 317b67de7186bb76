"""The Hydra entry point: compose, check, run, record."""

import os
import sys
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from attnsvm.cli.columns import columns_text
from attnsvm.cli.command_line import PACKAGED, CommandLine, check_sweep
from attnsvm.cli.errors import SweepIncompleteError, exit_code, user_message
from attnsvm.cli.help import help_text
from attnsvm.cli.memory import this_machine
from attnsvm.cli.objective import quoted
from attnsvm.cli.signals import stopping_with_children
from attnsvm.cli.sweep import OWN, check_run, close_others, rerun, typed
from attnsvm.config import ConfigError
from attnsvm.config.compose import register, validated
from attnsvm.config.plugins import use_extensions
from attnsvm.config.sources import conf_folder
from attnsvm.config.version import __version__
from attnsvm.display.pace import speaking

register()


class _Refusal(BaseException):
    """A ConfigError of a single run, past Hydra, which would print all overrides before it."""


def run_cell(composed: DictConfig) -> dict[str, Any] | float | None:
    """Run one cell, as `_run_cell` does; a ConfigError of a single run is a refusal."""
    try:
        return _run_cell(composed)
    except ConfigError as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            raise
        raise _Refusal from error


def _run_cell(composed: DictConfig) -> dict[str, Any] | float | None:
    """Run one cell and write its record; return its objective, or its state if it has none.

    An objective that is undefined is None; in a sweep a failure becomes a record as well.
    """
    config = validated(composed)
    hydra_config = HydraConfig.get()
    in_sweep = hydra_config.mode is RunMode.MULTIRUN
    folder = Path(hydra_config.runtime.output_dir)
    command = typed(hydra_config, "task")
    check_sweep(composed, hydra_config, in_sweep)
    checked = in_sweep and hydra_config.sweeper._target_ == OWN  # it checks all cells at its start
    objective = check_run(config, hydra_config, None if checked else this_machine())
    if config.dry_run:
        from attnsvm.cli.dry_run import log_plan

        log_plan(folder.parent, {folder.name: command}, {folder.name: config})
        return {}
    from attnsvm.cli.job import perform
    from attnsvm.record import link_latest

    if not in_sweep:
        link_latest(folder, Path(hydra_config.runtime.cwd))
    state = perform(config, folder, command, in_sweep, rerun(hydra_config))
    return {"state": state} if objective is None else objective.of_run(folder)


def main() -> None:
    """Run the command line `attnsvm`: one run, or a sweep with `-m` or `sweep=NAME`."""
    show_traces = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises errors instead of printing them
    with speaking(), stopping_with_children():
        code = exit_code(_entry, show_traces)
    sys.exit(code)


def _entry() -> None:
    """Run the command with the options of the plug-ins that it names."""
    words = sys.argv[1:]
    line = CommandLine(words)
    if extensions := line.extensions:
        use_extensions(extensions)
        register()
    if words[:1] in (["cite"], ["export"]):
        from attnsvm.sweeps.cite import citation
        from attnsvm.sweeps.export import export

        text = (citation if words[0] == "cite" else export)(words[1:])
    elif line.flags.version:
        text = f"attnsvm {__version__}"
    elif line.flags.help:
        text = help_text(line.topics, {group: line.user_files(group) for group in PACKAGED})
    elif line.flags.columns:
        text = columns_text(line.topics)
    else:
        line.check()
        sys.argv[1:] = quoted(line.flags_first)
        return _run_hydra()
    print(text, flush=True)  # noqa: T201
    return None


def _run_hydra() -> None:
    """Run Hydra; the sweep of another sweeper ends with its report, even after an error."""
    conf = str(conf_folder())
    try:
        hydra.main(version_base="1.3", config_path=conf, config_name="config")(run_cell)()
    except _Refusal as refused:
        raise ConfigError(str(refused.__cause__)) from refused.__cause__
    except Exception as error:
        incomplete, reason = close_others(), user_message(error)
        if incomplete and reason and not isinstance(error, ConfigError):
            # as Optuna's, if no run has a number
            raise SweepIncompleteError(f"{incomplete}\n{reason}") from error
        raise
    if incomplete := close_others():
        raise SweepIncompleteError(incomplete)


if __name__ == "__main__":
    main()
