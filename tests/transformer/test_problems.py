"""Every layer and head as a one-layer problem: its samples, scores and SVM."""

import dataclasses

import pytest
import torch

import attnsvm
from attnsvm import Transformer, experiment, layer_problems, train_layers
from attnsvm.config.compose import composed
from attnsvm.transformer.network import Weights, forward
from attnsvm.transformer.problems import visible_rows

SHAPE = {"n": 3, "T": 4, "d": 8}


def trained(model, trials=3, steps=300, init="zero", **shape):
    """Return instances, and the trajectory of their networks."""
    batch = attnsvm.sample("sphere", model=model, trials=trials, **SHAPE | shape)
    return batch, train_layers(batch, model, steps=steps, init=init, record_every=100)


@pytest.mark.parametrize("residual", [True, False])
def test_keys_queries_and_attention_are_those_of_the_network(residual):
    model = Transformer(layers=2, heads=2, residual=residual, values="orthogonal")
    batch, path = trained(model)
    problems = layer_problems(batch, path)
    layers = forward(model, path.weights, batch.X)
    n, T, d = SHAPE.values()
    for at in range(len(problems.layer)):
        b, l, h = at // 4, at // 2 % 2, at % 2
        assert (problems.layer[at], problems.head[at]) == (l, h)
        assert problems.batch.seeds[at] == batch.seeds[b]
        problem = problems.batch[at]
        assert problem.Z[0].equal(layers[l].X[b].reshape(n * T, d))
        for k in range(T):
            assert problem.X[0, k::T].equal(layers[l].X[b])
        W = path.weights.W[b, l, h]
        assert problems.path.W[at].equal(W)
        logits = torch.einsum("ktd,de,ke->kt", problem.X[0], W, problem.Z[0])
        softmax = logits.masked_fill(~problem.mask[0], -torch.inf).softmax(-1)
        assert torch.allclose(problems.path.log_softmax[at].exp(), softmax, atol=1e-12)
    tokens = problems.batch.mask.sum(-1)  # a row that is not seen has no constraint
    assert (tokens == torch.where(problems.visible, T, 1)).all()
    assert (problems.visible.sum(1)[problems.layer == 1] == n).all()


def test_the_readout_sees_rows_along_paths():
    """A chain: position 0 attends to 1 in the last layer, 1 to 2 in the first one."""
    model = Transformer(layers=2, residual=False)
    X = torch.eye(4, dtype=torch.float64)[None, None]
    W = torch.zeros(1, 2, 1, 4, 4, dtype=torch.float64)
    for query, key in ((0, 1), (1, 2), (2, 2), (3, 3)):
        W[0, 0, 0, key, query] = 50.0  # logit of key for this query in the first layer
    # the second layer sees rows e_2, e_3, e_3, e_4 of the unit vectors; row 0 asks for e_3
    W[0, 1, 0, 2, 1] = 50.0
    layers = forward(model, Weights(W), X)
    read, first, last = visible_rows(model, layers, 1e-3)
    assert last[0, 0].tolist() == [True, False, False, False]
    assert first[0, 0].tolist() == [False, True, True, False]
    assert read[0, 0].tolist() == [False, False, True, False]
    with_residual = visible_rows(Transformer(layers=2), layers, 1e-3)[1]
    assert with_residual[0, 0].tolist() == [True, True, True, False]
    causal = Transformer(layers=2, readout="every", residual=False)
    assert visible_rows(causal, layers, 1e-3)[2].all()


@pytest.mark.full
@pytest.mark.parametrize("residual", [True, False])
def test_scores_are_the_fall_of_the_risk(residual):
    """gamma_kt - gamma_ku is -dL if attention of row k moves from u to t, up to a factor."""
    model = Transformer(layers=2, residual=residual, heads=2, values="orthogonal")
    batch, path = trained(model, trials=1, steps=3, init="uniform")
    weights = dataclasses.replace(path.weights, W=path.weights.W.clone().requires_grad_())
    layers = forward(model, weights, batch.X)
    u = batch.Y * batch.head.value(layers[-1].rows[:, :, 0], batch.head_parameters)
    log_s = layers[0].log_s
    (G,) = torch.autograd.grad(path.loss.value(u).mean(), log_s)
    falls = (-G / log_s.exp())[0].flatten(1, 2)  # -dL/ds, (H, n T, T)
    problems = layer_problems(batch, path)
    scores = problems.batch.scores()[:2]  # of the heads of the first layer
    ours, theirs = (s - s.mean(-1, keepdim=True) for s in (scores, falls))
    assert (attnsvm.correlation(ours[:, :, None], theirs[:, :, None]) > 1 - 1e-10).all()
    factor = problems.log_adjoint.exp() / problems.batch.head_parameters["v"].norm(dim=-1)
    assert torch.allclose(factor[:2, :, None] * ours, theirs, rtol=1e-10)
    assert (problems.log_adjoint[2:].isfinite() == problems.visible[2:]).all()  # first row only


@pytest.mark.full
def test_a_row_that_is_not_seen_is_at_its_law():
    """Two instances whose first layer an unseen row pulls away from the SVM, and a third one."""
    options = "model=transformer", "data.n=4", "data.T=5", "data.d=16", "optimizer.init=small"
    config = composed([*options, "optimizer.steps=30000", "trials=6", "seed=46"])
    rows = experiment.run(config).trials.query("layer == 0").set_index("seed").loc[[46, 51, 50]]
    assert (rows["one_minus_corr_law"] <= 1e-4).all()
    assert (rows["one_minus_corr_frobenius"] > 5e-3).tolist() == [True, True, False]
