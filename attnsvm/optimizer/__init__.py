"""The update rules of the weights; option `optimizer=NAME` is the module of that name."""

from attnsvm.optimizer.adam import Adam
from attnsvm.optimizer.base import Optimizer
from attnsvm.optimizer.first_order import FirstOrder, Step
from attnsvm.optimizer.gd import GD
from attnsvm.optimizer.mirror_descent import MirrorDescent
from attnsvm.optimizer.momentum import Momentum
from attnsvm.optimizer.muon import Muon
from attnsvm.optimizer.normalized_gd import NormalizedGD
from attnsvm.optimizer.polyak import Polyak
from attnsvm.optimizer.regularization_path import RegularizationPath
from attnsvm.optimizer.safe_gd import SafeGD
from attnsvm.optimizer.sign_gd import SignGD
from attnsvm.optimizer.steepest import Steepest

__all__ = [
    "GD",
    "Adam",
    "FirstOrder",
    "MirrorDescent",
    "Momentum",
    "Muon",
    "NormalizedGD",
    "Optimizer",
    "Polyak",
    "RegularizationPath",
    "SafeGD",
    "SignGD",
    "Steepest",
    "Step",
]
