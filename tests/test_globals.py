"""Nothing depends on what a program may have set: torch's globals, memory order, a fork."""

import dataclasses
import random
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import attnsvm
from attnsvm.config import GROUPS
from attnsvm.theory import convergence_types, local_optima, optimal_mixture
from tests.command import environment
from tests.quick import quick


@contextmanager
def restored(put, value, before):
    put(value)
    try:
        yield
    finally:
        put(before)


def dtype(value):
    return restored(torch.set_default_dtype, value, torch.float32)


SETTINGS = {
    "float64": lambda: dtype(torch.float64),
    "bfloat16": lambda: dtype(torch.bfloat16),
    "meta": lambda: torch.device("meta"),
    "default_device": lambda: restored(torch.set_default_device, "meta", None),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "deterministic": lambda: restored(torch.use_deterministic_algorithms, True, False),
    "threads": lambda: restored(torch.set_num_threads, 3, torch.get_num_threads()),
    "errors": lambda: np.errstate(all="raise"),
}


HIDDEN = ["float64", "default_device", "no_grad"]
"""Settings that others hide, where all are made."""


def state():
    """Return all that a call must leave as it was."""
    drawn = torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002
    modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    modes += torch.is_autocast_enabled("cpu"), torch.are_deterministic_algorithms_enabled()
    kinds = torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()
    return [drawn, modes, kinds, np.geterr()]


TOKENS, FEW, LINEAR = {"trials": 2, "n": 2, "T": 3, "d": 3}, {"n": 2}, {"model": "linear"}
FURTHER = {"digits": FEW, "text": FEW, "classes": LINEAR, "contexts": LINEAR}
FURTHER["token_graph"] = {"head": "vocabulary"}
DATA = {
    name: {"data": name, "trials": 2} | FURTHER.get(name, {})
    for name in GROUPS["data"]
    if name not in ("file", "pretrained")
}
DATA |= {head: TOKENS | {"head": head} for head in GROUPS["head"] if head != "vocabulary"}
DATA |= {model: TOKENS | {"model": model} for model in ("self_attention", "sequence")}
DATA["quadratic"] |= {"lam": 0.5}


def parts(result):
    """Return the tensors and numbers of a result, in order."""
    if isinstance(result, dict):
        return [part for value in result.values() for part in parts(value)]
    if isinstance(result, list | tuple):
        return [part for value in result for part in parts(value)]
    if hasattr(result, "__dataclass_fields__"):
        skipped = "solve_time_s", "minimised", "model", "loss", "head"
        return parts({n: v for n, v in vars(result).items() if n not in skipped})
    return [] if callable(result) else [result]


def tiny(**options):
    return attnsvm.sample(**{"n": 2, "T": 3, "d": 3, "trials": 2, "seed": 4} | options)


def trained(optimizer, rule, **options):
    steps = {"steps": 3} if optimizer != "regularization_path" else {"radii": [3.0]}
    return attnsvm.train(tiny(), rule, optimizer, **steps, **options)


def compared():
    """Return all that follows from trained weights."""
    batch, path = tiny(), trained("normalized_gd", "w", lr=1.0)
    selection = attnsvm.select_tokens(batch, path)
    tokens, norms = selection.selected, ("frobenius", "nuclear", "spectral", "max", "l1", "l1.75")
    solutions = {norm: attnsvm.solve_svm(batch.X, batch.Z, tokens, norm) for norm in norms}
    gaps = [attnsvm.margin_gap(path.W, solution) for solution in solutions.values()]
    types = convergence_types(batch, selection, path, solutions, "frobenius", 1.0)
    results = [selection, path.status(), attnsvm.in_span(batch), solutions, gaps, types]
    return [*results, local_optima(batch), optimal_mixture(batch)]


def layers():
    model = attnsvm.Transformer(layers=2, heads=2, values="orthogonal", mlp=3, trained="all")
    batch = tiny(model=model)
    path = attnsvm.train_layers(batch, model, steps=3)
    return [path, attnsvm.layer_problems(batch, path)]


CASES = {
    "compared": compared,
    "layers": layers,
    "entered": lambda: entered(lambda array: array),
    "mlp": lambda: attnsvm.train(tiny(head="mlp"), steps=3),
    "torch": partial(trained, "adam", "w", compiled=False, gradient="direct"),
    "batches": partial(trained, "gd", "w", batch=1, order="shuffled"),
}
CASES |= {f"sample {name}": partial(attnsvm.sample, **options) for name, options in DATA.items()}
CASES |= {f"train {name}": partial(trained, name, "w") for name in GROUPS["optimizer"]}
for name in ("normalized_gd", "momentum", "muon"):
    CASES[f"train {name} kq"] = partial(trained, name, "kq", m=2)
for start in ("zero", "uniform", "small", "cone", "balanced", "aligned"):
    CASES[f"init {start}"] = partial(trained, "normalized_gd", "kq", init=start)


@cache
def plain(case):
    return parts(CASES[case]())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("settings", quick([*SETTINGS], HIDDEN))
def test_no_bit_depends_on_a_setting_and_none_is_changed(case, settings):
    expected = plain(case)
    with ExitStack() as stack:
        for name in settings:
            stack.enter_context(SETTINGS[name]())
        before = state()
        result = parts(CASES[case]())
        assert state() == before
    for x, y in zip(result, expected, strict=True):
        if isinstance(y, Tensor):
            assert not x.is_inference()
        np.testing.assert_array_equal(x, y, strict=True)


def test_batches_of_inference_tensors_can_be_trained():
    with torch.inference_mode():
        batch = tiny()
        X, some = batch.X.clone(), batch[0]
    assert X.is_inference()
    train = partial(attnsvm.train, compiled=False, steps=2, gradient="direct")
    for case in (dataclasses.replace(batch, X=X), some):
        assert train(case).W.equal(train(batch).W[: case.B])


# --- arrays ---------------------------------------------------------------------------------------


def expanded(array):
    padded = torch.from_numpy(np.concatenate([array, array], -1))
    return padded.unsqueeze(0).expand(2, *padded.shape)[1][..., : array.shape[-1]]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def negated(array):
    """Return a view whose bit of the sign is pending."""
    if array.dtype.kind != "f":
        return array
    view = torch.complex(torch.zeros(array.shape).double(), -torch.from_numpy(array)).conj().imag
    assert view.is_neg()
    return view


ARRAYS = {
    "fortran": np.asfortranarray,
    "backwards": lambda array: array[..., ::-1].copy()[..., ::-1],
    "expanded": expanded,
    "read_only": read_only,
    "big_endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "lists": lambda array: array.tolist(),
    "tensors": lambda array: [torch.as_tensor(row) for row in array],
    "unmasked": np.ma.asarray,
    "frames": lambda array: pd.DataFrame(array) if array.ndim == 2 else array,
    "parameter": lambda array: torch.nn.Parameter(torch.from_numpy(array), array.dtype.kind == "f"),
    "negated": negated,
}


def entered(of):
    """Return what all public functions make of arrays."""
    batch = tiny(trials=3)
    X, Z, Y, v = (x.numpy() for x in (batch.X, batch.Z, batch.Y, batch.head_parameters["v"]))
    mask = np.ones(X.shape[:3], dtype=bool)
    own = attnsvm.ProblemBatch.of(of(X), of(Z), of(Y), of(mask), v=of(v))
    path = attnsvm.train(own, steps=2, lr=1.0)
    tokens = np.array([[0, 1], [1, 2], [2, 0]])
    arguments = of(X), of(Z), of(tokens)
    solution = attnsvm.solve_svm(*arguments, mask=of(mask), offsets=of(Y), ratio=of(Y[:, 0] ** 2))
    W, logits = path.W.numpy(), path.log_softmax.numpy()
    start = of(W) if hasattr(of(W), "ndim") else W
    matrices = of(W), of(W.mT.copy())
    return [
        *(own, path, solution, attnsvm.train(own, init=start, steps=1)),
        attnsvm.solve_svm(*arguments, "nuclear", margins=of(np.full((3, 4), 2.0))),
        attnsvm.solve_gen_svm(of(X), of(Z), of(logits > -1.1), of(logits)),
        attnsvm.solve_rank_constrained(*arguments, 1),
        attnsvm.solve_least_norm(of(X), of(np.ones((3, 2)))),
        attnsvm.solve_least_norm((of(X[0]), of(X[1])), of(np.ones((2, 3)))),
        attnsvm.correlation(*matrices),
        attnsvm.one_minus_correlation(*matrices),
        attnsvm.margin_gap(matrices[0], attnsvm.solve_svm(X, Z, tokens)),
        attnsvm.svmeq(*matrices, of(W[::-1].copy())),
        attnsvm.in_cone(own, of(tokens), 10.0),
    ]


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_of_every_kind_are_their_numbers(kind):
    for x, y in zip(parts(entered(ARRAYS[kind])), plain("entered"), strict=True):
        detached = x.detach() if isinstance(x, Tensor) else x
        np.testing.assert_array_equal(detached, y)


PLAIN, DENSE = np.ones((2, 3, 3)), torch.ones(2, 3, 3, dtype=torch.float64)
NOT_PLAIN = {
    "masked": lambda: np.ma.masked_greater(PLAIN, 0),
    "rows": lambda: [np.ma.masked_greater(row, 0) for row in PLAIN],
    "complex": lambda: PLAIN + 0j,
    "objects": lambda: np.full(PLAIN.shape, None),
    "words": lambda: PLAIN.astype(str),
    "sparse": DENSE.to_sparse,
    "meta": lambda: DENSE.to("meta"),
    "nested": lambda: torch.nested.nested_tensor([DENSE, DENSE]),
    "quantized": lambda: torch.quantize_per_tensor(DENSE.float(), 0.1, 0, torch.qint8),
    "subclass": lambda: DENSE.as_subclass(Subclass),
}


class Subclass(Tensor):
    """Stands for any other one."""


ENTRIES = {
    "X": lambda X: attnsvm.ProblemBatch.of(X, X, X),
    "field": lambda X: dataclasses.replace(tiny(), X=X),
    "solve_svm": lambda X: attnsvm.solve_svm(X, X, X),
    "correlation": lambda X: attnsvm.correlation(X, X),
    "init": lambda X: attnsvm.train(tiny(), init=X, steps=1),
    "in_cone": lambda X: attnsvm.in_cone(tiny(), X, 0.0),
    "attention": lambda X: attnsvm.nn.attention(X, X, X),
    "attn_mask": lambda X: attnsvm.nn.attention(*[torch.ones(3, 3)] * 3, X),
    "softmax": attnsvm.nn.softmax_exact,
}


@pytest.mark.parametrize("kind", NOT_PLAIN)
@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_plain_numbers_is_refused(entry, kind):
    array = NOT_PLAIN[kind]()
    if not isinstance(array, Tensor) and entry in ("attention", "attn_mask", "softmax"):
        pytest.skip("takes tensors only")
    if kind == "meta" and entry in ("attention", "softmax"):
        pytest.skip("has values")
    with pytest.raises(ValueError, match=r": .*must (be|have)"):
        ENTRIES[entry](array)


FORKED = """
import multiprocessing, torch, attnsvm

def work(n):
    batch = attnsvm.sample(n=n, T=40, d=20, trials=30)
    path = attnsvm.train(batch, steps=2)
    selection = attnsvm.select_tokens(batch, path)
    summaries = selection.summary(), path.status(), batch.scores(), batch[:3]
    few = batch.X[:2], batch.Z[:2], selection.selected[:2]
    attnsvm.margin_gap(path.W[:2], attnsvm.solve_svm(*few))
    attnsvm.correlation(torch.ones(50, 300, 300), torch.ones(300, 300))
    q = torch.randn(8, 128, 32, requires_grad=True)
    attnsvm.nn.attention(q, q, q).sum().backward()
    attnsvm.train(attnsvm.sample(head="mlp", n=8, T=40, d=64, trials=20), steps=2)

def forked():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(work, [10])
    assert torch.get_num_threads() == 2

torch.set_num_threads(2)
torch.ones(1000, 1000).exp() @ torch.ones(1000, 1000)
forked()
work(10)
forked()
"""


def test_no_function_waits_for_ever_in_a_forked_child():
    """Its parent used threads of torch, and then also those of attnsvm."""
    command = [sys.executable, "-c", FORKED]
    subprocess.run(command, check=True, timeout=300, env=environment() | {"OMP_NUM_THREADS": "2"})
