import json
import re
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from attnsvm.config import ConfigError
from attnsvm.sweeps.cite import PAPER, citation

ROOT = Path(__file__).parents[2]
RUN = sorted((ROOT / "docs/records/rank_vs_d").glob("*/run.json"))[0].parent


def fields(entry):
    return dict(re.findall(r"^  (\w+) += \{(.*)\},?$", entry, re.MULTILINE))


def test_an_entry_names_what_the_records_say():
    files = {path.parent.name: path.read_bytes() for path in RUN.parent.glob("*/run.json")}
    printed = "".join(f"{sha256(files[k]).hexdigest()}  {k}/run.json\n" for k in sorted(files))
    entries = citation([str(RUN), str(RUN.parent)]).split("\n\n")
    assert entries.pop() == PAPER
    run, digest = json.loads(files[RUN.name]), sha256(files[RUN.name]).hexdigest()
    assert entries[0].startswith(f"@software{{attnsvm-{digest[:12]},")
    of_run, of_sweep = map(fields, entries)
    assert of_run["version"] == run["version"]
    assert of_run["title"].startswith(r"attnsvm: rank\_vs\_d (data=sphere")
    assert of_sweep["title"] == r"attnsvm: rank\_vs\_d (a sweep)"
    assert r"'data=\textbraceleft{}n:15,T:5\textbraceright{}'" in of_run["note"]  # for a shell
    for value in (run["signature"], digest, run["code"]):
        assert value in of_run["note"]
    whole = sha256(printed.encode()).hexdigest()
    for value in (f"; {len(files)} runs; ", run["git_revision"], whole):
        assert value in of_sweep["note"]
    for value in (*of_run.values(), *of_sweep.values()):
        assert value.count("{") == value.count("}")


def test_the_paper_is_the_one_of_the_citation_file():
    citation_file = (ROOT / "CITATION.cff").read_text()
    names = re.findall(r"family-names: (.*)", citation_file)
    assert re.search("author  = {(.*)}", PAPER)[1].count(" and ") == len(names) - 1
    assert all(name in PAPER for name in names)
    assert re.search(r"arXiv:[\d.]+", citation_file)[0] in PAPER
    assert re.search(r"year: (\d+)", citation_file)[1] in PAPER


def test_what_is_not_finished_is_not_cited(tmp_path):
    sweep, run = tmp_path / "sweep", tmp_path / "run"
    shutil.copytree(RUN.parent, sweep)
    shutil.rmtree(sweep / RUN.name)
    shutil.copytree(RUN, run)
    (run / "trials.parquet").write_bytes(b"0")
    messages = f"{RUN.name} is missing", "run is corrupt", "must be a finished run"
    for folder, message in zip((sweep, run, tmp_path), messages, strict=True):
        with pytest.raises(ConfigError, match=re.escape(message)):
            citation([str(folder)])
