"""The schema of the group `probe`: what is measured of the weights beside the fixed columns.

The quantities of attnsvm's probes are declared in `probe.csv`; a plug-in declares its own in
`QUANTITIES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from attnsvm.config.fields import MISSING, OneOf, Option, Range, allowed_values
from attnsvm.config.words import rows

MAX_NAME, MAX_TEXT = 50, 500
"""Largest number of characters of the name of a probe or quantity, and of a meaning or unit."""


@dataclass(frozen=True)
class Quantity:
    """A number that a probe measures of every instance: what it says, and in what unit (or `1`).

    `allowed` are the values that it may have besides NaN.
    """

    meaning: str
    unit: str
    allowed: Range | OneOf | None = None

    def __post_init__(self) -> None:
        if not all(
            len(text) <= MAX_TEXT and text.isprintable() for text in (self.meaning, self.unit)
        ):
            raise ValueError("a Quantity must have a meaning and a unit of one line each")


DECLARED: dict[str, dict[str, Quantity]] = {}
"""The quantities of `probe.csv`, by probe and name."""
for _row in rows(Path(__file__).with_suffix(".csv")):
    _quantity = Quantity(_row["meaning"], _row["unit"], allowed_values(_row["allowed"]))
    DECLARED.setdefault(_row["probe"], {})[_row["name"]] = _quantity


class ProbeConfig(Option):
    """A probe: its options, and the quantities that it measures."""

    GROUP = "probe"
    QUANTITIES: ClassVar[Mapping[str, Quantity]] = {}
    """The quantities by name; quantity `stable` of the probe `rank` is column `rank_stable`."""

    def __init_subclass__(cls, name: str = "", target: str = "", **others: Any) -> None:
        super().__init_subclass__(name, target, **others)
        if name:
            cls.GROUP, cls.QUANTITIES = f"probe.{name}", DECLARED[name]


class RankConfig(ProbeConfig, name="rank"):
    """Effective and stable rank of W, which is K Q^T where these are trained."""

    threshold: Annotated[
        float, Range(0, 1, open=True, below=True), "rank: sigma > this * sigma_1"
    ] = 1e-3


class EntropyConfig(ProbeConfig, name="entropy"):
    """Entropy of attention, -sum_t s_t log s_t, mean and maximum over the samples."""


class DistanceConfig(ProbeConfig, name="distance"):
    """Distance of the direction of W to that of a matrix in an .npy file."""

    path: Annotated[str, "the file, (d, d) numbers; a value is required"] = MISSING


class BalanceConfig(ProbeConfig, name="balance"):
    """How far K and Q are from balance, which gradient flow from balanced weights keeps.

    Needs parameterization=kq.
    """


class MarginGapConfig(ProbeConfig, name="margin_gap"):
    """By how much W misses the largest margin; NaN for a norm whose SVM is not solved."""


class ConstrainedConfig(ProbeConfig, name="constrained"):
    """How far W is from the least risk in the ball of its own norm, where weights decay."""


class ExcessRiskConfig(ProbeConfig, name="excess_risk"):
    """Logarithm of the risk above that of attending to the selected tokens alone.

    For a linear head, else NaN.
    """


class SlopeConfig(ProbeConfig, name="slope"):
    """Least slope of the head at the attended mean of a sample, 0 where that sample is flat."""


class OtherHeadsConfig(ProbeConfig, name="other_heads"):
    """The other heads of a layer of data=pretrained against the SVM of the tokens of one head."""


class HeldOutConfig(ProbeConfig, name="held_out"):
    """What W selects in further samples of the same instance, data.held_out of them."""


class MixtureConfig(ProbeConfig, name="mixture"):
    """How far attention is from the mixture of tokens that scores best, known before training.

    For a linear or quadratic head, or a relu head with labels +1; NaN where it is not unique.
    """


class OptimalityConfig(ProbeConfig, name="optimality"):
    """In how many samples the selected token is optimal, or locally optimal."""


class TokenGraphProbeConfig(ProbeConfig, name="token_graph"):
    """The token-priority graphs of next-token prediction: components, edges, attention by them."""


def described_quantities(probes: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return meaning and unit of the quantities of probes, as a record holds them."""
    quantities = probe_quantities(probes)
    return {
        name: {"meaning": quantity.meaning, "unit": quantity.unit}
        for name, quantity in quantities.items()
    }


def probe_quantities(probes: Mapping[str, Any]) -> dict[str, Quantity]:
    """Return the quantities of probes, given by name, by the name of their column, sorted."""
    quantities = {
        f"{name}_{quantity}": meaning
        for name, config in probes.items()
        for quantity, meaning in config.QUANTITIES.items()
    }
    return dict(sorted(quantities.items()))
