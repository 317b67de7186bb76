"""The pages of the site that are written from yaml, records and declarations when it is built."""

import json
import re
import shlex
from pathlib import Path
from textwrap import wrap
from typing import Any

from jinja2 import Template
from omegaconf import OmegaConf

from attnsvm.cli.columns import columns_page
from attnsvm.cli.generated import options_page
from attnsvm.config.sources import conf_folder
from attnsvm.sweeps import figures
from attnsvm.sweeps.claims import all_claims
from attnsvm.sweeps.verdicts.derive import COMMITTED, read
from attnsvm.sweeps.verdicts.page import rendered
from docs.gallery import DOCS, drawings

TEXTS = Path(figures.__file__).with_name("experiments.yaml")

SYMBOLS = {
    "W_star_mm": r"$W_{\star,\mathrm{mm}}$",
    "K_R Q_R^T": r"$K_R Q_R^\top$",
    "K Q^T": r"$K Q^\top$",
    **{f"W_{name}": rf"$W_\mathrm{{{name}}}$" for name in ("mm", "svmeq", "1token", "fin")},
}
"""Words of questions and captions, which are plain text, that are typeset."""

SPECIAL = re.compile(
    "|".join(map(re.escape, SYMBOLS)) + r"|(\bW\b|\(K, Q\))|(?<!\w)_|_(?!\w)|[\\`*<>\[\]|$]"
)


def typeset(text: str) -> str:
    """Return plain text as Markdown."""
    return SPECIAL.sub(
        lambda match: f"${match[1]}$" if match[1] else SYMBOLS.get(match[0], f"\\{match[0]}"), text
    )


def again(name: str) -> str:
    """Return the command that makes the stored record of a sweep again, elsewhere."""
    record = json.loads((DOCS / "records" / name / "sweep.json").read_text())
    words = [word for word in record["command"] if not word.startswith("hydra.sweep.dir=")]
    command = shlex.join(["attnsvm", *words, f"hydra.sweep.dir=multirun/{name}_again"])
    lines = wrap(command, 84, break_long_words=False, break_on_hyphens=False)
    return " \\\n        ".join(lines)


def experiments_page() -> str:
    """Return the page of experiments: text, question, figure, caption, counts and record."""
    texts: Any = OmegaConf.to_container(OmegaConf.load(TEXTS))
    for name, text in ((name, text) for group in texts.values() for name, text in group.items()):
        drawing = drawings(DOCS / "tables" / name)[name]
        question = OmegaConf.load(conf_folder() / f"sweep/{name}.yaml").question
        text |= {"question": typeset(question), "caption": typeset(drawing.caption)}
        text |= {"notes": [*map(typeset, drawing.notes)], "again": again(name)}
    template = (DOCS / "_templates/experiments.jinja").read_text()
    return Template(template, trim_blocks=True).render(texts=texts)


def claims_page() -> str:
    """Return the page of the claims with the verdicts that come with attnsvm."""
    return rendered("claims.md", all_claims(), read(COMMITTED))


PAGES = {
    "claims.md": claims_page,
    "columns.md": columns_page,
    "experiments.md": experiments_page,
    "options.md": options_page,
}
"""What writes each page."""
