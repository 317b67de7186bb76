"""`data=planted`: one token of each sample carries the label, and resembles the query."""

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from attnsvm.config import ConfigError
from attnsvm.config.data import PlantedConfig
from attnsvm.data.base import Drawn, Seeded, check_v, normal
from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Head, unit_vector
from attnsvm.model import Model


@dataclass(eq=False)
class Planted(Seeded):
    """Samples of one distribution, so that what is learned on n of them is asked on others.

    In d - 1 dimensions besides the first: z_i uniform on the unit sphere; tokens u_it uniform on
    it, but u_ir = (signal z_i + g) / ||signal z_i + g|| for a relevant token r, drawn uniformly,
    and g uniform on the sphere. x_it = (0, u_it), but x_ir = (Y_i c, sqrt(1 - c^2) u_ir) with
    c = score_gap, and v = e_1: the relevant token has the score c, all others exactly 0. With c = 0
    all tokens are optimal; with signal = 0 nothing tells which one is relevant, besides its score.

    `held_out` further samples of each instance, `ProblemBatch.held_out`, are drawn after the n, and
    change none of them.
    """

    score_gap: float = PlantedConfig.score_gap
    signal: float = PlantedConfig.signal
    held_out: int = PlantedConfig.held_out

    def __post_init__(self) -> None:
        if self.d < 3:  # in one dimension signal z + g may be 0
            raise ConfigError(f"data.d={self.d}: must be >= 3 with data=planted")

    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return the instances, with their further samples."""
        if not self.held_out:
            return super().sample(head, model, trials, seed)
        drawn = self.n + self.held_out
        batch = replace(self, n=drawn, held_out=0).sample(head, model, trials, seed)
        first = batch.n // drawn * self.n
        training, held_out = (
            {name: getattr(batch, name)[:, part] for name in ("X", "Z", "Y", "mask")}
            for part in (slice(first), slice(first, None))
        )
        return replace(batch, **training, held_out=replace(batch, **held_out))

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw sample by sample: query, tokens, relevant token, its label."""
        check_v(head, "planted")
        head.draw(generator, self.d)  # first, as in every source
        samples = [self._sample(generator) for _ in range(self.n)]
        X, Z, Y = (torch.stack(part) for part in zip(*samples, strict=True))
        v = torch.zeros(self.d, dtype=torch.float64)
        v[0] = 1.0
        return Drawn(X, Z, Y, {"v": v})

    def _sample(self, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens (T, d), the query (d,) and the label of one sample."""
        z = unit_vector(generator, self.d - 1)
        u = unit_vector(generator, self.T, self.d - 1)
        relevant = int(torch.randint(self.T, (), generator=generator))
        label = 1.0 if normal(generator, 1).item() > 0 else -1.0
        mixed = self.signal * z + u[relevant]
        x = torch.cat([torch.zeros(self.T, 1, dtype=torch.float64), u], 1)
        x[relevant, 0] = label * self.score_gap
        x[relevant, 1:] = (1 - self.score_gap**2) ** 0.5 * mixed / mixed.norm()
        return x, torch.cat([z.new_zeros(1), z]), torch.tensor(label, dtype=torch.float64)
