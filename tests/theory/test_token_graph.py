"""The Graph-SVM of next-token prediction, by the definitions of arXiv 2403.08081."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnsvm import sample, solve_least_norm
from attnsvm.data.problem import ProblemBatch
from attnsvm.experiment.results import OK, Trained, marked
from attnsvm.experiment.svms import Work, components
from attnsvm.head import RowScores, Vocabulary
from attnsvm.loss import LinearLoss, Log
from attnsvm.theory.token_graph import RiskInside, label_components
from tests.svm.instances import batch_of

BATCH = batch_of(8, 4, 6, 40, data="token_graph", graph="cyclic", K=5, seed=100)


def separated(batch, loss):
    """Return the Graph-SVM of a batch in a run that solves it as it is."""
    svm = SimpleNamespace(norms=["frobenius"], gap=1e-9, rank_tolerance=1e-6)
    run = SimpleNamespace(
        config=SimpleNamespace(svm=svm),
        objects=SimpleNamespace(loss=loss),
        timed=lambda *_: nullcontext(),
        known=lambda name, solution, trained: solution,
    )
    path = SimpleNamespace(snapshots=torch.zeros(batch.B, 1, batch.d, batch.d).double())
    work = Work(run, Trained(batch, path))
    components(work)
    return work


def reached(b):
    """Return tokens E, ids (n, T), and which tokens each one reaches, by last token: (K, K)."""
    E, ids = torch.unique(BATCH.X[b].flatten(0, 1), dim=0, return_inverse=True)
    ids, graphs = ids.view(BATCH.n, BATCH.T).numpy(), {}
    for row, best in zip(ids, BATCH.scores()[b].argmax(-1).tolist(), strict=True):
        graphs.setdefault(row[-1], np.eye(len(E), dtype=int))[row[best], row] = 1
    return E.numpy(), ids, {k: np.linalg.matrix_power(R, len(E)) > 0 for k, R in graphs.items()}


@pytest.mark.parametrize(
    ("head", "loss", "ratio", "share"),
    [
        (RowScores(), Log(), 2, 2 / 3),
        (RowScores(), Log(), 50, 50 / 51),  # held by a small gradient
        (Vocabulary(), LinearLoss(), 2, (1 + math.log(2)) / 2),
        (Vocabulary(), LinearLoss(), 3, 1.0),  # beyond the ratio e it falls for ever
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_the_finite_part_has_the_odds_of_the_labels(head, loss, ratio, share, unit):
    """After the sequence (1, 0, 0) the next token is 1, `ratio` times as often as 0."""
    E, n = torch.eye(2, dtype=torch.float64), ratio + 1
    X, y = E[[1, 0, 0] * n].view(1, n, 3, 2), torch.tensor([[1] * ratio + [0]])
    Y, mask = torch.ones(1, n).double(), torch.ones(1, n, 3, dtype=torch.bool)
    Z, rows = unit * X[:, :, -1], head.of_labels(E, y)
    batch = ProblemBatch(X, Z, Y, mask, head, rows, torch.arange(1))
    inside, first = label_components(batch)
    risk = RiskInside(batch, inside, loss)
    s = risk.least()[0, 0].exp()
    assert s.tolist() == pytest.approx([share, (1 - share) / 2, (1 - share) / 2], abs=1e-6)
    W = torch.outer(E[1] - E[0], E[0]) * s.log().diff()[0] / -2 / unit
    assert risk.falls(W.reshape(1, -1), inside & first).tolist() == [share == 1]


def test_what_has_no_graph_svm_is_a_status(tmp_path):
    """A component swallows everything; or the risk falls as pairs of tokens move apart.

    First, after (1, 0) comes 0 or 1, so that no token is below another one. Then 0, 1 and 2, 3 come
    next equally often, 0 three times as often as 2: no token is alone.
    """
    pairs = {"ids": [[[1, 0]] * 2, [[1, 0]] * 2], "next": [[0, 1], [1, 1]]}
    ids = [[0, 1, 4]] * 2 + [[2, 3, 4]] * 2 + [[0, 2, 4]] * 4
    apart = {"ids": ids, "next": [0, 1, 2, 3, 0, 0, 0, 2]}
    for arrays, head, loss, words in (
        (pairs, "linear", Log(), ["unconstrained", "ok"]),
        (apart, "vocabulary", LinearLoss(), ["rejected"]),
    ):
        np.savez(tmp_path / "ids.npz", **arrays)
        batch = sample("file", path=str(tmp_path / "ids.npz"), head=head)
        status = marked([OK] * batch.B, separated(batch, loss).exclusions)
        assert [word for word, _ in status] == words


def test_the_graph_svm_is_that_of_its_definition():
    """Equal margins within components and >= 1 to what is below, for all pairs of tokens.

    Components are those of reachability, and their equations are as few as the edges of a tree.
    """
    inside, kept = (part.numpy() for part in label_components(BATCH))
    objectives = separated(BATCH, Log()).solutions["frobenius"].objective.tolist()
    for b, labels in enumerate(BATCH.scores().argmax(-1).tolist()):
        E, ids, reach = reached(b)
        strong = [
            (R & R.T)[row[t]] for row, t in zip(ids, labels, strict=True) for R in [reach[row[-1]]]
        ]
        assert np.array_equal(inside[b], np.take_along_axis(np.array(strong), ids, 1))
        trees = {(row[-1], *which) for row, which in zip(ids, strong, strict=True)}
        assert (inside & kept)[b].sum() == BATCH.n + sum(sum(which) - 1 for _, *which in trees)
        pairs = [(k, i, j) for k, R in reach.items() for i, j in np.argwhere(R) if i != j]
        equal = np.array([reach[k][j, i] for k, i, j in pairs])
        U, V = np.array([(E[i] - E[j], E[k]) for k, i, j in pairs]).swapaxes(0, 1)
        below = ((U[~equal], V[~equal]), np.ones((~equal).sum()))
        equations = ((U[equal], V[equal]), np.zeros(equal.sum())) if equal.any() else None
        solution = solve_least_norm(*below, "frobenius", equations)
        assert objectives[b] == pytest.approx(solution.objective, rel=1e-6)
