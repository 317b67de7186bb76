"""The dictionary of columns: `attnsvm --columns`, and the page of columns of the site.

columns.md is the start of the page.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnsvm.cli.help import wrapped
from attnsvm.config import PROBES, ConfigError
from attnsvm.config.probe import probe_quantities
from attnsvm.config.run import HYPOTHESES
from attnsvm.record import columns as declared


def dictionary(probes: Mapping[str, Any] = PROBES.own) -> dict[str, Sequence[declared.Column]]:
    """Return the columns of every table, and the quantities of the history, by heading."""
    return {
        "trials": declared.TRIAL_COLUMNS,
        "history": declared.HISTORY_COLUMNS,
        "trials, for each further norm of svm.norms": declared.norm_columns(["<norm>"]),
        "trials, with selection=multi | scc, for each norm": declared.DECLARED["multi"],
        "trials, with selection=scc": declared.DECLARED["scc"],
        "trials, with a trained linear head and selection=top": declared.DECLARED["joint"],
        "trials, with that or model=transformer, and selection=top": declared.DECLARED["law"],
        "columns of hypotheses": declared.hypothesis_columns(HYPOTHESES),
        "trials, with model=transformer": declared.LAYER_COLUMNS,
        "history, with model=transformer": declared.LAYER_KEY,
        "quantities of the history": declared.QUANTITIES,
        "quantities of the history, for each further norm of svm.norms": declared.DECLARED["norm"],
        "quantities of the history, with selection=multi | scc, for each norm but frobenius": (
            declared.DECLARED["multi"][1:]
        ),
        "quantities of the history, with selection=scc": declared.DECLARED["scc"][:-1],
        "quantities of the history, with a trained linear head; with model=transformer the first": (
            declared.LAW_QUANTITIES
        ),
        "columns and quantities of probes": declared.probe_columns(probe_quantities(probes)),
        "runs": declared.RUN_COLUMNS,
    }


def columns_text(words: Sequence[str] = ()) -> str:
    """Return the dictionary for a terminal; of columns whose name or meaning has all `words`."""
    head = "Columns of all tables: name, meaning (unit; allowed values; the stage that fills it)."
    lines = wrapped(head)
    for heading, columns in dictionary(PROBES).items():
        texts = ((c, f"{c.name} {c.meaning}".lower()) for c in columns)
        chosen = [c for c, text in texts if all(word.lower() in text for word in words)]
        lines += ["", *wrapped(heading, "", "  ")] if chosen else []
        for c in chosen:
            about = f"{c.meaning} ({c.unit}; {c.range}; {c.stage})"
            lines += [f"  {c.name}", *wrapped(about, "    ", "    ")]
    if lines == wrapped(head):
        must = "must be in the name or meaning of a column"
        raise ConfigError(f"--columns {' '.join(words)}: {must}")
    if not words:
        lines += ["", "stages", *(f"  {name}  {m}" for name, m in declared.STAGES.items())]
    end = "Fields of the config are columns too: attnsvm --help GROUP=OPTION"
    return "\n".join([*lines, "", end])


def columns_page() -> str:
    """Return the dictionary as a page of the site."""
    lines = [Path(__file__).with_suffix(".md").read_text()]
    for heading, columns in dictionary().items():
        rows = [
            (f"`{c.name}`", c.meaning.replace("<", "&lt;"), c.unit, c.range, c.stage)
            for c in columns
        ]
        lines += [*_table(heading, ("name", "meaning", "unit", "values", "stage"), rows), ""]
    lines += _table("stages", ("stage", "what it does"), declared.STAGES.items())
    return "\n".join([*lines, ""])


def _table(heading: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    ruled = [head, ["---"] * len(head), *([c.replace("|", r"\|") for c in row] for row in rows)]
    lines = [f"| {' | '.join(row)} |".replace(" --- ", "---") for row in ruled]
    return [f"## {heading}", "", *lines]
