"""A run in its folder: claimed, resumed, recorded, whatever happens to it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from attnsvm import record
from attnsvm.claim import CLAIM_FILE, HeldError, claimed
from attnsvm.config import ConfigError, RunConfig
from attnsvm.interrupt import hand_on, interruptible
from attnsvm.provenance import provenance
from attnsvm.record import RunRecord
from attnsvm.storage import remove_orphans

log = logging.getLogger(__name__)


def perform(config: RunConfig, folder: Path, command: list[str], in_sweep: bool) -> str:
    """Run `config` and write its record to `folder`, unless it is there or in work elsewhere.

    Parameters
    ----------
    config : RunConfig
        A checked config.
    folder : Path
        The run's own folder.
    command : list of str
        The overrides that asked for the run.
    in_sweep : bool
        Whether an error is left on record only; otherwise it is raised as well.

    Returns
    -------
    str
        The state of the run, one of `attnsvm.state.STATES`.

    Raises
    ------
    ConfigError
        If the folder is a link: what is written there would leave the sweep's folder.
    HeldError
        If another process works on the run, outside a sweep.
    KeyboardInterrupt
        If a signal ended it; the record says `interrupted`.
    """
    _refuse_link(folder)
    try:
        with claimed(folder):
            remove_orphans(folder)
            if record.is_done(folder):
                log.info("%s: done already", folder)
                return "done"
            return _record(config, folder, command, in_sweep)
    except HeldError as error:
        if not in_sweep:
            raise
        log.warning("%s: left to it", error)
        return "running"
    except KeyboardInterrupt as stop:
        try:
            hand_on(stop)
        except Exception as error:  # submitit's way to say that it does not requeue
            log.warning("%s: %s", folder, error)
        return "interrupted"


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink() or (folder / ".hydra").is_symlink():
        raise ConfigError(f"{folder}: a link; allowed is a folder of its own for every run")


def _record(config: RunConfig, folder: Path, command: list[str], in_sweep: bool) -> str:
    origin = provenance(config, command)

    def last_words(stop: KeyboardInterrupt) -> None:
        _record_interruption(folder, origin, stop)
        (folder / CLAIM_FILE).unlink(missing_ok=True)
        log.warning("%s: interrupted (%s) within a compiled call", folder, stop)

    try:
        with interruptible(last_words):
            _use_allocated_cpus()
            from attnsvm import experiment  # torch is not needed until here

            parts = _told(experiment.parts(config), folder, config)
            counts = record.write(folder, parts, origin)
    except KeyboardInterrupt as stop:
        _record_interruption(folder, origin, stop)
        log.warning("%s: interrupted (%s)", folder, stop)
        raise
    except (Exception, SystemExit) as error:  # submitit exits in `hand_on` only
        if not isinstance(error, ConfigError):
            log.exception("run %s failed", folder.name)
        _record_failure(folder, origin, error)
        if not in_sweep:
            raise
        return "failed"
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    log.info("%s: %s", folder, told)
    return "done"


def _told(parts: Iterable[RunRecord], folder: Path, config: RunConfig) -> Iterator[RunRecord]:
    """Yield the parts of a record; tell how far it is after each but the last."""
    seen = 0
    for part in parts:
        accepted = part.trials["status"] == "ok"
        seen += int(accepted.sum()) if config.selection.until_accepted else len(accepted)
        if seen < config.trials:
            log.info("%s: %d of %d instances", folder, seen, config.trials)
        yield part


def _record_interruption(folder: Path, origin: dict[str, object], stop: KeyboardInterrupt) -> None:
    """Write that the run was interrupted, unless the signal came when all was written."""
    if not record.is_done(folder):
        _record_failure(folder, origin, stop, "interrupted")


def _record_failure(
    folder: Path, origin: dict[str, object], error: BaseException, state: str = "failed"
) -> None:
    try:
        record.write_failure(folder, origin, error, state)
    except OSError as unwritable:  # the disk that made the run fail
        log.error("%s: %s, which cannot be recorded: %s", folder, state, unwritable)


def _use_allocated_cpus() -> None:
    """Let torch take the CPUs that SLURM allocated; it counts those of the machine otherwise."""
    if "SLURM_JOB_ID" in os.environ:
        import torch

        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
