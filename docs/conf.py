"""The site: `make docs` builds it from these pages, the notebooks, the docstrings and docs/tables.

It writes the pages of docs/pages.py first, and draws the figures that pages show.
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

OTHER_SWEEPS = {
    "correlation_vs_d_pairs": "correlation_vs_d",
    "pretrained_heads_attention": "pretrained_heads",
    "pretrained_heads_no_sinks": "pretrained_heads",
}
"""The sweeps of figures that have another name."""

DRAWN: set[str] = set()
"""Figures that this build has drawn, into docs/figures: several pages show the same one."""

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


def draw_figures(app: Sphinx, page: str, text: list[str]) -> None:
    """Draw the figures that a page shows, from docs/tables."""
    docs = Path(app.srcdir)
    (docs / "figures").mkdir(exist_ok=True)
    for name in set(re.findall(r"\bfigures/(\w+)\.png", text[0])) - DRAWN:
        sweep = OTHER_SWEEPS.get(name, name)
        own = (docs / "tables" / name).is_dir()  # else it is a further figure of the sweep
        folder, figure = (name, sweep) if own else (sweep, name)
        picture = chart() if name == "speed" else draw(docs / "tables" / folder, figure)
        (docs / "figures" / f"{name}.png").write_bytes(picture)
        DRAWN.add(name)


def setup(app: Sphinx) -> None:
    """Write pages; add figures and formulas to Sphinx, which calls this by its name."""
    for name, page in PAGES.items():
        write_atomically(Path(app.srcdir) / name, page().encode())
    app.connect("source-read", draw_figures)
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
