"""An error that a user can mend is told in a line; any other keeps its traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.errors import HydraException

from attnsvm.cli.errors import exit_code
from attnsvm.config import ConfigError


def missing_file():
    Path("/nowhere/at/all").read_text()


def bug_while_an_error_is_handled():
    try:
        missing_file()
    except OSError:
        {}["key"]


def bug_with_a_cause():
    try:
        missing_file()
    except OSError as error:
        raise RuntimeError("a bug") from error


def wrapped_by_hydra():
    try:
        raise ConfigError("data.n=0: must be >= 1")
    except ConfigError as error:
        raise HydraException("Error in call to target") from error


@pytest.mark.parametrize(
    ("fail", "code", "message"),
    [
        (bug_while_an_error_is_handled, 1, "KeyError: 'key'"),
        (bug_with_a_cause, 1, "RuntimeError: a bug"),
        (wrapped_by_hydra, 2, "attnsvm: data.n=0: must be >= 1\n"),
        (missing_file, 2, "attnsvm: /nowhere/at/all: No such file or directory\n"),
    ],
)
def test_only_a_bug_has_a_traceback(fail, code, message, capsys):
    assert exit_code(fail) == code
    shown = capsys.readouterr().err
    assert message in shown
    assert ("Traceback" in shown) == (code == 1)
    assert code == 1 or shown == message
