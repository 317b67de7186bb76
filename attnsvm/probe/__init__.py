"""Measured quantities of weights and attention; `probe=[NAME]` is the module of that name."""

from attnsvm.probe.balance import Balance
from attnsvm.probe.base import Probe, Snapshot
from attnsvm.probe.distance import Distance
from attnsvm.probe.entropy import Entropy
from attnsvm.probe.excess_risk import ExcessRisk
from attnsvm.probe.held_out import HeldOut
from attnsvm.probe.margin_gap import MarginGap
from attnsvm.probe.measuring import measured, over_steps
from attnsvm.probe.mixture import Mixture
from attnsvm.probe.optimality import Optimality
from attnsvm.probe.other_heads import OtherHeads
from attnsvm.probe.rank import Rank

__all__ = [
    "Balance",
    "Distance",
    "Entropy",
    "ExcessRisk",
    "HeldOut",
    "MarginGap",
    "Mixture",
    "Optimality",
    "OtherHeads",
    "Probe",
    "Rank",
    "Snapshot",
    "measured",
    "over_steps",
]
