"""The steps of the compiled training loop, in the coordinates of the span of tokens and queries.

With an orthonormal basis E of the queries, z_i = sum_k R_ki E_k, the weights are
W = sum_k V_k E_k^T + a (the part of W0 outside of their span). So U_i = W z_i = sum_k R_ki V_k, and
the gradient in V_k is sum_i R_ki P_i: the loop does not need W itself. R is upper triangular where
n <= d. Likewise Q^T z_i = sum_k R_ki Q_k.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from attnsvm.linalg import EPS
from attnsvm.linalg.jit import compiled, inlined, subroutine
from attnsvm.linalg.simd.arithmetic import exp, fill, maximum, sqrt, where
from attnsvm.linalg.simd.array import LaneArray, arrays
from attnsvm.linalg.simd.blocks import Workspace
from attnsvm.linalg.simd.matmul import (
    add,
    inner,
    matmul,
    matmul_inline,
    rescale,
    upper_matmul,
    upper_T_matmul,
)
from attnsvm.optimizer.base import TINY, Direction, Rule, remember
from attnsvm.optimizer.gradient_descent import ADAM, adapt
from attnsvm.optimizer.steepest import steepest
from attnsvm.training.compiled.gradient import Instance, Update, gradient, of_block


@subroutine
def replaced(
    G: LaneArray,
    rule: Rule,
    direction: Direction | None,
    which: int,
    memory: Any,
    scale: Any,
    eps: float,
    work: Workspace,
) -> tuple[Any, float]:
    """Overwrite G e^scale by its direction, that of its momentum where there is one.

    Return the log-scale and the factor of the variable `which`, 0 without a direction. `memory` are
    momentum and sum of squares, each with its log-scale. For an argument None numba drops the rest:
    loops without a direction hold none of them, which take longer to compile than all else.
    """
    M, scale_M, _, _ = memory
    if direction is None:
        return (remember(G, M, scale_M, scale, rule) if rule.beta > 0 else scale), 0.0
    if direction.code == ADAM:
        scale = adapt(G, memory, scale, rule, direction.beta2, eps)
        return scale, direction.factors[which]
    if rule.beta > 0:
        scale = remember(G, M, scale_M, scale, rule)
    steepest(G, direction, work)
    return scale, direction.factors[which]


@arrays
class Variable(NamedTuple):
    """W^T, K or Q of all blocks, each array with an axis more in front.

    Its coordinates V (a, b), the `share` (1,) of its start that is left, which is updated as they
    are, and the squared norm `square` (1,) of what of the start is outside of the spans. Momentum M
    and Adam's sum of squares S (a, b) with log-scales (1,), empty where there is none.
    """

    V: LaneArray
    share: LaneArray
    square: LaneArray
    M: LaneArray
    scale_M: LaneArray
    S: LaneArray
    scale_S: LaneArray


@arrays
class Kept(NamedTuple):
    """What is kept at each stop of each block: coordinates and shares, logits and margins.

    K is empty where W is trained; then W^T takes the place of Q.
    """

    K: LaneArray
    K_share: LaneArray
    Q: LaneArray
    Q_share: LaneArray
    logits: LaneArray
    margins: LaneArray


@inlined
def _differentiate(
    K: LaneArray,
    Q: LaneArray,
    here: Instance,
    work: Workspace,
    update: Update,
    weights: Any,
    recorded: bool,
) -> Any:
    """Write the gradients of a block in the coordinates K (r, m), at G, and Q (c, m), at H.

    Return what `gradient` does. Where m is 0, W^T (c, r) takes the place of Q. With many samples
    the product Q K^T (c, r), and the gradient in it, take fewer operations than K and Q do.
    """
    m, (n, r), c = work.B.shape[1], work.U.shape, len(Q)
    by_product = n * m * (2 * c + 3 * r) > r * c * (3 * m + 2 * n)
    by_factors = m > 0 and not by_product
    if by_product:
        matmul(work.W, Q, K.T)
    at_queries, of_tokens = (work.B, work.A) if by_factors else (work.U, work.P)
    upper_T_matmul(at_queries, here.R, work.W if by_product else Q, update.triangular)
    if by_factors:
        matmul_inline(work.U.T, K, work.B.T)
    scale = gradient(here, work, update, weights, recorded)
    if by_factors:
        matmul_inline(work.A.T, K.T, work.P.T)
        matmul_inline(work.G.T, work.B.T, work.P)
    upper_matmul(work.W if by_product else work.H, here.R, of_tokens, update.triangular)
    if by_product:
        matmul(work.G, work.W.T, Q)
        matmul(work.H, work.W, K)
    return scale


@njit(inline="always")
def _factors(scale: Any, log_ridge: float) -> Any:
    """Return a common log-scale, the factor of the risk's and that of the ridge's gradient."""
    if log_ridge == -np.inf:
        return scale, fill(1.0), fill(0.0)
    common = maximum(scale, log_ridge)
    return common, exp(scale - common), exp(log_ridge - common)


@subroutine
def _descend(
    variable: Variable,
    which: int,
    b: int,
    G: LaneArray,
    factors: Any,
    plan: Any,
    work: Workspace,
    update: Update,
) -> None:
    """V <- (1 - decay) V - step (risk G + ridge V) in block b, and likewise outside of the spans.

    G is overwritten. Directions other than the gradient's and momenta have no part outside of the
    spans.
    """
    eta, decay, eps = plan[0], plan[1], plan[2]
    share, (scale, risk, ridge) = variable.share[b], factors
    v, g = variable.V[b].flat, G.flat
    if update.log_ridge > -np.inf:
        for j in range(len(v)):
            g[j] = risk * g[j] + ridge * v[j]
    memory = variable.M[b], variable.scale_M[b], variable.S[b], variable.scale_S[b]
    scale, factor = replaced(G, update.rule, update.rule.direction, which, memory, scale, eps, work)
    kept = 1 - decay
    if update.decays:
        rescale(v, kept)
    if factor > 0:
        share[0] *= kept
        add(v, g, -eta * factor)
        return
    rest = ridge * share[0]
    square = rest * rest * variable.square[b, 0] + inner(g, g)
    if update.rule.normalised:
        step = eta / (sqrt(square) + (TINY if update.exact else EPS))
    else:
        step = eta * where(scale > 708, np.inf, exp(scale))
    add(v, g, -step)
    share[0] *= kept - step * ridge


@compiled("training loop", "12 s, or 60 s of steps in a norm", nogil=True, error_model="numpy")
def take_steps(
    first: int,
    last: int,
    data: Instance,
    work: Workspace,
    K: Variable,
    Q: Variable,
    kept: Kept,
    plan: Any,
    stops: Any,
    update: Update,
) -> None:
    """Take len(plan) steps of K and Q, or of W^T in place of Q, in the blocks first <= b < last.

    After as many steps as each of the rising `stops` says, coordinates, logits and margins are
    copied to the arrays `kept`, which have an entry for each stop and block.
    """
    factors = work.B.shape[1] > 0
    for b in range(first, last):
        here, taken = of_block(data, b), 0
        for k in range(len(plan) + 1):
            recorded = taken < len(stops) and stops[taken] == k
            if k == len(plan) and not recorded:
                break
            weights = plan[min(k, len(plan) - 1), 3:] if len(plan) else plan[:0, 0]
            scale = _differentiate(K.V[b], Q.V[b], here, work, update, weights, recorded)
            if recorded:
                at = taken, b - first
                kept.logits[at], kept.margins[at] = work.logits, work.margin
                kept.Q[at], kept.Q_share[at] = Q.V[b], Q.share[b]
                if factors:
                    kept.K[at], kept.K_share[at] = K.V[b], K.share[b]
                taken += 1
            if k < len(plan):
                shares = _factors(scale, update.log_ridge)
                if factors:
                    _descend(K, 0, b, work.G, shares, plan[k], work, update)
                _descend(Q, 1, b, work.H, shares, plan[k], work, update)
