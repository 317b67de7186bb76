"""Attention as a support vector machine on one page: an instance, gradient descent, the SVM.

n samples of T tokens x_it in R^d, a query z_i and a label y_i each. A fixed head v scores a token
by gamma_it = y_i v^T x_it, and attention predicts y_i f_i = sum_t softmax_t(x_it^T W z_i) gamma_it.
Gradient descent on W makes the softmax tend to one token of each sample, and the direction of W to
that of the SVM that separates these tokens from the others of their samples:

    W_mm = argmin ||W||_F  subject to  (x_i,selected - x_it)^T W z_i >= 1 for all other tokens t.

Needs torch and cvxpy: `python docs/examples/minimal.py` prints the correlation of W and W_mm.
"""

import cvxpy as cp
import torch


def instance(n: int, T: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return tokens (n, T, d), queries (n, d) and scores (n, T) on the unit sphere."""
    generator = torch.Generator().manual_seed(seed)

    def unit(*shape: int) -> torch.Tensor:
        V = torch.randn(*shape, generator=generator, dtype=torch.float32)
        return (V / V.norm(dim=-1, keepdim=True)).double()

    v = unit(d)
    y = 2.0 * (torch.randn(n, generator=generator, dtype=torch.float32) > 0).double() - 1.0
    X, Z = unit(n, T, d), unit(n, d)
    return X, Z, y[:, None] * (X @ v)


def descend(X: torch.Tensor, Z: torch.Tensor, gamma: torch.Tensor, steps: int) -> torch.Tensor:
    """Return W after normalised steps of gradient descent on the logistic risk, from W = 0."""
    W = torch.zeros(X.shape[-1], X.shape[-1], dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        attention = (X @ W @ Z[:, :, None])[:, :, 0].softmax(dim=1)
        top = gamma.gather(1, attention.argmax(dim=1, keepdim=True))  # else gradients are rounding
        f = (attention * (gamma - top)).sum(dim=1) + top[:, 0]
        risk = torch.nn.functional.softplus(-f).mean()
        (gradient,) = torch.autograd.grad(risk, W)
        with torch.no_grad():
            W -= 0.1 * gradient / gradient.norm()
    return W.detach()


def svm(X: torch.Tensor, Z: torch.Tensor, selected: torch.Tensor) -> torch.Tensor:
    """Return the W of least Frobenius norm that gives the selected tokens a margin >= 1."""
    W = cp.Variable((X.shape[-1], X.shape[-1]))
    margins = [
        (X[i, selected[i]] - X[i, t]).numpy() @ W @ Z[i].numpy() >= 1
        for i in range(len(X)) for t in range(X.shape[1]) if t != selected[i]
    ]  # fmt: skip
    cp.Problem(cp.Minimize(cp.sum_squares(W)), margins).solve(solver=cp.CLARABEL)
    return torch.as_tensor(W.value)


if __name__ == "__main__":
    X, Z, gamma = instance(n=6, T=8, d=10, seed=0)
    W = descend(X, Z, gamma, steps=2000)
    W_mm = svm(X, Z, selected=(X @ W @ Z[:, :, None])[:, :, 0].argmax(dim=1))
    print("correlation of W and W_mm:", float((W * W_mm).sum() / W.norm() / W_mm.norm()))
