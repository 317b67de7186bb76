"""The options of this package; no import of torch, so that `attnsvm --help` stays fast."""

from __future__ import annotations

from dataclasses import dataclass

from attnsvm.config import (
    ConfigError,
    DataConfig,
    HeadConfig,
    ProbeConfig,
    Quantity,
    Range,
    option,
)


@dataclass
class CubicHeadConfig(HeadConfig):
    """h(o) = (v^T o)^power."""

    _target_: str = "attnsvm_cubic.head.Cubic"
    power: int = option(3, Range(1, 9), "exponent, odd: the optimal token is that of v^T o")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.power % 2 == 0:
            raise ConfigError(f"head.power={self.power}: must be odd")


@dataclass
class ClustersConfig(DataConfig):
    """Tokens around two opposite centres, labels of equal chance."""

    _target_: str = "attnsvm_cubic.data.Clusters"
    n: int = option(4, Range(1, 1000), "samples of an instance")
    T: int = option(5, Range(1, 1000), "tokens of a sample")
    d: int = option(6, Range(1, 1000), "dimension of a token")
    spread: float = option(0.5, Range(low=0, open=True), "distance of a token from its centre")


@dataclass
class AlignmentConfig(ProbeConfig):
    """How far W is symmetric."""

    GROUP = "probe.alignment"
    QUANTITIES = {
        "symmetry": Quantity("<W, W^T> / ||W||_F^2, 1 if W is symmetric", "1", Range(-1.001, 1.001))
    }
    _target_: str = "attnsvm_cubic.probe.Alignment"
