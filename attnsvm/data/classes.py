"""`data=classes` and `contexts`: a linear classifier, as one layer of attention.

A classifier with weights W (K, d) has the logits e_c^T W x: those of the query x at the tokens
e_1, ..., e_K. With `loss=cross_entropy`, -log of the attention of the label, that is its risk.
Tokens and queries have max(K, d) entries, so that W is square: zeros beyond K and d.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from attnsvm.config.data import ClassesConfig, ContextsConfig
from attnsvm.data.base import Drawn, Seeded, check_own_scores, normal
from attnsvm.head import Head, RowScores, unit_vector
from attnsvm.model import LinearClassifier, Model


@dataclass(eq=False, kw_only=True)
class Classes(Seeded):
    """Points that a linear classifier separates with certainty.

    The rows w_c of a teacher are uniform on the unit sphere, g_i is normal with variances from
    1 / d to 1 / (d condition), a geometric series, and y_i is the class of largest w_c^T g_i. The
    point is x_i = g_i + margin w_y: the teacher prefers the class y_i there by
    margin (1 - max_c w_y^T w_c) at least. With points=rademacher, g_i has instead the entries
    +-c_i / sqrt(d), all of one size, c_i uniform in [0.5, 1.5]: data of arXiv 2510.26303.

    With a bias all points are moved by a vector that is uniform on the unit sphere, drawn last, and
    have a further, last entry 1 / sqrt(d), the size of the others: the last column of W is a bias,
    and some bias undoes the move.
    """

    T: int = field(init=False)  # K
    K: int = ClassesConfig.K
    margin: float = ClassesConfig.margin
    points: str = ClassesConfig.points
    condition: float = ClassesConfig.condition
    bias: bool = ClassesConfig.bias

    def __post_init__(self) -> None:
        self.T = self.K

    def head_of(self, head: Head, model: Model) -> Head:
        """Return the head of each sample's label."""
        check_own_scores(head, model, "classes or contexts", LinearClassifier)
        return RowScores()

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw points with labels."""
        x, y = self.labelled(generator)
        if not self.bias:
            return classifier(x, y, self.K)
        moved = pad(x + unit_vector(generator, self.d), (0, max(0, self.K - self.d - 1)))
        return classifier(pad(moved, (0, 1), value=self.d**-0.5), y, self.K)

    def labelled(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return points (n, d), float64, and their labels (n,), int64."""
        teacher = unit_vector(generator, self.K, self.d)
        g = normal(generator, self.n, self.d).double() / self.d**0.5
        g *= torch.logspace(0, -math.log10(self.condition) / 2, self.d, dtype=torch.float64)
        if self.points == "rademacher":
            c = 0.5 + torch.rand(self.n, 1, generator=generator, dtype=torch.float64)
            g = c * g.sign() / self.d**0.5
        y = (g @ teacher.mT).argmax(1)
        return g + self.margin * teacher[y], y


@dataclass(eq=False, kw_only=True)
class Contexts(Classes):
    """Contexts with several next tokens: the linear decoder of arXiv 2402.18551.

    There are `contexts` points, normal with variance 1 / d in each direction. Each has `support`
    tokens of the vocabulary of K, drawn without replacement. Sample i has context i mod `contexts`,
    and its label is any of the tokens of that. A frequent pair counts as often as it occurs. With
    random scores the tokens of a sample have those of a point on the unit sphere, drawn last.
    """

    contexts: int = ContextsConfig.contexts
    support: int = ContextsConfig.support
    scores: str = ContextsConfig.scores

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw contexts, labels, scores."""
        drawn = super().draw(generator, head)
        if self.scores == "random":
            v = unit_vector(generator, *drawn.Z.shape)
            return replace(drawn, head_parameters={"v": v})
        return drawn

    def labelled(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw contexts, the tokens of each, the label of each sample."""
        h = normal(generator, self.contexts, self.d).double() / self.d**0.5
        orders = [torch.randperm(self.K, generator=generator) for _ in range(self.contexts)]
        which = torch.arange(self.n) % self.contexts
        place = torch.randint(self.support, (self.n,), generator=generator)
        return h[which], torch.stack(orders)[which, place]


def classifier(x: Tensor, y: Tensor, K: int) -> Drawn:
    """Return the layer of attention of points x (n, d) with labels y (n,) of K classes."""
    E = torch.eye(K, max(K, x.shape[1]), dtype=torch.float64)
    X = E.expand(len(x), -1, -1).contiguous()
    Z = pad(x, (0, E.shape[1] - x.shape[1]))
    return Drawn(X, Z, torch.ones(len(x), dtype=torch.float64), {"v": E[y]})
