"""The theory of the papers, tested for each instance: assumptions, and types of convergence."""

from attnsvm.theory.assumptions import assumption_b1
from attnsvm.theory.convergence import convergence_types, direction_change, settled

__all__ = ["assumption_b1", "convergence_types", "direction_change", "settled"]
