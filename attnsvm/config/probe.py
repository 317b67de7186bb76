"""The schema of the group `probe`: what is measured of the weights beside the fixed columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from omegaconf import MISSING

from attnsvm.config.fields import NON_NEGATIVE, SHARE, THRESHOLD, Option, Range, option

MAX_NAME, MAX_TEXT = 50, 500
"""Largest number of characters of the name of a probe or quantity, and of a meaning or unit."""


@dataclass(frozen=True)
class Quantity:
    """A number that a probe measures of every instance.

    Attributes
    ----------
    meaning, unit : str
        What it says, and in what; `1` for a pure number.
    allowed : Range or None
        The values that it may have besides NaN.
    """

    meaning: str
    unit: str
    allowed: Range | None = None

    def __post_init__(self) -> None:
        if not all(len(one) <= MAX_TEXT and one.isprintable() for one in (self.meaning, self.unit)):
            raise ValueError("a Quantity must have a meaning and a unit of one line each")


class ProbeConfig(Option):
    """A probe: its options, and the quantities that it measures."""

    GROUP = "probe"
    QUANTITIES: ClassVar[Mapping[str, Quantity]] = {}
    """The quantities by name; quantity `stable` of the probe `rank` is column `rank_stable`."""

    def __init_subclass__(cls, name: str = "", target: str = "", **others: Any) -> None:
        super().__init_subclass__(name, target, **others)
        if name:
            cls.GROUP = f"probe.{name}"


class RankConfig(ProbeConfig, name="rank", target="Rank"):
    """The rank of W, which is K Q^T where these are trained."""

    QUANTITIES = {  # noqa: RUF012
        "effective": Quantity(
            "singular values of W above probe.rank.threshold of the largest", "count", NON_NEGATIVE
        ),
        "stable": Quantity("stable rank of W, ||W||_F^2 / ||W||_2^2", "1", NON_NEGATIVE),
    }
    threshold: float = option(1e-3, THRESHOLD, "rank: sigma > this * sigma_1")


class EntropyConfig(ProbeConfig, name="entropy", target="Entropy"):
    """The entropy of the attention of a sample, -sum_t s_t log s_t."""

    QUANTITIES = {  # noqa: RUF012
        "mean": Quantity("entropy of the softmax of a sample, mean", "nat", NON_NEGATIVE),
        "max": Quantity("entropy of the softmax of a sample, largest", "nat", NON_NEGATIVE),
    }


class DistanceConfig(ProbeConfig, name="distance", target="Distance"):
    """The distance of the direction of W to that of a matrix M from an .npy file."""

    QUANTITIES = {  # noqa: RUF012
        "direction": Quantity(
            "|| W / ||W||_F - M / ||M||_F ||_F, M from probe.distance.path", "1", Range(0, 2 + 1e-9)
        ),
    }
    path: str = option(MISSING, None, "the file, (d, d) numbers; a value is required")


class BalanceConfig(ProbeConfig, name="balance", target="Balance"):
    """How far K and Q are from balance, which gradient flow from balanced weights keeps."""

    QUANTITIES = {  # noqa: RUF012
        "gap": Quantity(
            "||K^T K - Q^T Q||_F / (||K||_F ||Q||_F), 0 if balanced", "1", NON_NEGATIVE
        ),
    }


class MarginGapConfig(ProbeConfig, name="margin_gap", target="MarginGap"):
    """By how much W misses the largest margin; NaN for a norm whose SVM is not solved."""

    QUANTITIES = {  # noqa: RUF012
        norm: Quantity(f"1 - rho(W), rho by the {norm} norm", "1", Range(low=-1e-6))
        for norm in ("frobenius", "nuclear")
    }


class ExcessRiskConfig(ProbeConfig, name="excess_risk", target="ExcessRisk"):
    """The risk above that of attending to the selected tokens alone; linear head, else NaN."""

    QUANTITIES = {  # noqa: RUF012
        "log": Quantity(
            "log(L - L*), L* the risk of attending to the selected tokens alone; NaN where L <= L*",
            "log of loss", Range(),
        ),
    }  # fmt: skip


class OtherHeadsConfig(ProbeConfig, name="other_heads", target="OtherHeads"):
    """The other heads of a pretrained layer against the SVM of one head's tokens."""

    QUANTITIES = {  # noqa: RUF012
        norm: Quantity(
            f"correlation of the layer's other heads with the SVM of least {norm} norm, mean",
            "1", Range(-1 - 1e-12, 1 + 1e-12),
        )
        for norm in ("frobenius", "nuclear")
    }  # fmt: skip


class HeldOutConfig(ProbeConfig, name="held_out", target="HeldOut"):
    """Further samples of the same instance, data.held_out of them: what W selects there."""

    QUANTITIES = {  # noqa: RUF012
        "optimal": Quantity(
            "share of the held-out samples that attend most to a token of highest score", "1", SHARE
        ),
        "excess": Quantity(
            "mean over the held-out samples of gamma_opt - Y f, the excess risk by loss=linear",
            "score", Range(),
        ),
    }  # fmt: skip


class MixtureConfig(ProbeConfig, name="mixture", target="Mixture"):
    """The mixture of a sample's tokens that scores best, known before training.

    For a linear or quadratic head, or a relu head with labels +1; NaN where it is not unique.
    """

    QUANTITIES = {  # noqa: RUF012
        "apart": Quantity(
            "largest total variation distance of a sample's softmax from the mixture of its tokens "
            "that scores best", "1", Range(0, 1 + 1e-12),
        ),
        "fin": Quantity(
            "||P W - W_fin||_F / ||W_fin||_F, W_fin of least Frobenius norm with the log-ratios of "
            "that mixture, P the projection on the span of these equations; NaN where they are "
            "none or dependent", "1", NON_NEGATIVE,
        ),
    }  # fmt: skip


class OptimalityConfig(ProbeConfig, name="optimality", target="Optimality"):
    """In how many samples the selected token is optimal, or locally optimal."""

    NORMS: ClassVar[tuple[str, ...]] = ("frobenius", "nuclear")
    QUANTITIES = {
        "best": Quantity(
            "share of the samples whose selected token alone has the highest score", "1", SHARE,
        ),
        "best_chance": Quantity(
            "the same if the scores of each sample were in random order: mean of 1 / number of "
            "tokens", "1", SHARE,
        ),
    } | {
        norm: Quantity(
            "share of the samples whose selected token scores above its neighbours, those of "
            f"margin 1 under the SVM of least {norm} norm; NaN unless it is solved, for one token "
            "each",
            "1", SHARE,
        )
        for norm in NORMS
    } | {
        f"{norm}_chance": Quantity(
            "the same if the scores of each sample were in random order: mean of 1 / (1 + number "
            "of neighbours)",
            "1", SHARE,
        )
        for norm in NORMS
    }  # fmt: skip


def described_quantities(probes: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return meaning and unit of the quantities of probes, as a record holds them."""
    found = probe_quantities(probes)
    return {name: {"meaning": one.meaning, "unit": one.unit} for name, one in found.items()}


def probe_quantities(probes: Mapping[str, Any]) -> dict[str, Quantity]:
    """Return the quantities of probes, given by name, by the name of their column, sorted."""
    found = {
        f"{name}_{quantity}": meaning
        for name, config in probes.items()
        for quantity, meaning in config.QUANTITIES.items()
    }
    return dict(sorted(found.items()))
