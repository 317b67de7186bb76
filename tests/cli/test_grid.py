"""The grid of a sweep is the product of what is written, or a refusal before any run."""

import itertools

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from attnsvm.config import ConfigError
from attnsvm.config.compose import register, validated
from attnsvm.sweeps.aggregate import load
from hydra_plugins.attnsvm_sweeper._cells import CellComposer
from hydra_plugins.attnsvm_sweeper._grid import axes, grid, per_cell
from tests.command import LATEST, SMALL, ran
from tests.quick import quick_rows, refusals


@pytest.fixture(scope="module")
def loader():
    register()
    with initialize_config_module("conf", version_base="1.3", job_name="attnsvm"):
        yield GlobalHydra.instance().hydra.config_loader


def cells(loader, *words, **params):
    return grid(axes({key.replace("__", "."): text for key, text in params.items()}, words, loader))


PAIRS = ("data={n:2},{n:3}", "data={d:4},{d:5}")
PRODUCTS = {
    PAIRS: itertools.product(["data={n:2}", "data={n:3}"], ["data={d:4}", "data={d:5}"]),
    ("optimizer=gd,adam", "optimizer={steps:20}"): (
        ["optimizer=gd", "optimizer={steps:20}"],
        ["optimizer=adam", "optimizer={steps:20}"],
    ),
    ("head={option:mlp,width:3},linear",): (["head=mlp", "head={width:3}"], ["head=linear"]),
    ("seed=range(8,0,-4)",): (["seed=8"], ["seed=4"]),
    ("optimizer.lr=range(1,0.7,-0.1)",): ([f"optimizer.lr={x}"] for x in (1.0, 0.9, 0.8)),
    ("svm.norms=[max],[l1.5,nuclear]",): (["svm.norms=[max]"], ["svm.norms=[l1.5,nuclear]"]),
    ("seed=1", "seed=2", "data.n=3,4"): (["seed=2", "data.n=3"], ["seed=2", "data.n=4"]),
    ("data.d=4", "data.d=4,5"): [("data.d=4",), ("data.d=5",)],
}


@pytest.mark.parametrize("words", PRODUCTS, ids=" ".join)
def test_every_axis_counts(words, loader):
    assert cells(loader, *words) == [list(cell) for cell in PRODUCTS[words]]


@pytest.mark.parametrize(("words", "message"), refusals("grid"))
def test_what_is_no_product_is_refused(words, message, loader):
    with pytest.raises(ConfigError) as caught:
        cells(loader, *words.split())
    assert message in str(caught.value)


def test_the_command_replaces_axes_of_the_file_whose_fields_it_sets(loader):
    file = {"data": "{n:5,T:5},{n:9,T:5}", "data__d": "1,2"}
    assert len(cells(loader, **file)) == 4
    assert cells(loader, "data={n:3,T:4}", "data.d=7", **file) == [["data={n:3,T:4}", "data.d=7"]]
    some = cells(loader, "data={T:8}", "data.d=7", **file)  # the axis of n is not lost
    assert some == [[f"data={{n:{n},T:5}}", "data={T:8}", "data.d=7"] for n in (5, 9)]
    assert cells(loader, "head=linear", head="relu,mlp") == [["head=linear"]]
    with pytest.raises(ConfigError, match="must be a field of a run"):
        cells(loader, hydra__job__name="a,b")
    with pytest.raises(ConfigError, match="must be set by one of them"):
        cells(loader, data="{n:5},{n:9}", data__n="3")


def test_a_reference_of_the_file_belongs_to_the_cell_unless_it_stands_for_several_values():
    assert per_cell("data.T", "${data.n}", "10") == "${data.n}"
    assert per_cell("data.d", "${oc.env:SIZES}", "2,4,8") == "2,4,8"
    assert per_cell("data.T", "${data.n},7", "10,7") == "${data.n},7"


# --- references -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settled(loader):
    """What defines a cell, and its config."""
    composer, master = CellComposer(loader), compose("config", [], return_hydra_config=True)
    return lambda *cell, number=0: composer.settled(master, list(cell), number)


REFERENCES = {  # a cell; its fields
    ("data.T=${data.n}", "data.n=3"): {"data.n": 3, "data.T": 3},
    ("data.T=${data.n}", "data.n=${seed}", "seed=4"): {"data.n": 4, "data.T": 4},
    ("seed=${hydra.job.num}",): {"seed": 7},
    ("svm.norms=[max,${optimizer.norm}]", "optimizer=steepest"): {"svm.norms": ["max", "spectral"]},
    ("question=${oc.env:TEXT}",): {"question": "it's {a}, \\ b"},
}


@pytest.mark.parametrize("cell", REFERENCES, ids=" ".join)
def test_a_cell_is_defined_without_references(cell, settled, loader, monkeypatch):
    """What is checked is what a job composes, in another environment too."""
    with monkeypatch.context() as changed:
        changed.setenv("TEXT", "it's {a}, \\ b")
        words, run = settled(*cell, number=7)
    for name, value in REFERENCES[cell].items():
        group, _, field = name.rpartition(".")
        assert getattr(getattr(run, group) if group else run, field) == value
    assert settled(*words)[1] == run
    assert not [word for word in words if "${" in word and not word.startswith(("data={", "+"))]
    assert validated(compose("config", words)) == run  # as Hydra composes it


CELLS = (
    "seed=3 data.d=5",
    "data={n:2,T:3} head=relu",
    "head=relu data={n:4,T:3} data.d=7",
    "optimizer={lr:0.2,steps:7} selection=multi svm.norms=[nuclear]",
    "data=orthonormal ++data.T=4 hydra.job.name=other",
    "seed=4 data.d=5",
)


@pytest.mark.full
def test_a_job_is_what_hydra_composes_its_own_section_included(loader):
    composer = CellComposer(loader)
    master = compose("config", ["trials=3"], return_hydra_config=True)
    for cell in map(str.split, CELLS):
        config, expected = (by.load_sweep_config(master, cell) for by in (composer, loader))
        assert config == expected
        assert composer.settled(master, cell, 0)[1] == validated(expected)
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)
        assert config._get_flag("struct") == expected._get_flag("struct")


def test_what_all_runs_share_cannot_refer_to_what_is_swept(loader):
    composer = CellComposer(loader)
    words = ["hydra.sweep.dir=out/${data.n}", "data.n=2"]
    master = compose("config", words, return_hydra_config=True)
    assert composer.settled(master, ["data.n=2", "seed=1"], 0)[1].data.n == 2
    with pytest.raises(ConfigError, match="dir: must be the same for all runs"):
        composer.settled(master, ["data.n=3"], 0)


VALUES = [  # what a variable holds; what the field gets
    ("optimizer.lr", "1e-3", 0.001),
    ("svm.norms", "[nuclear]", ["nuclear"]),
    ("seed", "0x10", "could not be converted to Integer"),
    ("svm.norms", "nuclear", "norms=nuclear: must be a list"),
]


@pytest.mark.parametrize(("name", "word", "value"), VALUES)
def test_words_of_the_environment_become_values_of_the_fields_type(name, word, value, monkeypatch):
    monkeypatch.setenv("WORD", word)
    config = compose("config", [f"{name}=${{oc.env:WORD}}"], return_hydra_config=True)
    if " " in str(value):
        with pytest.raises(ValueError, match=value):
            validated(config)
    else:
        validated(config)
        assert OmegaConf.select(config, name) == value  # once and for all


def test_cells_that_cannot_be_refuse_the_sweep_or_are_skipped_counted_and_listed(tmp_path):
    """A field may refer to another one of its cell."""
    ranks = ("parameterization=kq", "parameterization.m=1,3", "data.d=2,3", "data.T=${data.d}")
    grid = ["-m", *SMALL[:2], "optimizer.steps=5", *ranks]
    refused = ran(*grid, code=2).stderr
    assert (
        "parameterization.m=3: must be >= 1 and <= data.d=2; hydra.sweeper.invalid=skip" in refused
    )
    assert not (tmp_path / "multirun").exists()
    grid.append("hydra.sweeper.invalid=skip")
    logged, cell = ran(*grid).stdout, "parameterization.m=3 data.d=2"
    assert f"skipped {cell}: parameterization.m=3: must be >= 1 and <= data.d=2" in logged
    assert "1 of 4 cells of the grid are skipped" in logged
    status = ran(command="attnsvm-status").stdout
    assert status.startswith(f"skipped  {cell}  parameterization.m=3")
    assert status.endswith("4 runs: 3 done, 1 skipped\n")
    sweep = load(LATEST)
    assert sweep.left_out[["run", "state"]].to_numpy().tolist() == [[cell, "skipped"]]
    assert sweep.trials.groupby("data.d")["data.T"].unique().to_dict() == {2: [2], 3: [3]}
    assert cell in (LATEST / "report.html").read_text()
    none = ran("-m", "trials=0", "seed=1,2", grid[-1], code=2).stderr
    assert none.endswith("trials=0: must be a whole number >= 1\n")


@pytest.mark.parametrize(
    ("words", "refused", "cells"),
    quick_rows(
        (("head={option:linear,lam:1},mlp",), "head.lam: unknown field", 1),
        (("head=linear,mlp", "head.lam=1,2"), "head.lam: unknown field", 0),
        (("optimizer=gd,adamm",), "optimizer=adamm: did you mean adam?", 0),
    ),
)
def test_a_field_that_some_options_of_a_grid_lack_refuses_or_skips_their_cells(
    words, refused, cells
):
    grid = ("-m", "trials=3", "dry_run=true", *words)
    error = ran(*grid, code=2).stderr
    assert f"attnsvm: {refused}" in error
    skipping = ran(*grid, "hydra.sweeper.invalid=skip", code=0 if cells else 2)
    if cells:
        assert "; hydra.sweeper.invalid=skip skips" in error
        assert f"{cells} runs, {cells} of them pending" in skipping.stdout
    else:  # in no cell is there such a field
        assert f"attnsvm: {refused}" in skipping.stderr
        assert "invalid=skip" not in skipping.stderr


@pytest.mark.full
def test_a_single_value_of_a_field_that_the_default_option_lacks_says_how_it_is_swept():
    words = ("-m", "trials=3", "dry_run=true", "head=linear,quadratic")
    refused = ran(*words, "head.lam=1", code=2).stderr
    assert "head.lam=choice(VALUE), with hydra.sweeper.invalid=skip" in refused
    words = (*words, "head.lam=choice(1)", "hydra.sweeper.invalid=skip")
    assert "1 runs, 1 of them pending" in ran(*words).stdout
