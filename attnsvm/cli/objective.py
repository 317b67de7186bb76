"""`objective=median(COLUMN)`: the number that a run returns to a sweeper that searches."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsvm.cli.errors import outcome
from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.names import must_be_one_of
from attnsvm.config.probe import probe_quantities
from attnsvm.record import one_line, run_state
from attnsvm.record.columns import TRIAL_COLUMNS, WORDS, norm_columns

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

FORMS = "mean(COLUMN) | median(COLUMN) | share(COLUMN=WORD)"
FORM = re.compile(r"(mean|median|share)\(([\w.]*)(?:=(\w*))?\)")


@dataclass(frozen=True)
class Objective:
    """A number made of the trials of a run: the mean or median of a column, or a share of words.

    A mean and a median are over the instances with status ok, a share is of all instances.
    """

    text: str
    function: str
    column: str
    word: str | None = None

    @classmethod
    def of(
        cls, text: str, probes: Mapping[str, Any] | None = None, norms: Sequence[str] = ()
    ) -> Objective:
        """Return the objective that `text` names, of a run with these probes and norms."""
        match = FORM.fullmatch(text)
        if match is None or (match[1] != "share" and match[3] is not None):
            raise ConfigError(f"objective={text}: must be {FORMS}")
        function, column, word = match.groups()
        numbers = [c.name for c in (*TRIAL_COLUMNS, *norm_columns(norms)) if c.dtype != "str"]
        known = [*numbers, *probe_quantities(probes or {})] if function != "share" else [*WORDS]
        checks = [(column, known, f"{function}(COLUMN{'=...' if function == 'share' else ''})")]
        if column in WORDS and function == "share":
            checks.append((str(word), [*WORDS[column]], f"share({column}=WORD)"))
        for name, names, place in checks:
            if name not in names:
                must = must_be_one_of(name, names)
                raise ConfigError(f"objective={text}: {name}: in {place} {must}")
        return cls(text, function, column, word)

    def value(self, trials: pd.DataFrame) -> tuple[float | None, str]:
        """Return the number, None if it is undefined, and of how many instances it is."""
        if self.function == "share":
            values, function = trials[self.column] == self.word, "mean"
        else:
            values = trials.loc[trials["status"] == "ok", self.column].dropna()
            function = self.function
        number = float(values.astype(float).agg(function))
        counted = f"over {len(values)} of {len(trials)} instances"
        return (number if math.isfinite(number) else None), counted

    def of_run(self, folder: Path) -> float | None:
        """Return the objective of the run in `folder` from its record; None if it is undefined.

        A sweeper counts None as a failed trial, never as a good one.
        """
        from attnsvm.record.stored import StoredRun

        name, run = f"{folder}: objective {self.text}", run_state(folder, verify=False)
        if not run.finished:
            log.warning("%s is undefined: the run is %s", name, run.state)
            return None
        number, counted = self.value(StoredRun(folder, run.run).tables()[0].to_pandas())
        if number is None:
            counts = ", ".join(f"{n} {status}" for status, n in run.run["statuses"].items())
            log.warning("%s", one_line(f"{name} is undefined ({counted}: {counts})"))
        else:
            outcome.info("%s = %.6g (%s)", name, number, counted)
        return number


def objective_of(config: RunConfig) -> Objective | None:
    """Return the objective of a run, checked; None if it has none."""
    text = config.objective
    return None if text is None else Objective.of(text, config.probe, config.svm.norms)


def quoted(words: Iterable[str]) -> list[str]:
    """Return the command line with the value of `objective=...` in quotes.

    Hydra takes `median(x)` for one of its own functions if it is not quoted.
    """
    call = re.compile(r"(\+{0,2}objective)=(\w+\([^\"']*\))")
    return [call.sub(r'\1="\2"', word) if call.fullmatch(word) else word for word in words]
