"""The schema of a run, its checks, and what follows from it: objects, identity, folder name.

What a plug-in needs to declare an option is here: the base of its group, `option`, and what a field
allows.
"""

from attnsvm.config.data import DataConfig
from attnsvm.config.fields import ConfigError, ListOf, OneOf, Range, option
from attnsvm.config.groups import (
    HeadConfig,
    LossConfig,
    ModelConfig,
    ParameterizationConfig,
)
from attnsvm.config.optimizer import FirstOrderConfig, OptimizerConfig
from attnsvm.config.probe import ProbeConfig, Quantity
from attnsvm.config.run import GROUPS, PROBES, WITHOUT_EFFECT, RunConfig, SelectionConfig, SvmConfig
