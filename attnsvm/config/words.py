"""The tables that come with attnsvm, and what the words of configs and records mean.

`words.csv` has, by kind, the hypotheses that a run decides, the stages that fill columns, the
states of a run and what to do next, how the SVM and the training of an instance end, and what the
norms are called elsewhere.
"""

import csv
from collections.abc import Iterator
from pathlib import Path


def rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a table, by the names of its columns."""
    with path.open(newline="") as stream:
        yield from csv.DictReader(stream)


MEANINGS: dict[str, dict[str, str]] = {}
"""Kind -> word -> meaning."""
for _row in rows(Path(__file__).with_suffix(".csv")):
    MEANINGS.setdefault(_row["kind"], {})[_row["word"]] = _row["meaning"]
