"""The update rules of the weights, options of `optimizer=`."""

from attnsvm.optimizer.base import FirstOrder, Optimizer, Step
from attnsvm.optimizer.gradient_descent import (
    GD,
    Adam,
    MirrorDescent,
    Momentum,
    NormalizedGD,
    Polyak,
)
from attnsvm.optimizer.regularization_path import RegularizationPath
from attnsvm.optimizer.safe_gd import SafeGD
from attnsvm.optimizer.steepest import Muon, SignGD, Steepest
