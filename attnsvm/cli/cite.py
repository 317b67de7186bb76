"""`attnsvm cite RUN`: what a published number should name, as BibTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from attnsvm.config import ConfigError
from attnsvm.record import RUN_FILE, one_line, run_state

PAPER = """\
@article{tarzanagh2023transformers,
  title   = {Transformers as Support Vector Machines},
  author  = {Tarzanagh, Davoud Ataee and Li, Yingcong and Thrampoulidis, Christos and Oymak, Samet},
  journal = {arXiv preprint arXiv:2308.16898},
  year    = {2023}
}"""


LATEX = {letter: rf"\{letter}" for letter in "#$%&_"} | {
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}
"""What letters that mean something to LaTeX are written as."""


def citation(words: Sequence[str]) -> str:
    """Return BibTeX entries of the runs in the folders `words`, and of the paper.

    Raises
    ------
    ConfigError
        If no folder is given, or one holds no complete record.
    """
    if not words:
        raise ConfigError("cite: no folder given; must be folders of runs, as in multirun/NAME/RUN")
    return "\n\n".join([*map(_entry, words), PAPER])


def _entry(word: str) -> str:
    folder = Path(word)
    found = run_state(folder)
    if found.state != "done":
        why = f"{found.state}{f', {found.reason}' if found.reason else ''}"
        raise ConfigError(f"cite {word}: must be the folder of a finished run; it is {why}")
    return _bibtex(found.run, sha256((folder / RUN_FILE).read_bytes()).hexdigest())


def _bibtex(run: Mapping[str, Any], digest: str) -> str:
    """Return the entry of a run: version, revision, signature and the digest of its `run.json`.

    That file has the digests of the others.
    """
    made = datetime.fromtimestamp(run["started_s"], UTC)
    options = ", ".join(f"{group}={option}" for group, option in run["options"].items())
    revision = run["git_revision"] or f"code {run['code']}"
    lines = {
        "title": f"attnsvm: {run['sweep'] or 'a run'} ({options})",
        "author": "The attnsvm developers",
        "year": str(made.year),
        "version": run["version"],
        "note": f"revision {revision}; command: attnsvm {' '.join(run['overrides'])}; "
        f"signature {run['signature']}; sha256 of its {RUN_FILE} {digest}",
    }
    fields = ",\n".join(f"  {name:7} = {{{_escaped(text)}}}" for name, text in lines.items())
    return f"@software{{attnsvm-{digest[:12]},\n{fields}\n}}"


def _escaped(text: str) -> str:
    """Return text of a record, on one line, as LaTeX."""
    return "".join(LATEX.get(letter, letter) for letter in one_line(text))
