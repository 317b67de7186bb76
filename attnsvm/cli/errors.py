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
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    ValidationError,
)

from attnsvm.config import ConfigError
from attnsvm.config.fields import ListOf, refusal
from attnsvm.config.instantiate import unknown_field
from attnsvm.config.names import did_you_mean
from attnsvm.config.run import ALL_GROUPS
from attnsvm.config.words import MEANINGS
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

SUBMITIT_REFUSAL = "hydra/launcher=submitit_slurm: must be slurm_cpu | slurm_gpu"
"""Submitit's own launcher waits for a lost job forever."""

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
    rules = (
        _own_message,
        _schema_message,
        _missing_message,
        _hydra_message,
        _os_message,
        search_message,
        _foreign_message,
    )
    messages = (rule(link) for rule in rules for link in chain)
    return next((message for message in messages if message is not None), None)


def absent_field(error: BaseException) -> str | None:
    """Return the field that is not in the config, if it was set and `error` says so."""
    absent = ConfigAttributeError | ConfigKeyError
    links = (link for link in (error, error.__cause__) if isinstance(link, absent))
    return next((str(link.full_key) for link in links), None)


def _own_message(error: BaseException) -> str | None:
    if isinstance(error, argparse.ArgumentError):
        return f"{error}; see attnsvm --help"
    mine = isinstance(error, ConfigError | SweepIncompleteError | HeldError | CorruptRecordError)
    return str(error) if mine else None


def _schema_message(error: BaseException) -> str | None:
    if not isinstance(error, OmegaConfBaseException) or error.object_type is None:
        return None
    known = getattr(error.object_type, "__dataclass_fields__", {})
    field, reason = str(error.full_key), str(error.msg).splitlines()[0]
    name = field.rpartition(".")[2]
    is_reference = isinstance(error, InterpolationResolutionError) and error.value is None
    if known and name not in known and not is_reference:
        return f"{field}: {unknown_field(name, error.object_type)}"
    is_value = isinstance(error, ValidationError) and name in known and not is_reference
    if reason.endswith("is not in struct"):  # a dictionary of Hydra's own section
        return f"{field}: is not there; +{field}=VALUE adds it"
    if not is_value or "expected one of" in reason:  # of Hydra's own section
        return f"{field}: {reason}"
    message = refusal(known[name], error.value, field)
    lists = isinstance(known[name].metadata.get("allowed"), ListOf) and isinstance(error.value, str)
    return f"{message}; in brackets, as in [{error.value}]" if lists else message


def _unreadable(word: str) -> str:
    """Return what is wrong with a word of the command line that Hydra cannot read."""
    if "=" not in word:
        meant = did_you_mean(word, WORDS)
        return f"{word}: {meant}must be FIELD=VALUE without spaces around =, as in data.d=4"
    for opening, closing in ("[]", "{}", "()"):
        if word.count(opening) > word.count(closing):
            return f"{word}: must have a closing {closing}, and no spaces unless it is in quotes"
    quoted = '="'.join(word.split("=", 1)) + '"'
    return f"{word}: must be in quotes if it has other signs than ,.:-_, as in '{quoted}'"


def _hydra_message(error: BaseException) -> str | None:
    misused = isinstance(error, ValueError) and str(error).startswith("Config group override")
    if not isinstance(error, HydraException) and not misused:
        return None
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    text = str(error).partition("\nConfig search path:")[0].strip()
    if located := re.fullmatch(r"(.*), set env var .*\nfull_key: (.*)", text):
        must = "must be a class that can be imported; PYTHONPATH=FOLDER adds FOLDER"
        return f"{located[2]}: {located[1]}; {must}"
    if several := re.match(r"Ambiguous value for argument '(.*)'", text):
        must = "must be one value, or in brackets for a list"
        return f"{several[1]}: {must}; attnsvm -m FIELD=A,B runs each of them"
    return text


def _missing_message(error: BaseException) -> str | None:
    """Return what to type for an option that does not exist, is broken, or is not installed."""
    if not isinstance(error, MissingConfigException) or not error.missing_cfg_file:
        return None
    group, _, option = error.missing_cfg_file.rpartition("/")
    ours = ALL_GROUPS.get(group)
    if ours is not None and (group == "probe" or option in ours.broken()):
        return ours.refusal(option)
    if option == "submitit_slurm" and f"{group}={option}" in sys.argv:
        return SUBMITIT_REFUSAL
    packages = PACKAGES.get(group, {})
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


def search_message(error: BaseException) -> str | None:
    """Return why a search ended without a result, None if `error` is another one."""
    meaning = MEANINGS["search"].get(str(error))
    return f"the search has no result: {meaning}; the log says why" if meaning else None


FOREIGN = ("hydra", "omegaconf", "submitit", "joblib", "optuna")
"""Packages, besides the plug-ins hydra_plugins.hydra_..., whose errors are about what was typed."""


def _foreign_message(error: BaseException) -> str | None:
    """Return the message of an error that Hydra, a launcher or a sweeper raised."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    others = [name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names]
    last = others[-1] if others else ""
    if last.partition(".")[0] not in FOREIGN and not last.startswith("hydra_plugins.hydra_"):
        return None
    lines = " ".join(str(error).split())
    return f"{type(error).__name__}: {lines}; HYDRA_FULL_ERROR=1 in front of the command says where"


def _os_message(error: BaseException) -> str | None:
    if not isinstance(error, OSError):
        return None
    place = error.filename2 or error.filename or "file system"
    return f"{place}: {error.strerror}" if error.strerror else str(error)
