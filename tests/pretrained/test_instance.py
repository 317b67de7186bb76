"""A head as an instance in few dimensions: same attention and SVM, least Frobenius norm."""

import pytest
import torch
from torch.testing import assert_close

import attnsvm
from attnsvm.data.pretrained import AttentionLayer, restricted
from attnsvm.data.pretrained.layer import same_spectrum, with_one
from tests.kkt import normal

N, T, D, HEADS, M = 4, 4, 30, 3, 5
AT, QUERY = torch.arange(N), torch.tensor([3, 1, 2, 3])


def layer(causal: bool = False) -> AttentionLayer:
    X, K, Q = normal(N, T, D), *normal(2, HEADS, M, D + 1, seed=1)
    mask = torch.ones(N, T, T, dtype=torch.bool)
    return AttentionLayer(X, X, K, Q, mask.tril() if causal else mask)


def attention(instance, W):
    logits = torch.einsum("ntd,hde,ne->nht", instance.X, W, instance.Z)
    return logits.masked_fill(~instance.mask[:, None], -torch.inf).log_softmax(-1)


def projected(whole, head):
    """Return W on span{d_it z_i^T} by least squares on these as rows, first admissible t apart."""
    mask, Z = whole.mask[AT, QUERY], with_one(whole.Z[AT, QUERY])
    X, first = torch.nn.functional.pad(whole.X, (0, 1)), mask.int().argmax(1)
    i, t = mask.nonzero().T
    rows = ((X[i, t] - X[i, first[i]])[:, :, None] * Z[i, None]).flatten(1)
    W = whole.W(head)
    logits = (rows @ W.flatten())[:, None]
    return torch.linalg.lstsq(rows, logits, driver="gelsd", rcond=1e-10).solution.view_as(W)


@pytest.mark.parametrize("causal", [False, True])
def test_heads_have_their_attention_scores_and_svms_and_the_smallest_weights(causal):
    """Weights of the head come first. The spectrum is that of the projection."""
    whole = layer(causal)
    few = restricted(whole, QUERY)
    W, v = few.head(1)
    assert few.W.equal(few.others)
    assert W.equal(few.W[[1, 0, 2]])
    assert_close(attention(few, few.W), whole.log_attention()[AT, :, QUERY])
    full = torch.stack([projected(whole, head) for head in range(HEADS)])
    sigma, expected = (torch.linalg.svdvals(A)[:, :N] for A in (few.W, full))
    assert_close(sigma, expected)
    assert (
        expected.norm(dim=1) < 0.9 * torch.stack([*map(whole.W, range(3))]).norm(dim=(1, 2))
    ).all()
    logs, scores = attention(few, few.W)[:, 1], (few.X @ v[..., None])[..., 0]
    best = logs.argmax(1, keepdim=True)
    others = few.mask.scatter(1, best, False)
    behind = (scores.gather(1, best) - scores)[others]
    assert_close(behind, torch.ones_like(behind))
    X, Z = torch.nn.functional.pad(whole.X, (0, 1)), with_one(whole.X[AT, QUERY])
    for norm in ("frobenius", "nuclear"):
        inside = attnsvm.solve_svm(few.X, few.Z, best[:, 0], norm, few.mask)
        outside = attnsvm.solve_svm(X, Z, best[:, 0], norm, few.mask)
        assert inside.status == outside.status == "solved"
        assert inside.objective == pytest.approx(float(outside.objective), rel=1e-7)
        expected = attnsvm.correlation(full[1], outside.W)
        assert_close(attnsvm.correlation(W[0], inside.W), expected, rtol=1e-4, atol=1e-6)


def controlled(name):
    return restricted(layer(), QUERY, name, torch.Generator().manual_seed(0))


def test_the_spectrum_control_has_the_singular_values_and_the_instance_of_the_head():
    K, Q = layer().K[..., :-1], layer().Q
    pairs = (K, Q), same_spectrum(K, Q, torch.Generator().manual_seed(0))
    sigma, random = (torch.linalg.svdvals(A.mT @ B) for A, B in pairs)
    assert_close(random[:, :M], sigma[:, :M])
    assert (random[:, M] < 1e-12 * random[:, 0]).all()
    control, plain = controlled("spectrum"), controlled("none")
    for name in ("X", "Z", "others"):
        assert_close(getattr(control, name), getattr(plain, name))


def test_the_queries_control_gives_every_sample_the_query_of_another():
    control = controlled("queries")
    assert_close(control.X, controlled("none").X)
    sizes = with_one(layer().X[AT, QUERY]).square().sum(1)
    sent = (control.Z.square().sum(1)[:, None] - sizes).abs().argmin(1)
    assert sorted(sent.tolist()) == AT.tolist()
    assert (sent != AT).all()


def test_the_tokens_control_keeps_the_tokens_at_their_places():
    """Samples have the distances of rows of several sequences, each of them once at each place."""
    control, own = controlled("tokens"), AT[:, None].expand(N, T)
    moved = layer().X[control.source, torch.arange(T)]
    assert_close(torch.cdist(control.X, control.X), torch.cdist(moved, moved))
    assert control.source.sort(0).values.equal(own)
    assert not control.source.equal(own)
