"""Times in words, and text of a record made safe to print."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """Return a time in words: 3.2 s, 4 min 10 s, 2 h 5 min; a dash if unknown."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def one_line(text: object, mark: str = " ") -> str:
    """Return `text` with `mark` for each line break, control character or invisible character.

    Control characters in untrusted text could send commands to a terminal.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else mark for c in shown)
