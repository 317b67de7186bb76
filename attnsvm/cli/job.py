"""A run in its folder: locked, resumed, and recorded even if it fails or is interrupted."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from attnsvm import record
from attnsvm.cli.signals import hand_on, interruptible
from attnsvm.config import ConfigError, RunConfig
from attnsvm.record import (
    LOCK_FILE,
    HeldError,
    RunRecord,
    locked,
    refuse_links,
    remove_orphans,
)
from attnsvm.record.provenance import provenance

log = logging.getLogger(__name__)


def perform(config: RunConfig, folder: Path, command: list[str], in_sweep: bool) -> str:
    """Run `config` and write its record to `folder`, unless another process did or is doing so.

    Parameters
    ----------
    config : RunConfig
        A checked config.
    folder : Path
        The folder of the run.
    command : list of str
        The overrides of the run.
    in_sweep : bool
        Whether an error is only recorded; otherwise it is raised as well.

    Returns
    -------
    str
        The state of the run, one of `attnsvm.record.state.STATES`.

    Raises
    ------
    ConfigError
        If the folder is a link: files would be written outside of the sweep's folder.
    HeldError
        If another process holds the lock of the run; in a sweep the run is skipped instead.
    KeyboardInterrupt
        If a signal ended it; the recorded state is `interrupted`.
    """
    refuse_links(folder.parent, [folder.name, f"{folder.name}/.hydra"])
    try:
        with locked(folder):
            remove_orphans(folder)
            if record.is_done(folder):
                log.info("%s: already done", folder)
                return "done"
            return _record(config, folder, command, in_sweep)
    except HeldError as error:
        if not in_sweep:
            raise
        log.warning("%s: skipped", error)
        return "running"
    except KeyboardInterrupt as stop:
        try:
            hand_on(stop)
        except Exception as error:  # submitit raises if it does not requeue
            log.warning("%s: %s", folder, error)
        return "interrupted"


def _record(config: RunConfig, folder: Path, command: list[str], in_sweep: bool) -> str:
    origin = provenance(config, command)

    def on_stuck(stop: KeyboardInterrupt) -> None:
        _record_interruption(folder, origin, stop)
        (folder / LOCK_FILE).unlink(missing_ok=True)
        log.warning("%s: interrupted (%s) during a compiled call", folder, stop)

    try:
        with interruptible(on_stuck):
            _use_allocated_cpus()
            from attnsvm import experiment  # imports torch, which is not needed before

            parts = _logged(experiment.parts(config), folder, config)
            counts = record.write(folder, parts, origin)
    except KeyboardInterrupt as stop:
        _record_interruption(folder, origin, stop)
        log.warning("%s: interrupted (%s)", folder, stop)
        raise
    except (Exception, SystemExit) as error:  # not submitit's exit, which occurs in `hand_on`
        if not isinstance(error, ConfigError):
            log.exception("run %s failed", folder.name)
        _record_failure(folder, origin, error)
        if not in_sweep:
            raise
        return "failed"
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    log.info("%s: %s", folder, told)
    return "done"


def _logged(parts: Iterable[RunRecord], folder: Path, config: RunConfig) -> Iterator[RunRecord]:
    """Yield the parts of a record; log the progress after each but the last."""
    seen = 0
    for part in parts:
        accepted = part.trials["status"] == "ok"
        seen += int(accepted.sum()) if config.selection.until_accepted else len(accepted)
        if seen < config.trials:
            log.info("%s: %d of %d instances", folder, seen, config.trials)
        yield part


def _record_interruption(folder: Path, origin: dict[str, object], stop: KeyboardInterrupt) -> None:
    """Record that the run was interrupted, unless its record was already complete."""
    if not record.is_done(folder):
        _record_failure(folder, origin, stop, "interrupted")


def _record_failure(
    folder: Path, origin: dict[str, object], error: BaseException, state: str = "failed"
) -> None:
    try:
        record.write_failure(folder, origin, error, state)
    except OSError as unwritable:  # for example a full disk, which may have caused the failure
        log.error("%s: %s, but this cannot be recorded: %s", folder, state, unwritable)


def _use_allocated_cpus() -> None:
    """Let torch use as many threads as SLURM allocated CPUs, not as many as the machine has."""
    if "SLURM_JOB_ID" in os.environ:
        import torch

        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
