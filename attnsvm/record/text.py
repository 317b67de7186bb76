"""Times and sizes in words, and text of a record made safe to print."""

import math


def duration(seconds: float) -> str:
    """Return a time in words: 3.2 s, 4 min 10 s, 2 h 5 min; a dash if unknown."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def byte_size(count: float) -> str:
    """Return a number of bytes in words: 512 B, 23.5 GiB, 1.6e+06 PiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} PiB"


def one_line(text: object, mark: str = " ") -> str:
    """Return `text` with `mark` for each line break, control character or invisible character.

    Control characters in untrusted text could send commands to a terminal.
    """
    return "".join(c if c.isprintable() else mark for c in str(text))


def shortened(text: object, length: int = 500) -> str:
    """Return the start of `text` as one line that is safe to print."""
    shown = one_line(str(text)[: length + 1])
    return shown if len(shown) <= length else f"{shown[:length]}..."
