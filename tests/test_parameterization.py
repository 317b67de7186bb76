import pytest
import torch

from attnsvm.parameterization import KQ, W

B, D, N = 3, 5, 4
RULES = [W(), KQ(), KQ(m=2)]
each = pytest.mark.parametrize("rule", RULES, ids=["w", "kq", "kq2"])


@each
@pytest.mark.parametrize(("kind", "bound"), [("uniform", D**-0.5), ("small", 0.01 * D**-0.5)])
def test_initial_entries_fill_their_interval(rule, kind, bound):
    for V in rule.init(kind, 0.01, torch.arange(200), D):
        assert V.abs().max() <= bound
        assert V.max() > 0.98 * bound
        assert V.min() < -0.98 * bound


def test_zero_factors_can_still_move():
    K, Q = KQ().init("zero", 1.0, torch.arange(400), D)
    assert Q.eq(0).all()
    assert K.std().item() == pytest.approx(0.1, rel=0.05)


def test_given_weights_are_shared_copies():
    start = torch.eye(D).double(), torch.zeros(B, D, D).double()
    K, Q = KQ().copied(start, B, D)
    assert K.equal(start[0].expand(B, D, D))
    assert Q.data_ptr() != start[1].data_ptr()
