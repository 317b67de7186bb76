"""The built site in a real browser: `make docs` runs this after it has built the site."""

import json
import shutil
import subprocess
import threading
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path

import nbformat
import pytest

from tests.sweeps.test_browser import OPTIONS, console

SITE = Path(__file__).parents[1] / "build/site"
CHROMIUM = shutil.which("chromium")
PHONE_PX = 390
NOTEBOOKS = sorted(SITE.parents[1].glob("docs/notebooks/*.ipynb"))

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(CHROMIUM is None, reason="no `chromium` on the PATH"),
]

VISIT = Path(__file__).with_suffix(".html").read_text()
"""A page that visits others in a frame: its width, the pages, and what is asked of each."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def pages():
    results = sorted(str(p.relative_to(SITE)) for p in SITE.rglob("*.html"))
    return [page for page in results if not page.startswith("_")]


@pytest.fixture(scope="module")
def visit(tmp_path_factory):
    """Return a function that calls JavaScript on each of some pages: results by page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    probe = SITE / "_probe.html"

    def call(script, pages, width=1280):
        probe.write_text(VISIT % (width, json.dumps(pages), script))
        profile = tmp_path_factory.mktemp("profile")
        address = f"http://127.0.0.1:{server.server_port}/_probe.html"
        budget = f"--virtual-time-budget={2000 + 3000 * len(pages)}"
        command = [CHROMIUM, *OPTIONS, budget, f"--user-data-dir={profile}", "--dump-dom", address]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
        results = json.loads(unescape(done.stdout.split("<pre>")[1].split("END</pre>")[0]))
        return results, done

    yield call
    probe.unlink()
    server.shutdown()
    server.server_close()


def test_pages_load_with_all_pictures_texts_and_captions_that_have_commands(visit, pages):
    """Pictures of notebooks stand below the code that draws them, those of cards link to pages."""
    script = """(d) => [d.title, [...d.querySelectorAll("article img")].map(i => {
      const caption = i.closest("figure")?.querySelector("figcaption");
      const codes = [...caption?.querySelectorAll("code") ?? []].map(c => c.textContent);
      const named = codes.some(code => code.match("attnsvm|make bench"));
      const whole = i.complete && i.naturalWidth > 0;
      return [i.src, whole && i.alt.length > 10, named || i.classList.contains("sd-card-img-top")];
    })]"""
    results, done = visit(script, pages)
    assert console(done) == []
    assert list(results) == pages
    assert len(pages) > 20
    pictures = [(page, *picture) for page, (_, images) in results.items() for picture in images]
    assert len(pictures) > 30
    assert [page for page, (title, _) in results.items() if "attnsvm" not in title] == []
    notebook = "notebooks/"
    assert [
        src for page, src, whole, named in pictures if not (whole and (named or notebook in page))
    ] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_of_the_site_has_run_and_drawn(path):
    notebook = nbformat.read(SITE.parent / "jupyter_execute/notebooks" / path.name, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    drawn = [cell for cell in code if ".plot(" in cell.source]
    assert drawn
    for cell in drawn:
        assert any("image/png" in output.get("data", {}) for output in cell.outputs), cell.source


def test_no_page_scrolls_sideways_on_a_phone(visit, pages):
    results, _ = visit("(d, root) => root.scrollWidth", pages, PHONE_PX)
    assert {page: width for page, width in results.items() if width > PHONE_PX} == {}


def test_the_search_finds_the_nuclear_norm(visit):
    wait = """async (d, root, later) => {
      for (let k = 0; k < 50 && !d.querySelector("ul.search li a"); k++) await later(50);
      return d.querySelectorAll("ul.search li a").length;
    }"""
    results, _ = visit(wait, ["search.html?q=nuclear", "search.html?q=xylophone"])
    assert results["search.html?q=nuclear"] > 3
    assert results["search.html?q=xylophone"] == 0


def test_a_figure_opens_and_closes(visit):
    script = """async (d, root, later) => {
      const button = d.querySelector("button.enlarge"), large = d.querySelector("dialog.enlarged");
      const before = large.open;
      button.click();
      const shown = large.querySelector("img");
      const same = shown.src === button.firstElementChild.src;
      const opened = [large.open, same, shown.alt.length > 10];
      large.querySelector("button").click();
      return [before, ...opened, large.open];
    }"""
    results, _ = visit(script, ["experiments.html"])
    assert results["experiments.html"] == [False, True, True, True, False]


@pytest.mark.parametrize(
    ("theme", "options"),
    [("light", ""), ("dark", "runOnly: ['color-contrast', 'link-in-text-block']")],
)
def test_the_rules_of_axe_core_hold_on_every_page(theme, options, visit, pages, request):
    """Among them contrast, names of links and buttons, order of headings, access by keyboard.

    In the dark only the rules of colour can have another outcome.
    """
    rules = SITE / "_axe.js"
    rules.write_bytes(files("axe_core_python").joinpath("axe.min.js").read_bytes())
    request.addfinalizer(rules.unlink)
    script = f"""async (d) => {{
      d.body.dataset.theme = "{theme}";
      const code = d.createElement("script");
      code.src = "/{rules.name}";
      await new Promise((done) => {{ code.onload = done; d.head.append(code); }});
      const {{passes, violations}} = await d.defaultView.axe.run(
        d, {{resultTypes: ["violations"], {options}}});
      const broken = violations.map(v => [v.id, v.impact, v.nodes.map(n => n.html).slice(0, 3)]);
      const paper = d.defaultView.getComputedStyle(d.body).backgroundColor;
      return [paper, passes.some(p => p.id === "color-contrast"), broken];
    }}"""
    results, _ = visit(script, pages)
    assert {paper == "rgb(255, 255, 255)" for paper, _, _ in results.values()} == {theme == "light"}
    assert all(contrast for _, contrast, _ in results.values())
    assert {page: broken for page, (_, _, broken) in results.items() if broken} == {}
