"""The spectral norm and the Schatten p norms, 1 < p < inf."""

from attnsvm.svm.schatten.power import SchattenPower
from attnsvm.svm.schatten.spectral import Spectral

__all__ = ["SchattenPower", "Spectral"]
