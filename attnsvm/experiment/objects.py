"""The objects that a config names, built once a run, and what they must have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnsvm.config import GROUPS, ConfigError, RunConfig
from attnsvm.config.data import PretrainedConfig
from attnsvm.config.groups import is_transformer
from attnsvm.config.instantiate import instantiate
from attnsvm.config.probe import probe_quantities
from attnsvm.data import Data, Seeded
from attnsvm.head import Head
from attnsvm.loss import Loss
from attnsvm.model import Model, Transformer
from attnsvm.optimizer import Optimizer
from attnsvm.parameterization import Parameterization
from attnsvm.probe import Probe
from attnsvm.record.columns import probe_columns
from attnsvm.training import check_start


@dataclass(frozen=True, eq=False)
class RunObjects:
    """The object of every group of a config, under the name of the group, and its probes."""

    model: Model
    parameterization: Parameterization
    head: Head
    data: Data
    optimizer: Optimizer
    loss: Loss
    probes: Mapping[str, Probe]

    @classmethod
    def of(cls, config: RunConfig) -> RunObjects:
        """Return the objects of a config."""
        objects: dict[str, Any] = {
            group: instantiate(getattr(config, group), group, config.extensions) for group in GROUPS
        }
        nodes = config.probe.items()
        probes = {name: instantiate(node, "probe", config.extensions) for name, node in nodes}
        return cls(**objects, probes=probes)

    def implicit_bias(self) -> str | None:
        """Return the norm of the SVM that training converges to; None where it is not known.

        Of steps by some of the samples, or of weights that decay, it is not.
        """
        if any(getattr(self.optimizer, name, None) for name in ("batch", "weight_decay")):
            return None
        return self.parameterization.implicit_bias(self.optimizer.implicit_bias)

    @property
    def factors(self) -> bool:
        """Whether a probe needs K and Q at every snapshot."""
        return any(probe.FACTORS for probe in self.probes.values())


def check(config: RunConfig) -> RunObjects:
    """Return the objects of a config; raise ConfigError for errors that the schema cannot find.

    The optimizer checks the head. For seeded data one instance is drawn to check its shape with
    the model, the head and the parameterization. Files and devices are checked in the run only:
    they may be missing on the machine of the driver.
    """
    objects = RunObjects.of(config)
    if isinstance(objects.model, Transformer) and not is_transformer(vars(config.model)):
        raise ConfigError(f"model={config.model._target_}: must not be derived from Transformer")
    objects.optimizer.check_head(objects.head)
    objects.optimizer.check_loss(objects.loss)
    check_probes(config, objects.probes, objects.parameterization)
    if isinstance(objects.data, Seeded):
        instance = objects.data.sample(objects.head, objects.model, 1, config.seed)
        objects.parameterization.shapes(instance.d)
        if config.selection.tokens != "optimal":
            check_start(objects.parameterization, objects.optimizer, instance.d)
        for probe in objects.probes.values():
            probe.check(instance.d)
    return objects


def check_probes(config: RunConfig, probes: Mapping[str, Probe], rule: Parameterization) -> None:
    """Raise ConfigError if a probe needs what the run does not have."""
    quantities = probe_quantities(config.probe)
    probe_columns(quantities)
    if len(quantities) < sum(len(node.QUANTITIES) for node in config.probe.values()):
        names = ",".join(config.probe)
        raise ConfigError(f"probe=[{names}]: two have one column; must have different ones")
    transformer, tokens = is_transformer(vars(config.model)), config.selection.tokens
    pretrained = isinstance(config.data, PretrainedConfig)
    for name, probe in probes.items():
        allowed = ("top", "multi", "scc") if probe.GEN_SVM else ("top",)
        solved = f"the SVM of the selected tokens; selection must be {' | '.join(allowed)}"
        needs = {
            "K and Q; parameterization must be kq": probe.FACTORS and len(rule.NAMES) != 2,
            "K and Q; model must not be transformer": probe.FACTORS and transformer,
            "the heads of a layer; data must be pretrained": probe.WEIGHTS and not pretrained,
            solved: probe.SOLUTIONS and tokens not in allowed,
        }
        for needed, missing in needs.items():
            if missing:
                raise ConfigError(f"probe=[{name}]: needs {needed}")
