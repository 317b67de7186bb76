"""What a command says: error messages, exit codes, and its outcome on a quiet console."""

import argparse
import logging
import re
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from traceback import walk_tb
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    InterpolationResolutionError,
    OmegaConfBaseException,
    ValidationError,
)

from attnsvm.config import ConfigError
from attnsvm.config.fields import refusal
from attnsvm.config.instantiate import unknown_field
from attnsvm.config.names import did_you_mean
from attnsvm.config.run import ALL_GROUPS
from attnsvm.display.pace import cleared
from attnsvm.record import CorruptRecordError, HeldError

INTERRUPTED = "interrupted; finished runs are on disk, run the same command again to resume"

PACKAGES = {
    "hydra/launcher": {
        **dict.fromkeys(("submitit_slurm", "submitit_local"), "'attnsvm[slurm]'"),
        "joblib": "'attnsvm[joblib]'",
        "ray": "hydra-ray-launcher",
        "rq": "hydra-rq-launcher",
    },
    "hydra/sweeper": {
        "optuna": "'attnsvm[optuna]'",
        "ax": "hydra-ax-sweeper",
        "nevergrad": "hydra-nevergrad-sweeper",
    },
    "hydra/job_logging": {"colorlog": "'attnsvm[colorlog]'"},
    "hydra/hydra_logging": {"colorlog": "'attnsvm[colorlog]'"},
}
"""Group of Hydra's own section -> option -> what pip installs it by."""

FLAGS = (
    "--help -h",
    "--version",
    "--columns",
    "--multirun -m",
    "--run -r",
    "--resolve",
    "--shell-completion -sc",
    "--hydra-help",
)
VALUED = (
    "--cfg -c",
    "--config-dir -cd",
    "--config-name -cn",
    "--config-path -cp",
    "--package -p",
)
"""Flags without and with a value, Hydra's and ours; besides, --info may have one."""

WORDS = (*(names.split()[0] for names in (*FLAGS, *VALUED)), "--info", "cite RUN", "export RUN")
"""What a word without = may have meant."""

outcome = logging.getLogger("attnsvm.outcome")
outcome.addFilter(cleared)
"""Says how a command ended: the instances of a single run by status, the report of a sweep."""


class Quiet(logging.Filter):
    """The console of `hydra/job_logging=quiet` and `paced`, which is quiet on runs only."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is shown: warnings, errors, outcomes, and all lines with hydra.verbose."""
        shown = record.levelno >= logging.WARNING or record.name == outcome.name
        verbose = logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
        return shown or verbose or not super().filter(record)  # of other loggers than `self.name`


class SweepIncompleteError(RuntimeError):
    """Some runs of a sweep have no complete record; the report lists them."""


def exit_code(command: Callable[[], Any], show_traces: bool = False) -> int:
    """Return 0 if `command` succeeds, else print its error on stderr and return an exit code.

    The code is 2 for a config or an environment that the user can correct, 1 for a failed run, and
    128 plus the number of the signal after a signal.
    """
    try:
        command()
    except KeyboardInterrupt as stop:
        with suppress(OSError):  # a terminal that was closed, which sends SIGHUP
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
    """Return the message of `error` for the user; None for an error in the program.

    Hydra and OmegaConf wrap errors: then the message of the cause is used. For any other error its
    own message is used, even if it was raised while another error was handled.
    """
    chain = [error]
    while isinstance(chain[-1], HydraException | OmegaConfBaseException):
        if (below := chain[-1].__cause__ or chain[-1].__context__) is None:
            break
        chain.append(below)
    messages = (rule(e) for kinds, rule in RULES for e in chain if isinstance(e, kinds))
    return next((message for message in messages if message), None)


def _of_a_field(error: Any) -> str | None:
    """Return what OmegaConf says of a field, in the words of its schema."""
    if error.object_type is None:
        return None
    known = getattr(error.object_type, "__dataclass_fields__", {})
    field, reason = str(error.full_key), str(error.msg).splitlines()[0]
    name = field.rpartition(".")[2]
    if known and not (isinstance(error, InterpolationResolutionError) and error.value is None):
        if name not in known:
            unknown = unknown_field(name, error.object_type)
            single = any(re.match(rf"{re.escape(field)}=[^,(]*$", word) for word in sys.argv)
            if " has it" in unknown and single and {"-m", "--multirun"} & {*sys.argv}:
                unknown += f"; of a grid {field}=choice(VALUE), with hydra.sweeper.invalid=skip"
            return f"{field}: {unknown}"
        if isinstance(error, ValidationError) and "expected one of" not in reason:
            return refusal(known[name], error.value, field)
    if reason.endswith("is not in struct"):  # a dictionary of Hydra's own section
        return f"{field}: is not there; +{field}=VALUE adds it"
    return f"{field}: {reason}"


def _unreadable(error: Any) -> str:
    """Return what is wrong with a word of the command line that Hydra cannot read."""
    word = error.override
    meant = did_you_mean(word, WORDS) if "=" not in word else ""
    must = "must be FIELD=VALUE, in quotes if VALUE has spaces or other signs than ,.:-_"
    return f"{word}: {meant}{must}; brackets must be closed"


def _missing(error: Any) -> str | None:
    """Return what to type for an option that does not exist, is broken, or is not installed."""
    group, _, option = str(error.missing_cfg_file or "").rpartition("/")
    ours, packages = ALL_GROUPS.get(group), PACKAGES.get(group, {})
    if ours is not None and (group == "probe" or option in ours.broken()):
        return ours.refusal(option)
    if package := packages.get(option):
        typed = [word for word in sys.argv[1:] if word.startswith(f"{group}=")]
        what = typed[-1] if typed else f"{group}={option}"
        return f"{what}: is not installed here; pip install {package} installs it"
    if not error.options:
        return None
    known = [name for name in error.options if name != "submitit_slurm"]
    more = [f"{n} (pip install {p})" for n, p in packages.items() if n not in error.options]
    meant = did_you_mean(option, [*known, *packages])
    return f"{group}={option}: {meant}must be {' | '.join([*known, *more])}"


FOREIGN = ("hydra", "omegaconf", "submitit", "joblib", "optuna")
"""Packages, besides the plug-ins hydra_plugins.hydra_..., whose errors are about what was typed."""


def _foreign(error: BaseException) -> str | None:
    """Return the message of an error that Hydra, a launcher or a sweeper raised."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    others = [name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names]
    last = others[-1] if others else ""
    if last.partition(".")[0] not in FOREIGN and not last.startswith("hydra_plugins.hydra_"):
        return None
    lines = " ".join(str(error).split())
    return f"{type(error).__name__}: {lines}; HYDRA_FULL_ERROR=1 in front of the command says where"


def _of_the_system(error: Any) -> str:
    place = error.filename2 or error.filename or "file system"
    return f"{place}: {error.strerror}" if error.strerror else str(error)


RULES: tuple[tuple[Any, Callable[[Any], str | None]], ...] = (
    ((ConfigError, SweepIncompleteError, HeldError, CorruptRecordError), str),
    (argparse.ArgumentError, lambda error: f"{error}; see attnsvm --help"),
    (OmegaConfBaseException, _of_a_field),
    (MissingConfigException, _missing),
    (OverrideParseException, _unreadable),
    (
        HydraException,
        lambda error: " ".join(str(error).partition("\nConfig search path:")[0].split()),
    ),
    (OSError, _of_the_system),
    (Exception, _foreign),
)
"""Kinds of errors, and what is said of them; the first rule that says something about any error of
the chain counts."""
