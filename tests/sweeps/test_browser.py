"""The report in a real browser: it renders without an error and its tables sort."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from attnsvm.sweeps import report
from tests.sweeps import synthetic

CHROMIUM = shutil.which("chromium")
OFF = ("gpu", "quic", "background-networking", "component-update", "sync", "dev-shm-usage")
OPTIONS = ("--headless", "--no-sandbox", "--no-first-run", "--enable-logging=stderr", "--v=0")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no `chromium` on the PATH")

SCRIPTS = [Path(__file__).with_name(name).read_text() for name in ("sort_tables.js", "enlarge.js")]


def browse(page, profile):
    assert CHROMIUM is not None
    options = [*OPTIONS, *(f"--disable-{part}" for part in OFF), f"--user-data-dir={profile}"]
    command = [CHROMIUM, *options, "--virtual-time-budget=9000", "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def console(done):
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    frames = synthetic.rank_frames(tmp_path_factory.mktemp("report"), [(15, 5)])
    return report.write_report(frames).html


def test_the_report_renders_its_tables_sort_both_ways_and_figures_load_enlarge_and_close(
    page, tmp_path
):
    """Told by scripts, which the policy of the page would stop."""
    probe = page.with_name("probe.html")
    text = re.sub('<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text())
    scripts = "".join(f"<script>{{ {script} }}</script>" for script in SCRIPTS)
    probe.write_text(text.replace("</body>", f"{scripts}</body>"))
    done = browse(probe, tmp_path / "profile")
    assert console(done) == []
    assert "<h1>rank_vs_d</h1>" in done.stdout
    title = done.stdout.split("<title>")[1].split("</title>")[0]
    up, down, pictures, sheets, *enlarged = title.split("|")
    counts = [int(n) for n in up.split(",")]
    assert counts == sorted(counts)
    assert [int(n) for n in down.split(",")] == counts[::-1]
    assert len(counts) > 2
    assert set(pictures.split(",")) == {"true"}
    assert sheets == "1"
    assert enlarged == ["true"] * 9


def test_the_policy_stops_scripts_that_are_not_the_pages_own(page, tmp_path):
    smuggled = "<script>document.title = 'smuggled'</script></body>"
    other = page.with_name("smuggled.html")
    other.write_text(page.read_text().replace("</body>", smuggled))
    done = browse(other, tmp_path / "profile")
    assert "<title>smuggled" not in done.stdout
    assert any("Content Security Policy" in line for line in console(done))
