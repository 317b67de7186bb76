"""A run in its folder: locked, resumed, and recorded even if it fails or is interrupted."""

import logging
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnsvm import record
from attnsvm.cli.errors import outcome
from attnsvm.cli.signals import hand_on, interruptible
from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.groups import one_layer_problems
from attnsvm.display.pace import doing
from attnsvm.record.folder import write, write_failure
from attnsvm.record.provenance import provenance
from attnsvm.record.schema import RunRecord
from attnsvm.record.state import complete, refuse_kept, refuse_obstacle

log = logging.getLogger(__name__)


def perform(
    config: RunConfig, folder: Path, command: list[str], in_sweep: bool, rerun: bool = False
) -> str:
    """Run `config` and write its record to `folder`, unless another process did or is doing so.

    `command` are its overrides; `rerun` is whether a stale record is to be made again. In a sweep
    (`in_sweep`) an error is only recorded, and a run that another process holds is skipped;
    otherwise both are raised. Returns the state of the run.
    """
    refuse_obstacle(folder)
    state = record.run_state(folder)
    if not state.finished or rerun:  # no signal can break this import
        import attnsvm.experiment.stages  # noqa: F401
    run = _Run(config, folder, in_sweep, rerun, provenance(config, command))
    with ExitStack() as lock:  # outlives the block below: an interruption is recorded under it
        try:
            with interruptible(run.on_stuck):  # before the lock: from there on, no signal is missed
                lock.enter_context(record.locked(folder))
                run.held = True
                return run.state()
        except record.HeldError as error:
            if not in_sweep:
                raise
            log.warning("%s: skipped", error)
            return "running"
        except KeyboardInterrupt as stop:
            run.record_interruption(stop)
            stopped = stop
    try:
        hand_on(stopped)
    except Exception as error:  # submitit raises if it does not requeue
        log.warning("%s: %s", folder, error)
    return "interrupted"


@dataclass
class _Run:
    """A run whose record, begun with `origin`, this process writes under the lock of the folder."""

    config: RunConfig
    folder: Path
    in_sweep: bool
    rerun: bool
    origin: Mapping[str, Any]
    held: bool = False

    def state(self) -> str:
        """Run, record, and return the state of the run."""
        complete(self.folder)
        before = record.run_state(self.folder)
        try:
            refuse_kept(self.folder, before, self.config)
        except record.CorruptRecordError as error:
            if not self.in_sweep:
                raise
            log.error("%s", error)
            return error.state
        if before.finished and not (before.state == "stale" and self.rerun):
            self._say(f"already done{before.reason and f', stale ({before.reason})'}, ")
            return before.state
        try:
            from attnsvm import experiment

            if "SLURM_JOB_ID" in os.environ:  # as many threads as SLURM gave CPUs to the job
                import torch

                torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
            write(self.folder, _counted(experiment.parts(self.config), self.config), self.origin)
        except (Exception, SystemExit) as error:  # not submitit's exit, which occurs in `hand_on`
            if not isinstance(error, ConfigError):
                log.exception("run %s failed", self.folder.name)
            self._record_failure(error, "failed")
            if not self.in_sweep:
                raise
            return "failed"
        self._say()
        return "done"

    def _say(self, before: str = "") -> None:
        """Say how the run ended; if it is no part of a sweep, also its result and what is next."""
        run = record.read_run(self.folder)
        counts = ", ".join(f"{n} {status}" for status, n in sorted(run["statuses"].items()))
        times = ", ".join(f"{name} {record.duration(s)}" for name, s in run["timings_s"].items())
        if self.in_sweep:
            log.info("%s: %s%s", self.folder, before, counts)
            log.debug("%s: %s", self.folder, times)
            return
        from attnsvm.sweeps.aggregate import read_sweep
        from attnsvm.sweeps.conclusion import conclusion

        _, *findings = conclusion(read_sweep(self.folder))  # the first line is on the counts
        inside = self.folder.is_relative_to(Path.cwd())
        folder = shlex.quote(os.path.relpath(self.folder) if inside else str(self.folder))
        commands = f"Next: attnsvm-report {folder}\n      attnsvm-verify {folder}"
        lines = "\n".join([f"{before}{counts}", *findings, f"Time: {times}", commands])
        outcome.info("%s: %s", self.folder, lines)

    def on_stuck(self, stop: KeyboardInterrupt) -> None:
        """Record the interruption from another thread, just before the process ends."""
        self.record_interruption(stop)
        if self.held:
            (self.folder / record.LOCK_FILE).unlink(missing_ok=True)

    def record_interruption(self, stop: KeyboardInterrupt) -> None:
        """Record that the run was interrupted, unless its record was already complete."""
        log.warning("%s: interrupted (%s)", self.folder, str(stop) or "SIGINT")
        if self.held:
            self._record_failure(stop, "interrupted")

    def _record_failure(self, error: BaseException, state: str) -> None:
        try:
            complete(self.folder)
            kept = record.run_state(self.folder).state
            if kept not in record.KEPT:
                write_failure(self.folder, self.origin, error, state)
            elif kept != "done":
                log.error("%s: %s (%s); the record, %s, stays", self.folder, state, error, kept)
        except OSError as unwritable:  # for example a full disk, which may have caused the failure
            log.error("%s: %s, but this cannot be recorded: %s", self.folder, state, unwritable)


def _counted(parts: Iterable[RunRecord], config: RunConfig) -> Iterator[RunRecord]:
    """Yield the parts of a record, and tell how many instances they have."""
    seen, wanted = 0, config.trials * one_layer_problems(vars(config.model))
    with doing(lambda: f"{seen} of {wanted} instances done" if seen else ""):
        for part in parts:
            yield part
            accepted = part.trials["status"] == "ok"
            seen += int(accepted.sum()) if config.selection.until_accepted else len(accepted)
