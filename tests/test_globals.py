"""Nothing depends on what a program may have set: torch's globals, memory order, a fork."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import attnsvm
from attnsvm.config import GROUPS
from attnsvm.theory import convergence_types, local_optima, optimal_mixture


@contextmanager
def restored(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


def dtype(value: torch.dtype) -> Any:
    return restored(torch.get_default_dtype, torch.set_default_dtype, value)


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


def deterministic() -> Any:
    get, put = torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
    return restored(get, put, True)


SETTINGS: dict[str, Callable[[], Any]] = {
    "float64": lambda: dtype(torch.float64),
    "bfloat16": lambda: dtype(torch.bfloat16),
    "meta": lambda: torch.device("meta"),
    "default_device": default_device,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
    "deterministic": deterministic,
    "threads": lambda: restored(torch.get_num_threads, torch.set_num_threads, 3),
    "errors": lambda: np.errstate(all="raise"),
}


@contextmanager
def all_settings() -> Iterator[None]:
    with ExitStack() as stack:
        for setting in SETTINGS.values():
            stack.enter_context(setting())
        yield


def state() -> list[Any]:
    """Return all that a call must leave as it was."""
    drawn = torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())
    modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    modes += torch.is_autocast_enabled("cpu"), torch.are_deterministic_algorithms_enabled()
    kinds = torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()
    return [drawn, modes, kinds, np.geterr()]


DATA: dict[str, dict[str, Any]] = {
    name: {"data": name, "trials": 2}
    for name in GROUPS["data"]
    if name not in ("file", "text", "pretrained", "classes", "contexts", "digits", "token_graph")
}
DATA |= {
    "digits": {"data": "digits", "trials": 1, "n": 2},
    "token_graph": {"data": "token_graph", "trials": 2, "head": "vocabulary"},
    "text": {"data": "text", "trials": 1, "n": 2},
    "classes": {"data": "classes", "trials": 2, "model": "linear"},
    "contexts": {"data": "contexts", "trials": 2, "model": "linear"},
}
DATA |= {
    head: {"data": "sphere", "trials": 2, "head": head, "n": 2, "T": 3, "d": 3}
    for head in GROUPS["head"]
    if head != "vocabulary"
}
DATA["quadratic"] |= {"lam": 0.5}
DATA |= {
    model: {"data": "sphere", "trials": 2, "model": model, "n": 2, "T": 3, "d": 3}
    for model in ("self_attention", "sequence")
}


def parts(result: Any) -> list[Any]:
    """Return the tensors and numbers of a result, in order."""
    if isinstance(result, dict):
        return [part for value in result.values() for part in parts(value)]
    if isinstance(result, list | tuple):
        return [part for value in result for part in parts(value)]
    if hasattr(result, "__dataclass_fields__"):
        skipped = "solve_time_s", "minimised", "model", "loss", "head"
        return parts({n: v for n, v in vars(result).items() if n not in skipped})
    return [] if callable(result) else [result]


def tiny(**options: Any) -> attnsvm.ProblemBatch:
    return attnsvm.sample(**{"n": 2, "T": 3, "d": 3, "trials": 2, "seed": 4} | options)


def trained(optimizer: str, rule: str, **options: Any) -> Any:
    steps = {"steps": 3} if optimizer != "regularization_path" else {}
    return attnsvm.train(tiny(), rule, optimizer, **steps, **options)


def compared() -> list[Any]:
    """Return all that follows from trained weights."""
    batch = tiny()
    path = trained("normalized_gd", "w", lr=1.0)
    selection = attnsvm.select_tokens(batch, path)
    tokens = batch.X, batch.Z, selection.selected
    results: list[Any] = [selection, path.status(), attnsvm.in_span(batch)]
    solutions = {}
    for norm in ("frobenius", "nuclear", "spectral", "max", "l1", "l1.75"):
        solution = solutions[norm] = attnsvm.solve_svm(*tokens, norm)
        results += [solution, attnsvm.margin_gap(path.W, solution)]
        results.append(attnsvm.correlation(path.W, solution.W))
        results.append(attnsvm.one_minus_correlation(path.W.numpy(), solution.W))
    results += attnsvm.solve_gen_svm(batch.X, batch.Z, selection.attended, path.log_softmax)
    results.append(attnsvm.solve_rank_constrained(*tokens, 1))
    results.append(attnsvm.solve_least_norm(batch.X[0], [1.0, -1.0]))
    results.append(attnsvm.svmeq(path.W, solutions["max"].W, path.W.mT))
    results.append(attnsvm.in_cone(batch, selection.selected, 10.0))
    results.append(convergence_types(batch, selection, path, solutions, "frobenius", 1.0))
    return [*results, local_optima(batch), optimal_mixture(batch)]


def layers() -> list[Any]:
    model = attnsvm.Transformer(layers=2, heads=2, values="orthogonal", mlp=3, trained="all")
    batch = tiny(model=model)
    path = attnsvm.train_layers(batch, model, steps=3)
    return [path, attnsvm.layer_problems(batch, path)]


def own_module() -> Any:
    """Return weights that torch's loop trains together with those of a module."""
    batch = tiny(head="mlp")
    return attnsvm.train(batch, steps=3)


CASES: dict[str, Callable[[], Any]] = {"compared": compared, "layers": layers, "mlp": own_module}
for name, options in DATA.items():
    CASES[f"sample {name}"] = partial(attnsvm.sample, **options)
for name in GROUPS["optimizer"]:
    CASES[f"train {name}"] = partial(trained, name, "w")
for name in ("normalized_gd", "momentum", "muon"):
    CASES[f"train {name} kq"] = partial(trained, name, "kq", m=2)
for start in ("zero", "uniform", "small", "cone", "balanced", "aligned"):
    CASES[f"init {start}"] = partial(trained, "normalized_gd", "kq", init=start)
CASES["torch"] = partial(trained, "adam", "w", compiled=False, gradient="direct")
CASES["batches"] = partial(trained, "gd", "w", batch=1, order="shuffled")


@cache
def plain(case: str) -> list[Any]:
    return parts(CASES[case]())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "setting", [all_settings, *(pytest.param(s, marks=pytest.mark.full) for s in SETTINGS.values())]
)
def test_no_bit_depends_on_a_setting_and_none_is_changed(case, setting):
    expected = plain(case)
    with setting():
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
        X, Z, Y = batch.X.clone(), batch.Z.clone(), batch.Y.clone()
        some = batch[0]
    assert X.is_inference()
    head = {"v": batch.head_parameters["v"]}
    for given in (
        attnsvm.ProblemBatch.of(X, Z, Y, seed=4, **head),
        dataclasses.replace(batch, X=X),
        some,
    ):
        path = attnsvm.train(given, compiled=False, steps=2, gradient="direct")
        assert path.W.equal(
            attnsvm.train(batch, compiled=False, steps=2, gradient="direct").W[: given.B]
        )
