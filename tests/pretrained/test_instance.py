"""A head as an instance in few dimensions: same attention and SVM, least Frobenius norm."""

import itertools
from types import SimpleNamespace

import pytest
import torch

import attnsvm
from attnsvm import ConfigError, SvmStatus
from attnsvm.data.pretrained import CONTROLS, AttentionLayer
from attnsvm.data.pretrained.layer import restricted as all_heads
from attnsvm.data.pretrained.layer import same_spectrum, with_one

N, T, D, HEADS, M = 4, 4, 30, 3, 5


def layer(causal: bool = False, seed: int = 0) -> AttentionLayer:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(N, T, D, generator=generator, dtype=torch.float64)
    K, Q = torch.randn(2, HEADS, M, D + 1, generator=generator, dtype=torch.float64)
    mask = torch.ones(N, T, T, dtype=torch.bool)
    return AttentionLayer(X, X, K, Q, mask.tril() if causal else mask)


QUERY = torch.tensor([3, 1, 2, 3])


def restricted(whole, head, *options):
    """Return the instance of a head."""
    found = all_heads(whole, QUERY, *options)
    W, scores = found.head(head)
    return SimpleNamespace(X=found.X, Z=found.Z, mask=found.mask, W=W, scores=scores)


def attention(X, Z, W, mask):
    logits = torch.einsum("ntd,de,ne->nt", X, W, Z)
    return logits.masked_fill(~mask, -torch.inf).log_softmax(-1)


def seen(whole, query, head):
    """Return W on span{d_it z_i^T} by least squares on these as rows, first admissible t apart."""
    at = torch.arange(len(whole.X))
    mask, Z = whole.mask[at, query], with_one(whole.Z[at, query])
    X = torch.nn.functional.pad(whole.X, (0, 1))
    first = mask.int().argmax(1)
    i, t = mask.nonzero().T
    rows = ((X[i, t] - X[i, first[i]])[:, :, None] * Z[i, None]).flatten(1)
    W = whole.W(head)
    found = torch.linalg.lstsq(rows, (rows @ W.flatten())[:, None], driver="gelsd", rcond=1e-10)
    return found.solution.view_as(W)


@pytest.mark.parametrize("causal", [False, True])
def test_weights_are_the_smallest_with_the_same_attention(causal):
    """Of the head and the others: all W + (invisible) have the attention, none is smaller."""
    whole = layer(causal)
    found = restricted(whole, 1)
    expected = whole.log_attention()[torch.arange(N), :, QUERY]
    generator = torch.Generator().manual_seed(1)
    for k, head in enumerate((1, 0, 2)):
        mine = attention(found.X, found.Z, found.W[k], found.mask)
        torch.testing.assert_close(mine, expected[:, head], rtol=1e-10, atol=1e-10)
        W = seen(whole, QUERY, head)
        torch.testing.assert_close(found.W[k].norm(), W.norm())
        sigma, expected_sigma = (torch.linalg.svdvals(A)[:N] for A in (found.W[k], W))
        torch.testing.assert_close(sigma, expected_sigma)
        assert found.W[k].norm() < 0.9 * whole.W(head).norm()
        inside = (found.X[:, :, :, None] * found.Z[:, None, None, :])[found.mask].flatten(1)
        other = torch.randn(inside.shape[1], generator=generator, dtype=torch.float64)
        other -= torch.linalg.pinv(inside, rtol=1e-10) @ (inside @ other)
        assert abs(other @ found.W[k].flatten()) < 1e-9 * other.norm() * found.W[k].norm()


@pytest.mark.full
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_SVM_and_correlation_are_those_of_all_dimensions(causal, norm):
    whole = layer(causal)
    found = restricted(whole, 0)
    selected = attention(found.X, found.Z, found.W[0], found.mask).argmax(1)
    inside = attnsvm.solve_svm(found.X, found.Z, selected, norm, found.mask)
    X = torch.nn.functional.pad(whole.X, (0, 1))
    Z = with_one(whole.X[torch.arange(N), QUERY])
    outside = attnsvm.solve_svm(X, Z, selected, norm, found.mask)
    assert inside.status is outside.status is SvmStatus.solved
    assert inside.objective == pytest.approx(float(outside.objective), rel=1e-7)
    W = seen(whole, QUERY, 0)
    mine = attnsvm.correlation(found.W[0], inside.W)
    torch.testing.assert_close(mine, attnsvm.correlation(W, outside.W), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_are_one_apart_at_the_token_of_most_attention(causal):
    found = restricted(layer(causal), 2)
    s = attention(found.X, found.Z, found.W[0], found.mask)
    scores = torch.einsum("ntd,nd->nt", found.X, found.scores)
    best = scores.gather(1, s.argmax(1, keepdim=True))
    others = torch.where(found.mask & (s < s.amax(1, keepdim=True)), best - scores, 1.0)
    torch.testing.assert_close(others, torch.ones(N, T, dtype=torch.float64))


def control(name, seed=0):
    return restricted(layer(), 1, name, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", CONTROLS[1:])
def test_controls_are_seeded_and_differ_from_the_head(name):
    found, same = control(name), control(name)
    assert all(torch.equal(getattr(found, part), getattr(same, part)) for part in ("X", "Z", "W"))
    others = [control(name, seed) for seed in range(1, 5)]
    assert any(not torch.equal(found.W, other.W) for other in others)
    assert not torch.allclose(
        attention(found.X, found.Z, found.W[0], found.mask),
        layer().log_attention()[torch.arange(N), 1, QUERY],
    )


def test_the_spectrum_control_has_the_singular_values_and_the_instance_of_the_head():
    K, Q = layer().K[..., :-1], layer().Q
    K2, Q2 = same_spectrum(K, Q, torch.Generator().manual_seed(0))
    sigma, mine = (torch.linalg.svdvals(A.mT @ B) for A, B in ((K, Q), (K2, Q2)))
    torch.testing.assert_close(mine[:, :M], sigma[:, :M])
    assert (mine[:, M] < 1e-12 * mine[:, 0]).all()
    found, plain = control("spectrum"), control("none")
    assert torch.equal(found.X, plain.X)
    assert torch.equal(found.Z, plain.Z)
    torch.testing.assert_close(found.W[1:], plain.W[1:])


def test_the_queries_control_gives_every_sample_the_query_of_another():
    whole = layer()
    found, plain = control("queries"), control("none")
    torch.testing.assert_close(found.X, plain.X)
    gram = with_one(whole.X[torch.arange(N), QUERY])
    sizes, shuffled = gram.square().sum(1), found.Z.square().sum(1).tolist()
    sent = [int((sizes - value).abs().argmin()) for value in shuffled]
    assert sorted(sent) == list(range(N))
    assert all(k != at for k, at in enumerate(sent))


def test_the_tokens_control_keeps_the_tokens_at_their_places():
    """Rows at places t and u of a sample: those of two sequences, at the same places."""
    whole, found = layer(), control("tokens")
    moved = 0
    for t, u in itertools.combinations(range(T), 2):
        apart = torch.cdist(whole.X[:, t], whole.X[:, u])
        for i, found_apart in enumerate((found.X[:, t] - found.X[:, u]).norm(dim=-1)):
            near = (apart - found_apart).abs()
            assert near.min() < 1e-9
            moved += int(near[i, i] > 1e-9)
    assert moved > 0


def test_a_control_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="control='spectra': must be none"):
        restricted(layer(), 0, "spectra")
