"""Batches and results at a prompt, in a notebook, and by instance."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnsvm


@pytest.fixture(scope="module")
def stages():
    batch = attnsvm.sample("sphere", n=5, T=5, d=2, trials=6)
    path = attnsvm.train(batch, parameterization="kq", steps=200)
    selection = attnsvm.select_tokens(batch, path)
    solution = attnsvm.solve_svm(batch.X, batch.Z, selection.optimal)
    return batch, path, selection, solution


def test_a_line_has_sizes_and_counts_but_no_array(stages):
    batch, path, selection, solution = map(repr, stages)
    assert batch == "ProblemBatch(instances=6, n=5, T=5, d=2, head=Linear, device=cpu)"
    assert path.startswith("Trajectory(instances=6, n=5, T=5, d=2, snapshots=3, last_step=200, ")
    assert "trained=K, Q (m=2)" in path
    ended = [status.value for status in stages[1].status()]
    assert f"{ended.count('unsaturated')} unsaturated" in path
    assert f"saturated={int(stages[2].saturated.sum())}" in selection
    solved = stages[3].status.count("solved")
    assert 0 < solved < 6
    assert f"{solved} solved" in solution
    assert f"{6 - solved} infeasible" in solution
    for stage in stages:  # a notebook shows the same as a table
        html = stage._repr_html_()
        assert html.count("<tr>") == len(stage.summary())
        assert type(stage).__name__ in html


def test_masked_tokens_and_a_trained_head_are_told():
    batch = attnsvm.sample("sphere", model="sequence", causal=True, n=1, T=3, d=4, trials=2)
    assert "masked_tokens=6" in repr(batch)
    trained = attnsvm.sample("sphere", train=True, n=2, T=3, d=4, trials=2)
    assert "head=Linear (trained)" in repr(trained)


@pytest.mark.parametrize("index", [2, -4, np.int64(2), slice(2, 3), torch.tensor([2])])
def test_an_instance_of_every_stage(stages, index):
    batch, path, selection, solution = (stage[index] for stage in stages)
    assert torch.equal(batch.X, stages[0].X[2:3])
    assert torch.equal(path.W, stages[1].W[2:3])
    assert torch.equal(selection.selected, stages[2].selected[2:3])
    alone = attnsvm.solve_svm(batch.X, batch.Z, selection.optimal)
    assert solution.status == alone.status
    assert torch.equal(solution.W.nan_to_num(), alone.W.nan_to_num())
    assert torch.equal(solution.certificate.lower, alone.certificate.lower)
    assert torch.equal(solution.problem.D, alone.problem.D)


def test_stages_can_be_iterated_over_and_one_instance_cannot(stages):
    for stage in stages:
        assert len(stage) == len(list(stage)) == 6
        with pytest.raises(IndexError, match="instance 6: must be >= -6 and < 6"):
            stage[6]
    batch, _, selection, _ = stages
    one = attnsvm.solve_svm(batch.X[0], batch.Z[0], selection.optimal[0])
    with pytest.raises(TypeError, match="without a batch axis"):
        one[0]


@pytest.mark.parametrize("index", ["2", (0, 1), 1.5, None, [0, 1]])
def test_what_is_no_index_of_instances_is_refused(stages, index):
    for stage in stages:
        with pytest.raises(TypeError, match="must be an integer, a slice or a tensor"):
            stage[index]
