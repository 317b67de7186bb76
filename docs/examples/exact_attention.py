"""Draw docs/examples/exact_attention.png: two layers that torch trains, with either attention."""

import matplotlib.pyplot as plt
import torch
from torch.nn.functional import scaled_dot_product_attention, softplus

import attnsvm

FUNCTIONS = {"torch": scaled_dot_product_attention, "attnsvm.nn": attnsvm.nn.attention}
STEPS = [round(10 ** (k / 8)) for k in range(8, 29)]


class TwoLayers(torch.nn.Module):
    """x_k <- (x_k + sum_t s_kt x_t) / sqrt(2), s_k = softmax_t(x_t^T W x_k), twice."""

    def __init__(self, attend, shape, dtype):
        super().__init__()
        start = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
        self.attend, self.W = attend, torch.nn.Parameter(1e-3 * start.to(dtype))

    def forward(self, X):
        """Return the input of each layer, and the output."""
        first = (X + self.attend(X @ self.W[0].mT, X, X, scale=1.0)) / 2**0.5
        second = (first + self.attend(first @ self.W[1].mT, first, first, scale=1.0)) / 2**0.5
        return X, first, second


def train(model, X, Y, v, steps):
    """Take steps along the normalised gradient of each W; return W (2, B, steps, d, d)."""
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(1, steps[-1] + 1):
        optimizer.zero_grad()
        margins = Y * torch.einsum("bnd,bd->bn", model(X)[-1][:, :, 0], v)
        softplus(-margins).mean(1).sum().backward()
        G, least = model.W.grad, torch.finfo(X.dtype).tiny
        G /= G.abs().amax((-2, -1), keepdim=True).clamp(min=least)  # its squares could underflow
        G /= G.norm(dim=(-2, -1), keepdim=True).clamp(min=least)
        optimizer.step()
        if step in steps:
            seen.append(model.W.detach()[:, :, 0].double().clone())
    return torch.stack(seen, 2)


def distances(model, X, path):
    """Return 1 - corr of W with the SVM of its layer, (2, B, steps); NaN where there is none."""
    apart, read = torch.empty(path.shape[:3]), torch.zeros(X.shape[:3], dtype=torch.bool)
    read[:, :, 0] = True  # positions that the head reads, then those that layer 2 reads
    for layer, rows in reversed([*enumerate(model(X)[:2])]):
        Z = rows.detach().double()
        s = (Z @ path[layer, :, -1:].mT @ Z.mT).softmax(-1)
        for b, seen in enumerate(read):
            tokens = Z[b].unsqueeze(1).expand(-1, X.shape[2], -1, -1)[seen]
            svm = attnsvm.solve_svm(tokens, Z[b][seen], s[b].argmax(-1)[seen])
            apart[layer, b] = attnsvm.one_minus_correlation(path[layer, b], svm.W)
        read = read | ((s > 1e-3) & read.unsqueeze(-1)).any(2)
    return apart


def main(target="docs/examples/exact_attention.png", steps=STEPS, trials=16):
    """Train and draw; print the last medians, and how many layers have no SVM."""
    batch = attnsvm.sample("sphere", model=attnsvm.Transformer(), n=4, T=5, d=16, trials=trials)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
    for ax, dtype in zip(axes, (torch.float64, torch.float32), strict=True):
        X, Y, v = (part.to(dtype) for part in (batch.X, batch.Y, batch.head_parameters["v"]))
        for name, attend in FUNCTIONS.items():
            model = TwoLayers(attend, (trials, 1, 16, 16), dtype)
            apart = distances(model, X, train(model, X, Y, v, steps))
            for layer, color in enumerate(("#0072B2", "#D55E00")):
                median, label = apart[layer].nanmedian(0).values, f"layer {layer + 1}, {name}"
                ax.plot(steps, median, "--" if name == "torch" else "-", color=color, label=label)
                print(dtype, label, f"{median[-1]:.1e}", apart[layer, :, 0].isnan().sum().item())
        ax.set(xscale="log", yscale="log", xlabel="step", title=str(dtype).removeprefix("torch."))
    axes[0].set_ylabel("1 - corr(W, SVM of its layer)")
    axes[0].legend(fontsize=8)
    figure.savefig(target, dpi=100)


if __name__ == "__main__":
    main()
