"""What the words of configs and records mean, by kind: those of `words.csv`.

The hypotheses that a run decides, the stages that fill columns, the states of a run, and how the
SVM and the training of an instance end.
"""

import csv
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path


def _declared() -> Mapping[str, Mapping[str, str]]:
    """Return the meaning of each word, by kind."""
    found = defaultdict[str, dict[str, str]](dict)
    with Path(__file__).with_suffix(".csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            found[row["kind"]][row["word"]] = row["meaning"]
    return dict(found)


MEANINGS = _declared()
