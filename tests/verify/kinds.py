"""Genuine records of many kinds of runs, small: made once, copied and edited by the tests."""

import copy
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path

import pytest

from attnsvm import experiment
from attnsvm.config.identity import run_name
from attnsvm.config.run import HYPOTHESES
from attnsvm.record.folder import write
from attnsvm.record.provenance import provenance
from attnsvm.record.schema import RunRecord
from tests.config.test_config import composed

ALL = f"hypotheses=[{','.join(HYPOTHESES)}]"
FEW = ALL.replace(",aligned_gradient", "")
BASE = "data.n=3 data.T=4 data.d=3 trials=4 optimizer.steps=200"
KINDS = {
    "top": BASE,
    "multi": "head=relu selection=multi data.n=3 data.T=4 data.d=4 trials=30 "
    "optimizer.steps=400 selection.reject_all_positive=true",
    "scc": "data=token_graph data.graph=cyclic data.n=12 trials=4 optimizer.steps=200 "
    "optimizer.init=zero loss=log selection=scc",
    "kq": f"{BASE} parameterization=kq",
    "path": "data.n=3 data.T=4 data.d=3 trials=3 optimizer=regularization_path "
    "optimizer.radii=[3,30,300] keep_path=true",
    "diverged": "data.n=3 data.T=4 data.d=3 trials=2 optimizer.steps=40 optimizer=gd "
    "optimizer.lr=1e307 loss=linear optimizer.growth=1e300",
    "other_norms": f"{BASE} svm.norms=[frobenius,max,l1,l1.75,spectral]",
    "optimal": "selection=optimal data.n=5 data.T=5 data.d=2 trials=8",
    "until_accepted": "head=relu selection=multi data.n=3 data.T=4 data.d=4 trials=2 seed=1 "
    "optimizer.steps=400 selection.until_accepted=true",
    "quadratic": "data=orthonormal head=quadratic head.lam=0.3 selection=multi data.n=3 data.T=4 "
    "data.d=6 trials=6 optimizer.steps=600",
    "no_constraint": "data.T=1 trials=2 optimizer.steps=2",
    "kq_low_rank": f"{BASE} parameterization=kq parameterization.m=1 trials=6",
    "paths_far": "data=paths_far seed=1 trials=2 optimizer.steps=300 optimizer.init=zero "
    "keep_path=true",
    "planted": f"{BASE} data=planted optimizer.init=zero data.held_out=6 probe=[held_out] "
    f"keep_path=true {ALL}",
    "prompt": f"{BASE} data=prompt optimizer=mirror_descent optimizer.init=cone "
    "optimizer.init_angle=30",
    "digits": "data=digits trials=3 optimizer.steps=300",
    "trained_head": f"{BASE} head=mlp head.train=true keep_path=true optimizer.steps=40",
    "joint_no_constraint": "head=joint data.n=3 data.T=1 data.d=3 trials=2 optimizer.steps=200 "
    "optimizer.growth=0.05",
    "exponential": f"{BASE} loss=exponential optimizer.init=small optimizer.record=geometric "
    "optimizer.growth=0.05",
    "squared": f"{BASE} loss=squared loss.target=0.1 optimizer=gd optimizer.lr=1",
    "aligned_kq": f"{BASE} parameterization=kq parameterization.m=2 loss=squared "
    "model=self_attention model.query=1 optimizer.init=aligned",
    "aligned_relu": f"{BASE} head=relu loss=linear optimizer.init=aligned",
    "cone_runner_up": f"{BASE} optimizer.init=cone_runner_up optimizer.init_angle=5 "
    "hypotheses=[runner_up_local]",
    "cone_rejected": "data.n=8 data.T=5 data.d=2 trials=4 optimizer.steps=50 optimizer.init=cone",
    "no_step": "data.n=3 data.T=4 data.d=3 trials=2 optimizer.steps=0",
    "adam": f"{BASE} optimizer=adam optimizer.lr=0.1 optimizer.batch=2 "
    "optimizer.weight_decay=0.1 probe=[constrained]",
    "rmsprop": f"{BASE} optimizer=adam optimizer.lr=0.03 optimizer.eps=0 optimizer.beta1=0 "
    "optimizer.beta2=0.5 optimizer.steps=1000",
    "quadratic_zigzag": f"{BASE} head=quadratic head.lam=0.3 optimizer.steps=500",
    "steepest": f"{BASE} optimizer=steepest optimizer.schedule=decay optimizer.growth=0.1 "
    "optimizer.beta=0.5",
    "other_norms_multi": "head=relu selection=multi data.n=3 data.T=4 data.d=6 trials=12 seed=1 "
    "svm.norms=[max,l3]",
    "mixture": f"{BASE} data.d=6 data=orthonormal head=quadratic head.lam=0.5 "
    "probe=[mixture,excess_risk] selection=multi selection.negligible=1e-3",
    "excess_risk": f"{BASE} probe=[excess_risk,rank,entropy,margin_gap] "
    "probe.rank.threshold=0.3 keep_path=true",
    "excess_risk_rounded": f"{BASE} probe=[excess_risk] optimizer.init=small "
    "optimizer.init_scale=1e17",
    "scc_contexts": "data=contexts data.K=5 data.d=3 trials=4 optimizer.steps=200 "
    "optimizer.init=zero loss=log selection=scc svm.norms=[frobenius,max]",
    "scc_kq": "data=token_graph data.embeddings=orthonormal trials=3 optimizer.steps=200 "
    "loss=log selection=scc parameterization=kq optimizer.init=balanced svm.norms=[nuclear,l3]",
    "scc_vocabulary": "data=token_graph data.graph=cyclic data.n=12 trials=4 optimizer.steps=100 "
    "optimizer.init=zero head=vocabulary loss=linear selection=scc "
    "svm.norms=[frobenius]",
    "scc_undefined": "data=token_graph data.output=tied data.n=24 trials=4 optimizer.steps=100 "
    "optimizer.init=zero loss=log selection=scc",
    "scc_tied": "data=token_graph data.n=1 data.T=1 trials=2 optimizer.steps=2 loss=log "
    "selection=scc",
    "classes_bias": "model=linear loss=cross_entropy data=classes data.bias=true data.K=3 data.d=4 "
    "trials=3 optimizer=steepest optimizer.norm=spectral+max optimizer.steps=300 "
    "probe=[margin_gap] svm.norms=[frobenius,spectral+max]",
    "hypotheses_optimal": "selection=optimal head=quadratic data.n=2 data.T=3 data.d=2 "
    f"trials=8 {FEW}",
    "hypotheses_multi": "head=relu selection=multi data.n=3 data.T=4 data.d=4 trials=12 "
    f"optimizer.steps=400 {ALL}",
    "hypotheses_causal": "model=sequence model.causal=true data.n=1 data.T=4 data.d=3 trials=4 "
    f"optimizer.steps=200 head=mlp keep_path=true {ALL}",
    "network": "model=transformer data.n=2 data.T=3 data.d=4 trials=2 optimizer.steps=300",
    "network_all": "model=transformer model.trained=all model.mlp=3 model.heads=2 "
    "model.readout=mean data.n=2 data.T=3 data.d=4 trials=2 optimizer.steps=100 "
    "parameterization=kq",
    "network_collapsed": "model=transformer model.layers=3 model.residual=false "
    "parameterization=kq data.n=1 data.T=3 data.d=4 seed=64 trials=4 optimizer.steps=1500 "
    "optimizer.init=small",
    "narrow_gap": "selection=optimal data.n=5 data.T=5 data.d=8 trials=6 svm.gap=1e-12",
}
"""Overrides of kinds of runs that no record in docs has, or that tests forge."""


def some_quick(names: Iterable[str], quick: Collection[str]) -> list[object]:
    """Return cases for pytest; those that are not quick are marked `full`."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.full) for n in names]


def recorded(name: str, *further: str) -> tuple[object, RunRecord]:
    """Return config and record of a kind of run, to be edited; it is run once in a process."""
    return copy.deepcopy(_run(name, *further))


@lru_cache
def _run(name: str, *further: str) -> tuple[object, RunRecord]:
    config = composed(KINDS[name], *further)
    return config, experiment.run(config)


def written(folder: Path, config: object, record: RunRecord) -> Path:
    """Write a record below `folder`, and return its own folder."""
    inside = folder / run_name(config)
    inside.mkdir(parents=True)
    write(inside, [record], provenance(config, []))
    return inside
