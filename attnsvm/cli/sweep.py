"""What every sweep has, whichever sweeper runs it: a folder of its own, and a report at its end.

Hydra's other sweepers, such as Optuna's or the basic one, choose the runs and know nothing of
records. The callback `OtherSweeper` around them gives each search a folder, and at its end a plan,
a report and the exit code that our own sweeper gives.
"""

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnsvm import record
from attnsvm.cli.command_line import CommandLine
from attnsvm.cli.errors import exit_code, outcome
from attnsvm.cli.memory import Machine, refuse_without_memory
from attnsvm.cli.objective import Objective, objective_of
from attnsvm.cli.signals import follow_by_joblib
from attnsvm.config import PROBES, ConfigError, RunConfig
from attnsvm.config.compose import validated
from attnsvm.config.identity import digest_of_cells, named_files, result_fields, run_name
from attnsvm.config.sources import PACKAGES
from attnsvm.record.plan import PLAN_FILE
from attnsvm.record.state import FINISHED, refuse_kept, refuse_obstacle

log = logging.getLogger(__name__)

OWN = "hydra_plugins.attnsvm_sweeper.sweeper.AttnsvmSweeper"
JOBLIB = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
SUBMITIT = "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher"
BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
RUN_FOLDER = "${run_name:}"

FAILURES_LISTED = 20
"""Largest number of runs without a record, or of skipped cells, that the summary lists."""

ADHOC = Path("multirun/adhoc")
"""The folder in conf/config.yaml; each plan without a name gets a folder of its own beside it."""

_open: dict[Path, str | None] = {}
"""Folders of other sweepers' sweeps begun in this process -> what is not complete, None before the
end."""


def sweep_folder(composed: DictConfig, digest: Callable[[], str]) -> Path:
    """Return the folder of a sweep: multirun/NAME, or one of its own named by `digest`."""
    folder = Path(composed.hydra.sweep.dir)
    words = typed(composed.hydra, "hydra")
    if folder != ADHOC or any(word.lstrip("+").startswith("hydra.sweep.dir=") for word in words):
        return folder
    return ADHOC.with_name(str(composed.sweep)) if composed.sweep else _adhoc(digest())


def typed(hydra: Any, kind: str) -> list[str]:
    """Return the overrides as they were typed: those of `hydra`, or of the `task`."""
    words: Any = OmegaConf.to_container(hydra.overrides, resolve=False)
    return list(words[kind])


def _adhoc(digest: str) -> Path:
    """Return the folder of a plan without a name, also if an older version has named it."""
    folder = ADHOC.with_name(f"{ADHOC.name}-{digest}")
    others = () if folder.exists() else sorted(ADHOC.parent.glob(f"{ADHOC.name}-*/{PLAN_FILE}"))
    for path in others:
        with suppress(record.CorruptRecordError):
            if digest_of_cells(record.read_plan(path.parent).fields.values()) == digest:
                return path.parent
    return folder


def rerun(config: Any) -> bool:
    """Return whether Hydra's section asks for stale records to be made again."""
    state = OmegaConf.select(config, "sweeper.rerun")
    if state not in (None, "stale"):
        raise ConfigError(f"hydra.sweeper.rerun={state}: must be stale | null")
    return state is not None


def check_subdir(config: DictConfig) -> None:
    """Raise ConfigError unless a run's folder in that of a sweep is named by its identity."""
    sweep: Any = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    if (subdir := sweep["subdir"]) != RUN_FOLDER:
        must = f"must be {RUN_FOLDER}, the run's identity; hydra.sweep.dir is the sweep's folder"
        raise ConfigError(f"hydra.sweep.subdir={subdir}: {must}")


def check_run(config: RunConfig, hydra: Any, machine: Machine | None) -> Objective | None:
    """Return the objective of a run; ConfigError for what shows before any work.

    That is an objective without such a column, the relative path of a file if runs change the
    folder, and more memory than `machine` has.
    """
    for node, key, _ in named_files(result_fields(config)) if hydra.job.chdir else ():
        if node[key] not in PACKAGES and not Path(node[key]).is_absolute():
            must = "must be an absolute path with hydra.job.chdir=true"
            raise ConfigError(f"{key}={node[key]}: {must}")
    refuse_without_memory(config, machine)
    return objective_of(config)


def close_sweep(folder: Path, cells: Collection[str], complete: Sequence[str] = FINISHED) -> str:
    """Write tables, figures and report; return what is not complete, "" if everything is.

    `cells` are the folder names of the runs of this command, `complete` the states of complete
    ones. Another command may have replaced the plan in the folder, which the report follows.
    """
    from attnsvm.sweeps.aggregate import read_sweep
    from attnsvm.sweeps.conclusion import conclusion
    from attnsvm.sweeps.report import write_report
    from attnsvm.sweeps.status import table

    planned: dict[Any, Any] = {}
    failed: Sequence[str] = ()
    try:
        frames = read_sweep(folder)
    except FileNotFoundError as error:  # someone removed the records meanwhile
        log.error("no report: %s", error)
    else:
        runs = frames.runs[frames.runs["state"] != "skipped"].to_dict("records")
        planned = {row["run"]: record.RunState(row["state"], row["reason"]) for row in runs}
        files = write_report(frames, CommandLine(sys.argv[1:]).folders)
        failed = files.failed
        lines = [*conclusion(frames), *filter(None, [frames.versions])]
        if skipped := len(frames.incomplete) - len(frames.unfinished):
            lines.append(f"{skipped} cells that cannot be were skipped; the report lists them")
        lines.append(files.kept or f"report: {files.html}, figures and tables beside it")
        outcome.info("%s\n%s", folder, "\n".join(lines))
    if planned.keys() != set(cells):
        log.warning("%s: the plan, and so the report, is not that of this command", folder)
    states = {name: planned.get(name) or record.run_state(folder / name) for name in cells}
    if not failed and all(now.state in complete for now in states.values()):
        return ""
    lines = [f"  not drawn {record.one_line(failure)}" for failure in failed]
    resume = f"{folder}: run the same command again to resume"
    return "\n".join([resume, *lines, table(states, most=FAILURES_LISTED)])


# --- other sweepers -------------------------------------------------------------------------------


class OtherSweeper(Callback):
    """Begins and ends the sweep of any sweeper but our own, and begins single runs."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse the folder of a single run before Hydra opens its own files there."""
        _refusing(_begin_run, config)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse what cannot be run, and give the sweep a folder: one for each search space."""
        if config.hydra.launcher._target_ == JOBLIB:
            follow_by_joblib()
        _refusing(_refuse, config)
        if config.hydra.sweeper._target_ == OWN:
            return
        folder = sweep_folder(config, lambda: _space_digest(config))
        config.hydra.sweep.dir = str(folder)
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir={folder}")  # jobs are composed anew
        folder.mkdir(parents=True, exist_ok=True)
        record.link_latest(folder)
        _open[folder] = None

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Write the report before other callbacks log it."""
        folder = Path(config.hydra.sweep.dir)
        if folder in _open:
            _open[folder] = _closed(folder)


def _refusing(check: Callable[[Any], None], config: DictConfig) -> None:
    """Exit with the message of what `check` raises: Hydra makes warnings of other errors."""
    if code := exit_code(lambda: check(config)):
        raise SystemExit(code)


def close_others() -> str:
    """Close the sweeps of this process that are still open; return what is not complete."""
    message = [_closed(folder) if missing is None else missing for folder, missing in _open.items()]
    _open.clear()
    return "\n".join(filter(None, message))


def _space_digest(config: DictConfig) -> str:
    """Return 12 digits that name the search space; the objective is no part of it."""
    words = typed(config.hydra, "task")
    space = [word for word in words if not word.lstrip("+").startswith("objective=")]
    text = json.dumps([space, dict(_params(config))], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _params(config: DictConfig) -> Mapping[Any, Any]:
    return OmegaConf.select(config, "hydra.sweeper.params") or {}


def _begin_run(config: DictConfig) -> None:
    """Set the folder of a single run to that of its finished record; refuse what lies in its way.

    A config that is not valid, or only in the job, is left to the job.
    """
    folder, again = Path(config.hydra.run.dir), rerun(config.hydra)
    refuse_obstacle(folder)
    try:
        run = validated(config)
    except (ConfigError, OmegaConfBaseException):
        return
    if folder.name == (name := run_name(run)):
        folder = folder.with_name(record.names_on_record(folder.parent, {name: run}, again)[name])
        config.hydra.run.dir = str(folder)
    refuse_kept(folder, record.run_state(folder, verify=False), run)


def _refuse(config: DictConfig) -> None:
    """Raise ConfigError for submitit's launcher; of others' sweeps for what ours refuses too."""
    sweeper, objective = config.hydra.sweeper._target_, config.objective
    if config.hydra.launcher._target_ == SUBMITIT:  # it waits for a lost job forever
        raise ConfigError("hydra/launcher=submitit_slurm: must be slurm_cpu | slurm_gpu")
    if sweeper == OWN:
        return
    check_subdir(config)
    if objective is not None:
        Objective.of(objective, PROBES, config.svm.norms)  # a job: those that it has
    if sweeper == BASIC:
        return
    if objective is None and "objective" not in _params(config):
        must = "must be given with a sweeper that searches by it, as in 'objective=median(risk)'"
        raise ConfigError(f"objective=null: {must}")
    direction = config.hydra.sweeper.get("direction", "minimize")
    if (word := getattr(direction, "name", direction)) not in ("minimize", "maximize"):
        must = "must be minimize | maximize: a run has one objective"
        raise ConfigError(f"hydra.sweeper.direction={word}: {must}")
    if config.dry_run:
        must = "must be false with a sweeper that chooses runs by the results of others"
        raise ConfigError(f"dry_run=true: {must}")


def _closed(folder: Path) -> str:
    """Write plan and report of the runs in `folder`; return what is not complete."""
    runs = sorted(p.parent for p in folder.glob("*/.hydra") if record.kind_of(p) == "a folder")
    if not runs:
        return ""
    recorded = {path.name: record.run_state(path, verify=False).run for path in runs}
    overrides = {name: list(run.get("overrides", [])) for name, run in recorded.items()}
    record.write_plan(folder, overrides)
    return close_sweep(folder, recorded)
