"""Several layers and heads of attention: exact training, and each as a one-layer problem."""

from attnsvm.transformer.network import Weights
from attnsvm.transformer.problems import LayerProblems, layer_problems
from attnsvm.transformer.training import LayerTrajectory, networks_at_once, train_layers
