"""Batches and results at a prompt, in a notebook, by instance, and drawn with their numbers."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import attnsvm


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def stages():
    """Batch, training, selection and SVMs, of which some have no solution."""
    batch = attnsvm.sample("sphere", n=5, T=5, d=2, trials=6)
    path = attnsvm.train(batch, parameterization="kq", steps=200)
    selection = attnsvm.select_tokens(batch, path)
    solution = attnsvm.solve_svm(batch.X, batch.Z, selection.optimal)
    assert 0 < solution.status.count("solved") < 6
    return batch, path, selection, solution


def points(ax):
    """Return points and sizes of what is drawn, by its label."""
    return {part.get_label(): (part.get_offsets(), part.get_sizes()) for part in ax.collections}


def test_an_instance_shows_the_score_of_every_admissible_token(ax):
    """The area of a disc is its attention."""
    batch = attnsvm.sample("sphere", model="sequence", causal=True, n=1, T=4, d=3, trials=3)
    path = attnsvm.train(batch, steps=50)
    assert batch.plot(2, W=path.W, ax=ax) is ax
    gamma, shown = batch.scores()[2].numpy(), points(ax)
    admissible = gamma > -np.inf
    assert np.allclose(np.sort(shown["token"][0][:, 1]), np.sort(gamma[admissible]))
    assert np.allclose(shown["optimal token"][0][:, 1], gamma.max(1))
    areas = shown["attention (area)"][1]
    assert np.allclose(areas, 300 * path.softmax[2, -1].numpy()[admissible])


def test_in_the_plane_the_paths_end_in_the_direction_of_W_z(ax):
    batch = attnsvm.sample("paths_far", trials=1)
    path = attnsvm.train(batch, steps=200, init="zero")
    batch.plot(W=path.snapshots, ax=ax)
    ends = [line.get_xydata()[-1] for line in ax.lines if line.get_linestyle() == "-"]
    unit = torch.nn.functional.normalize
    expected = unit(batch.Z[0] @ path.W[0].T)
    torch.testing.assert_close(unit(torch.as_tensor(np.array(ends))), expected)


def test_weights_of_another_batch_are_refused(stages):
    batch, path, _, solution = stages
    for wrong in (torch.eye(2), torch.zeros(6, 5, 5)):
        with pytest.raises(attnsvm.ConfigError, match=r"W: shape .*; must be \(B, d, d\)"):
            batch.plot(W=wrong)
    with pytest.raises(attnsvm.ConfigError, match="W_svm: shape"):
        path.plot(solution.W[:2])


def test_training_shows_the_attention_beside_the_selected_tokens(ax, stages):
    path = stages[1]
    path.plot(ax=ax)
    *curves, median = [line.get_ydata() for line in ax.lines]
    others = np.sort(path.softmax.numpy(), -1)[..., :-1].sum(-1).max(-1)
    assert np.array_equal(curves, others)
    assert np.array_equal(median, np.median(others, axis=0))


def test_a_saturated_instance_is_not_drawn_as_rounding_noise(ax):
    attnsvm.train(attnsvm.sample("sphere", n=3, T=4, d=8, trials=4), steps=4000).plot(ax=ax)
    assert max(line.get_ydata()[-1] for line in ax.lines) < 1e-17  # 1 - s would be 0 or 1e-16


def test_training_beside_solutions_shows_the_correlation_and_counts_those_without(ax, stages):
    _, path, _, solution = stages
    solved = torch.tensor([status == "solved" for status in solution.status])
    path.plot(solution.W, ax=ax)
    *curves, median = ax.lines
    expected = attnsvm.one_minus_correlation(path.snapshots, solution.W[:, None])[solved]
    assert np.array_equal([line.get_ydata() for line in curves], expected)
    assert median.get_label() == f"median of {len(curves)}, {6 - len(curves)} without a value"


def test_margins_are_those_of_the_solution(ax, stages):
    solution = stages[3]
    k = solution.status.index("solved")
    solution.plot(k, ax=ax)
    assert ax.get_title().startswith("solved, frobenius norm")
    shown = points(ax)
    drawn = np.concatenate([at[:, 1] for at, _ in shown.values()])
    margin = solution.problem.margins(solution.W)[k].numpy()
    assert np.allclose(np.sort(drawn), np.sort(margin))
    assert f"active: margin one ({int(solution.support[k].sum())})" in shown
    assert len(margin) == 5 * 4


def test_a_line_has_sizes_and_counts_but_no_array(stages):
    batch, path, selection, solution = map(repr, stages)
    assert batch == "ProblemBatch(instances=6, n=5, T=5, d=2, head=Linear, device=cpu)"
    assert "trained=K, Q (m=2)" in path
    ended = [status.value for status in stages[1].status()]
    assert f"{ended.count('unsaturated')} unsaturated" in path
    assert f"saturated={int(stages[2].saturated.sum())}" in selection
    solved = stages[3].status.count("solved")
    assert f"{solved} solved" in solution
    assert f"{6 - solved} infeasible" in solution
    for stage in stages:  # a notebook shows the same as a table
        html = stage._repr_html_()
        assert html.count("<tr>") == len(stage.summary())
        assert type(stage).__name__ in html


@pytest.mark.parametrize(
    "index", [2, -4, np.int64(2), slice(2, 3), torch.tensor([2]), torch.arange(6) == 2]
)
def test_an_instance_of_every_stage(stages, index):
    for stage, name in zip(stages, ("X", "W", "selected", "W"), strict=True):
        part, whole = getattr(stage[index], name), getattr(stage, name)
        torch.testing.assert_close(part, whole[2:3], rtol=0, atol=0, equal_nan=True)
    solution, whole = stages[3][index], stages[3]
    assert solution.status == whole.status[2:3]
    assert torch.equal(solution.certificate.lower, whole.certificate.lower[2:3])
    assert torch.equal(solution.problem.D, whole.problem.D[2:3])


def test_stages_can_be_iterated_over_and_indexed_and_one_instance_cannot(stages):
    for stage in stages:
        assert len(stage) == len(list(stage)) == 6
        with pytest.raises(IndexError, match="instance 6: must be >= -6 and < 6"):
            stage[6]
        for index in ("2", (0, 1), 1.5, None, [0, 1]):
            with pytest.raises(TypeError, match="must be an integer, a slice or a tensor"):
                stage[index]
    batch, _, selection, _ = stages
    single = attnsvm.solve_svm(batch.X[0], batch.Z[0], selection.optimal[0])
    with pytest.raises(TypeError, match="without a batch axis"):
        single[0]
