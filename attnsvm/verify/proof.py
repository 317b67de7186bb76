"""The result of the proof of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from attnsvm.verify.rows import Refusal


@dataclass
class RunProof:
    """What was proved about a run.

    Attributes
    ----------
    instances : int
        Rows of the record.
    proved : Counter
        Number of proved SVMs of each status.
    refusals : list of (what, seed or None, reason)
        What does not follow.
    trusted : list of str
        What cannot be derived.
    close : int
        Instances that agree with their draw up to rounding only.
    retrained : int or None
        Rows that were trained again and compared; None if it was not asked for.
    repeated : int
        Of these, the rows that came out again, with weights equal in every bit.
    """

    instances: int = 0
    proved: Counter[str] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    close: int = 0
    retrained: int | None = None
    repeated: int = 0
