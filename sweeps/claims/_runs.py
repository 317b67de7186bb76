"""Runs that several claims share. Seeds and shapes are such that hypotheses are met and not met."""

from __future__ import annotations

from ._claim import Runs

SVMS = Runs.of(
    "svms", "selection=optimal data.n=2,5 data.T=2,5 data.d=1,2,4,8,16 model=cross_attention,"
    "self_attention trials=50"
)  # fmt: skip
"""No training: the SVMs of the optimal tokens, feasible and infeasible ones."""

DESCENT = Runs.of(
    "descent", "data.n=2,3 data.T=2,3 data.d=2,4,8 optimizer.growth=0.05 optimizer.steps=10000 "
    "optimizer.record_every=500 trials=200 hypotheses=[assumption_b2,assumption_d,aligned_gradient]"
)  # fmt: skip
"""Normalised steps of W, which grow, on shapes of which all selections can be listed."""

ZERO = Runs.of("zero", " ".join((*DESCENT.overrides, "optimizer.init=zero", "trials=100")))
"""The same from W(0) = 0."""

EQUAL_SCORES = Runs.of(
    "equal_scores", "data=planted data.score_gap=0.2,0.5 data.n=2,3 data.T=3,4 data.d=3,4,8 "
    "optimizer.init=zero,uniform optimizer.growth=0.05 optimizer.steps=10000 "
    "optimizer.record_every=500 trials=100 hypotheses=[assumption_b2,aligned_gradient]"
)  # fmt: skip
"""Several tokens of one score below the best, which random tokens have for T = 2 only."""

COUNTEREXAMPLES = Runs.of(
    "counterexamples", "data.n=5 data.T=2 data.d=4,5 optimizer.growth=0.05 optimizer.steps=10000 "
    "optimizer.record_every=500 trials=100 hypotheses=[assumption_d]"
)  # fmt: skip
"""Over-parameterised shapes where some instances meet B.1, but not D."""

LOSSES = Runs.of(
    "losses", "loss=exponential,linear data.n=3 data.T=3 data.d=4 optimizer.growth=0.05 "
    "optimizer.steps=10000 optimizer.record_every=500 trials=100"
)  # fmt: skip
"""Other decreasing losses."""

TIES = Runs.of(
    "ties", "data=planted data.score_gap=0.0 optimizer=normalized_gd,gd optimizer.record_every=500 "
    "data.n=2,5 data.T=2,5 data.d=4,16 parameterization=w,kq trials=25"
)  # fmt: skip
"""Tokens of one score, so that all of them are optimal."""

JOINT = Runs.of(
    "joint", "head.train=true data.n=3 data.T=3 data.d=4,8 optimizer.growth=0.05 "
    "optimizer.steps=10000 optimizer.record_every=500 trials=100"
)  # fmt: skip
"""W and the linear head are trained together."""

JOINT_AGAIN = Runs.of("joint_again", " ".join((*JOINT.overrides, "seed=1000")))
"""The same from seeds on which no threshold of a claim was chosen."""

LARGER = Runs.of(
    "larger", "data.n=6 data.T=8 data.d=4,10,32 optimizer.growth=0.05 optimizer.steps=10000 "
    "optimizer.record_every=500 trials=50"
)  # fmt: skip
"""The same at the paper's shape."""

DESCENT_KQ = Runs.of(
    "descent_kq", "parameterization=kq data.n=3,6 data.T=3,8 data.d=10 optimizer.growth=0.05 "
    "optimizer.steps=10000 optimizer.record_every=500 probe=[margin_gap] trials=25"
)  # fmt: skip
"""Normalised steps of K and Q without a ridge."""

FIXED_STEP = Runs.of(
    "fixed_step", "optimizer=gd optimizer.lr=0.05 optimizer.steps=100000 "
    "optimizer.record=geometric data.n=2,3 data.T=2,3 data.d=4,8 trials=50"
)  # fmt: skip
"""Gradient descent with a fixed step <= 1 / L_W: unit tokens and T <= 3 give L_W <= 17."""

SAFE_STEP = Runs.of(
    "safe_step", "optimizer=safe_gd optimizer.steps=5000 optimizer.record_every=500 data.n=2,3 "
    "data.T=2,3 data.d=4 trials=25"
)  # fmt: skip
"""Gradient descent whose step grows as long as the risk provably falls."""

CONE = Runs.of(
    "cone", "optimizer.init=cone optimizer.init_scale=30 "
    "optimizer.init_angle=5,15,30,45,60,75,90,120,150 optimizer.growth=0.05 optimizer.steps=5000 "
    "optimizer.record_every=500 data.n=3 data.T=3 data.d=3,4 trials=100"
)  # fmt: skip
"""From ||W(0)|| = 30 at an angle to the SVM of the optimal tokens, which are locally optimal."""

CONE_RUNNER_UP = Runs.of(
    "cone_runner_up", "optimizer.init=cone_runner_up optimizer.init_scale=1000,30000 "
    "optimizer.init_angle=0.1,1,5,15,30,45,60,75,90 optimizer.growth=0.05 optimizer.steps=10000 "
    "optimizer.record_every=5000 data.n=3 data.T=3 data.d=3,4 hypotheses=[runner_up_local] "
    "keep_path=true svm.norms=[frobenius] trials=300"
)  # fmt: skip
"""The same about optimal tokens but for one, which are locally optimal on some instances."""

LOCAL_PATH = Runs.of(
    "local_path", "optimizer=regularization_path optimizer.init=cone_runner_up "
    "optimizer.init_angle=0 optimizer.cone=1,5,15 data.n=3 data.T=3 data.d=3,4 "
    "hypotheses=[runner_up_local] keep_path=true svm.norms=[frobenius] trials=300"
)  # fmt: skip
"""Minimisers in a cone about these tokens."""

SQUARED = Runs.of(
    "squared", "loss=squared loss.target=0.1 optimizer=gd optimizer.lr=0.5 optimizer.steps=20000 "
    "optimizer.record_every=1000 data.n=2,3 data.T=3 data.d=4 trials=50"
)  # fmt: skip
"""A loss that is not decreasing."""

PATH = Runs.of(
    "path", "optimizer=regularization_path data.n=2,4 data.T=3 data.d=4,8 "
    "parameterization=w,kq keep_path=true trials=25"
)  # fmt: skip

PATH_M = Runs.of(
    "path_m", "optimizer=regularization_path data.n=2,4 data.T=3 data.d=8 "
    "parameterization=kq parameterization.m=1,2 keep_path=true trials=25"
)  # fmt: skip

SEVERAL = Runs.of(
    "several", "selection=multi head=relu data.n=3 data.T=4 data.d=4,10 "
    "optimizer.steps=10000 optimizer.record_every=500 trials=400 seed=1 svm.norms=[frobenius] "
    "hypotheses=[order_preserving]"
)  # fmt: skip
"""A nonlinear head, which may mix tokens."""

SEVERAL_KQ = Runs.of(
    "several_kq", "selection=multi head=relu parameterization=kq data.n=3 data.T=4 data.d=4,10 "
    "optimizer.init=small optimizer.schedule=decay optimizer.growth=0.01 optimizer.steps=20000 "
    "optimizer.record_every=1000 trials=200 seed=1 svm.norms=[nuclear]"
)  # fmt: skip
"""The same for (K, Q), by steps that fall: constant ones keep moving a mixture of tokens."""

MIXTURES = Runs.of(
    "mixtures", "selection=multi selection.negligible=1e-3 head=quadratic head.lam=0.1,0.3,1.0 "
    "data=orthonormal data.n=4 data.T=6 data.d=10 parameterization=w,kq optimizer.init=small "
    "optimizer.schedule=decay optimizer.growth=0.01 optimizer.steps=200000 "
    "optimizer.record_every=10000 probe=[mixture] trials=50"
)  # fmt: skip
"""A head by which mixtures of tokens score best; steps fall: constant ones move a mixture."""

SEQUENCES = Runs.of(
    "sequences", "model=sequence model.causal=false,true data.n=2 data.T=4 data.d=16 "
    "optimizer.growth=0.05 optimizer.steps=10000 optimizer.record_every=500 trials=50"
)  # fmt: skip
"""Every position a query."""

GEOMETRY = Runs.of("optimizer_geometry", "sweep=optimizer_geometry")
"""Steps of one size in five norms, Muon and Adam: the experiment itself."""

ADAM = Runs.of(
    "adam", "optimizer=adam optimizer.eps=0.0,1e-8 optimizer.beta1=0.5 optimizer.beta2=0.5 "
    "optimizer.lr=0.1 optimizer.schedule=decay optimizer.growth=0.001 optimizer.steps=10000 "
    "optimizer.init=zero optimizer.record=geometric svm.norms=[frobenius,max] "
    "data={n:3,T:3},{n:6,T:8} trials=50"
)  # fmt: skip
"""Adam with falling steps; both decay rates are small, since gradients fall exponentially."""

MIRROR = Runs.of(
    "mirror", "optimizer=mirror_descent optimizer.p=1.75,2.0,3.0 optimizer.growth=0.05 "
    "optimizer.steps=10000 optimizer.record=geometric svm.norms=[l1.75,frobenius,l3] "
    "data={n:3,T:3},{n:6,T:8} trials=50"
)  # fmt: skip
"""Mirror descent with steps that grow."""

PROMPT = Runs.of(
    "prompt", "data=prompt data.n=3,6 data.T=3,8 data.d=10 optimizer.init=zero "
    "optimizer.growth=0.05 optimizer.steps=5000 optimizer.record_every=500 trials=50"
)  # fmt: skip
"""One query for all samples: training W from zero is training of a prompt."""

ORTHOGONAL = Runs.of(
    "orthogonal", "optimizer=normalized_gd,polyak data.n=3 data.T=3 data.d=16,64 "
    "optimizer.init=zero optimizer.steps=2000 optimizer.record=geometric svm.norms=[frobenius] "
    "trials=25"
)  # fmt: skip
"""Many dimensions, in which random tokens are nearly orthogonal."""

FLOW_KQ = Runs.of(
    "flow_kq", "parameterization=kq optimizer=safe_gd optimizer.init=aligned,balanced "
    "loss=exponential data.n=3 data.T=3 data.d=10 optimizer.steps=10000 "
    "optimizer.record=geometric probe=[margin_gap] trials=25"
)  # fmt: skip
"""Gradient descent on K and Q, one step for both, the largest for which the risk provably falls."""

KQ_STEPS = Runs.of(
    "kq_steps", "parameterization=kq optimizer.init=uniform,small optimizer={lr:0.1},{lr:0.01},"
    "{schedule:decay,growth:0.01} optimizer.steps=100000 optimizer.record=geometric "
    "svm.norms=[nuclear] trials=20"
)  # fmt: skip
"""Normalised steps of K and Q without a ridge: constant, small and falling ones."""

LAYERS = Runs.of(
    "layers", "model=transformer model.layers=2,3 data.n=4 data.T=5 data.d=16 "
    "optimizer.steps=6000 optimizer.record_every=500 svm.norms=[frobenius] trials=50"
)  # fmt: skip
"""Networks with a residual connection; every layer of every instance is a row."""

LAYERS_VALUES = Runs.of(
    "layers_values", "model=transformer model.trained=values data.n=4 data.T=5 data.d=16 "
    "optimizer.steps=10000 optimizer.record_every=1000 svm.norms=[frobenius] trials=40"
)  # fmt: skip
"""Two layers whose values are trained too."""

LAYERS_ALL = Runs.of(
    "layers_all", "model=transformer model.trained=all model.mlp=16 data.n=4 data.T=5 data.d=16 "
    "optimizer.steps=10000 optimizer.record_every=1000 svm.norms=[frobenius] trials=40"
)  # fmt: skip
"""Two layers of which everything is trained: attention, values, MLPs and prediction head."""

LAYERS_LINEAR = Runs.of("layers_linear", " ".join((*LAYERS_ALL.overrides, "loss=linear")))
"""The same with a loss that weighs all sequences equally for ever."""
