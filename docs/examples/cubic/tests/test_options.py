"""What attnsvm relies on holds for the options of this package."""

from attnsvm_cubic.config import AlignmentConfig, ClustersConfig, CubicHeadConfig
from attnsvm_cubic.data import Clusters
from attnsvm_cubic.head import Cubic
from attnsvm_cubic.probe import Alignment

from attnsvm.testing import check_config, check_data, check_head, check_probe


def test_head():
    check_head(Cubic(power=5))
    check_config(CubicHeadConfig, power=5)


def test_data():
    check_data(Clusters(n=3, T=4, d=5, spread=0.1))
    check_config(ClustersConfig, spread=0.1)


def test_probe():
    check_probe(Alignment(), AlignmentConfig)
    check_config(AlignmentConfig)
