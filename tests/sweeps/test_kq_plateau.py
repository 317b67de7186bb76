"""By how much the distance to the SVM falls over the last decade of steps, a median over seeds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.sweeps import style
from attnsvm.sweeps.figures import kq_plateau
from tests.sweeps import synthetic
from tests.sweeps.test_figures import text_of

HERE = Path("sweep")
STEPS = (0, 1, 10, 100, 1000)


def frames(trials=9):
    """Two step sizes: one whose curves fall like 1 / k, one whose curves stop at 10 steps."""
    runs, rows, history = [], [], []
    for lr, curve in ((0.01, lambda k: 1 / max(k, 1)), (0.1, lambda k: 1 / min(max(k, 1), 10))):
        cell, run = synthetic.cell_keys(lr=lr, parameterization="kq"), f"run{lr}"
        runs.append(synthetic.run_row(run, cell, trials))
        for seed in range(trials):
            status = "stalled" if seed == 0 else "ok"
            rows.append(cell | {"run": run, "seed": seed, "status": status, "reason": ""})
            rows[-1]["training"] = ""
            for step in STEPS:
                for quantity in kq_plateau.FIGURE.quantities:
                    at = {"run": run, "seed": seed, "step": float(step), "quantity": quantity}
                    history.append(cell | at | {"value": (1 + seed) * curve(step)})
    tables = (pd.DataFrame(runs), pd.DataFrame(rows), pd.DataFrame(history))
    return synthetic.framed("kq_plateau", HERE, *tables)


def test_a_fall_and_a_plateau_are_told_apart():
    found = kq_plateau.tables(frames())["kq_plateau_fall"]
    assert len(found) == 4
    ratios = found.set_index(["lr", "quantity"])["median"]
    for quantity in kq_plateau.FALLING:
        assert ratios[0.01, quantity] == pytest.approx(0.1, rel=1e-12)
        assert ratios[0.1, quantity] == 1.0
    assert (found["used"] == 8).all()  # the stalled one is only counted
    ends = found.set_index(["lr", "quantity"])["end_median"]
    assert ends[0.01, "margin_gap_nuclear"] == pytest.approx(5.5e-3)


def test_the_figure_shows_every_quantity_and_counts_what_is_left_out():
    made = frames()
    with style.paper():
        tables = kq_plateau.tables(made)
        (drawing,) = kq_plateau.draw(tables, made.axes, ["a remark"])
        drawing.figure.draw_without_rendering()
        words = text_of(drawing)
    assert "nuclear margin gap" in words
    assert "imbalance" in words
    assert "2 stalled" in words
    assert "a remark" in words
    assert set(tables["kq_plateau"]["quantity"]) == set(kq_plateau.FIGURE.quantities)


def test_without_a_certified_instance_there_is_no_ratio():
    made = frames()
    lost = dataclasses.replace(made, trials=made.trials.assign(status="undecided"))
    found = kq_plateau.tables(lost)["kq_plateau_fall"]
    assert found.empty or not np.isfinite(found["median"]).any()
