"""An error that a user can mend is told in a line; any other keeps its traceback."""

from __future__ import annotations

from pathlib import Path

from hydra.errors import HydraException

from attnsvm.cli.errors import exit_code, user_message
from attnsvm.config import ConfigError


def raised(function):
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_error_raised_while_another_was_handled_speaks_for_itself(capsys):
    def fail():
        try:
            Path("/nowhere/at/all").read_text()
        except OSError:
            {}["key"]

    assert user_message(raised(fail)) is None
    assert exit_code(fail) == 1
    told = capsys.readouterr().err
    assert "KeyError: 'key'" in told
    assert "Traceback" in told


def test_the_cause_of_a_bug_is_not_told_in_its_place():
    def fail():
        try:
            Path("/nowhere/at/all").read_text()
        except OSError as error:
            raise RuntimeError("a bug") from error

    assert user_message(raised(fail)) is None


def test_hydra_hands_over_what_it_wraps(capsys):
    def fail():
        try:
            raise ConfigError("data.n=0: must be >= 1")
        except ConfigError as error:
            raise HydraException("Error in call to target") from error

    assert user_message(raised(fail)) == "data.n=0: must be >= 1"
    assert exit_code(fail) == 2
    assert capsys.readouterr().err == "attnsvm: data.n=0: must be >= 1\n"


def test_an_error_of_the_system_names_its_file():
    error = raised(lambda: Path("/nowhere/at/all").read_text())
    assert user_message(error) == "/nowhere/at/all: No such file or directory"
