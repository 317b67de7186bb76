"""`data=classes`, `contexts`, `classes_file`: a linear classifier, as one layer of attention.

A classifier with weights W (K, d) has the logits e_c^T W x: those of the query x at the tokens
e_1, ..., e_K. With `loss=log` of the attention that the label has, the risk is its cross-entropy.
Tokens and queries have max(K, d) entries, so that W is square: zeros beyond K and d.
"""

import dataclasses

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from attnsvm.config import ConfigError
from attnsvm.data.base import Data, Drawn, Seeded, check_own_scores, normal, unit_rows
from attnsvm.data.file import read_npz
from attnsvm.head import Head, RowScores
from attnsvm.model import Model
from attnsvm.problem import ProblemBatch, check_array, real


class Classes(Seeded):
    """Gaussian points that a linear classifier separates with certainty.

    The rows w_c of a teacher are uniform on the unit sphere, g_i is normal with variance 1 / d in
    each direction, and y_i is the class of largest w_c^T g_i. The point is x_i = g_i + margin w_y:
    the teacher prefers the class y_i there by margin (1 - max_c w_y^T w_c) at least.
    """

    def __init__(self, n: int, d: int, K: int, margin: float) -> None:
        super().__init__(n, K, d)
        self.K, self.margin = K, margin

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return the instances, each sample with the head of its label."""
        check_own_scores(head, model, "classes, contexts or classes_file")
        return super().sample(RowScores(), model, trials, seed)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw points with labels."""
        return classifier(*self.labelled(generator), self.K)

    def labelled(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Return points (n, d), float64, and their labels (n,), int64."""
        teacher = unit_rows(generator, self.K, self.d)
        g = normal(generator, self.n, self.d).double() / self.d**0.5
        y = (g @ teacher.mT).argmax(1)
        return g + self.margin * teacher[y], y


class Contexts(Classes):
    """Contexts with several next tokens: the linear decoder of arXiv 2402.18551.

    There are `contexts` points, normal with variance 1 / d in each direction. Each has `support`
    tokens of the vocabulary of K, drawn without replacement. Sample i has context i mod `contexts`,
    and its label is any of the tokens of that. A frequent pair counts as often as it occurs. With
    random scores the tokens of a sample have those of a point on the unit sphere, drawn last.
    """

    def __init__(self, n: int, d: int, K: int, contexts: int, support: int, scores: str) -> None:
        super().__init__(n, d, K, margin=0.0)
        self.contexts, self.support, self.scores = contexts, support, scores

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw contexts, labels, scores."""
        drawn = super().draw(generator, head)
        if self.scores == "random":
            v = unit_rows(generator, *drawn.Z.shape)
            return dataclasses.replace(drawn, head_parameters={"v": v})
        return drawn

    def labelled(self, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw contexts, the tokens of each, the label of each sample."""
        h = normal(generator, self.contexts, self.d).double() / self.d**0.5
        orders = [torch.randperm(self.K, generator=generator) for _ in range(self.contexts)]
        which = torch.arange(self.n) % self.contexts
        place = torch.randint(self.support, (self.n,), generator=generator)
        return h[which], torch.stack(orders)[which, place]


class ClassesFile(Data):
    """Points and labels of your own, one instance: `X` (n, d) and `y` (n,) of an .npz file.

    Labels are 0, ..., K - 1; K = 0 stands for one more than the largest.
    """

    def __init__(self, path: str, K: int) -> None:
        self.path, self.K = path, K

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return the instance of the file."""
        check_own_scores(head, model, "classes, contexts or classes_file")
        arrays = read_npz("data.path", self.path, "X, y")
        if set(arrays) != {"X", "y"} or arrays["X"].ndim != 2 or not arrays["X"].size:
            shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise ConfigError(f"data.path={self.path}: has {shapes}; must have X (n, d) and y (n,)")
        X, y = (real(name, arrays[name]) for name in "Xy")
        check_array("X", X, tuple(X.shape), torch.float64)
        check_array("y", y, (len(X),), torch.float64)
        K = max(2, self.K or int(y.max()) + 1)
        wrong = y[(y != y.floor()) | (y < 0) | (y >= K)]
        if len(wrong):
            label = f"{wrong[0]:g}"
            raise ConfigError(f"y: has the label {label}; must be whole numbers from 0 to {K - 1}")
        one = classifier(X, y.long(), K)
        samples = model.expand(one.X[None], one.Z[None], one.Y[None], None)
        v, numbers = one.head_parameters["v"][None], torch.tensor([seed])
        return ProblemBatch(
            **vars(samples), head=RowScores(), head_parameters={"v": v}, seeds=numbers
        )


def classifier(x: Tensor, y: Tensor, K: int) -> Drawn:
    """Return the layer of attention of points x (n, d) with labels y (n,) of K classes."""
    E = torch.eye(K, max(K, x.shape[1]), dtype=torch.float64)
    X = E.expand(len(x), -1, -1).contiguous()
    Z = pad(x, (0, E.shape[1] - x.shape[1]))
    return Drawn(X, Z, torch.ones(len(x), dtype=torch.float64), {"v": E[y]})
