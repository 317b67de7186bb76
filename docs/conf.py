"""The site: `make docs` builds it from these pages, the notebooks, the docstrings and docs/tables.

It writes the pages of docs/pages.py first. The pictures in docs/figures are for readers of the
files; the site has its own, drawn anew.
"""

import re
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

from attnsvm import __version__
from attnsvm.record import write_atomically
from docs.gallery import draw
from docs.pages import PAGES
from docs.speed import chart

project = "attnsvm"
author = "The attnsvm developers"
project_copyright = "The attnsvm developers"
release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "attnsvm"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_domain_indices = False
highlight_language = "none"
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

WITH_WORDS = "pretrained_heads_attention"
"""The figure that cannot be drawn without a model's files: its words are in no record."""

OTHER_SWEEPS = {
    WITH_WORDS: "pretrained_heads data.at_layer=1 data.at_head=2 data.n=4 selection=top trials=2",
    "correlation_vs_d_pairs": "correlation_vs_d",
    "pretrained_heads_no_sinks": "pretrained_heads data.sinks=false selection=top "
    "data.at_head=0,3,6,9 seed=0,8",
}
"""The sweeps of figures that have another name."""

PLAIN = re.compile(r"^!\[([^\]]*)\]\(figures/(\w+)\.png\)$", re.MULTILINE)
"""A figure in a page that is also read as a file: its text and name."""

WITH_CAPTION = """```{{figure}} figures/{name}.png
:alt: {text}

`attnsvm sweep={sweep}`
```"""

DRAWN: set[str] = set()
"""Figures that this build has drawn: several pages show the same one."""

# A warning is an error: of a link or name that does not exist, too.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|np|numpy|pd|pandas|matplotlib|omegaconf)\b.*"),
    (r"py:exc", r"CorruptRecordError|ChartError"),
]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Notebooks are stored without output and executed here; one that raises fails the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Attributes", "params_style")]
html_math_renderer = "mathml"


def inline_formula(translator, node):
    """Write a formula as MathML, which browsers draw without a script."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed_formula(translator, node):
    """Write a formula on a line of its own."""
    translator.body.append(convert(node.astext(), display="block"))
    raise nodes.SkipNode


def add_captions(app: Sphinx, page: str, text: list[str]) -> None:
    """Write the command that makes a figure below it."""

    def with_caption(match: re.Match[str]) -> str:
        words, name = match.groups()
        return WITH_CAPTION.format(name=name, text=words, sweep=OTHER_SWEEPS.get(name, name))

    text[0] = PLAIN.sub(with_caption, text[0])


def draw_figures(app: Sphinx, page: str, text: list[str]) -> None:
    """Draw the figures that a page shows from docs/tables, and show these."""
    docs = Path(app.srcdir)
    (docs / "drawn").mkdir(exist_ok=True)
    for name in set(re.findall(r"\bfigures/(\w+)\.png", text[0])) - {WITH_WORDS}:
        if name == "speed":
            (docs / "drawn/speed.png").write_bytes(chart())
        elif name not in DRAWN:
            sweep = OTHER_SWEEPS.get(name, name).partition(" ")[0]
            own = (docs / "tables" / name).is_dir()  # else it is a further figure of the sweep
            folder, figure = (name, sweep) if own else (sweep, name)
            (docs / "drawn" / f"{name}.png").write_bytes(draw(docs / "tables" / folder, figure))
            DRAWN.add(name)
        text[0] = text[0].replace(f"figures/{name}.png", f"drawn/{name}.png")


def setup(app: Sphinx) -> None:
    """Write pages; add captions, figures and formulas to Sphinx, which calls this by its name."""
    for name, page in PAGES.items():
        write_atomically(Path(app.srcdir) / name, page().encode())
    app.connect("source-read", add_captions)
    app.connect("source-read", draw_figures)
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
