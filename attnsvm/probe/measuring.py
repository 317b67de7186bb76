"""The quantities of all probes over the snapshots of a trajectory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from attnsvm.loss import Loss
from attnsvm.probe.base import Probe, Snapshot
from attnsvm.problem import ProblemBatch
from attnsvm.svm import SvmSolution
from attnsvm.training import Trajectory


def measured(probe: Probe, quantities: Iterable[str], snapshot: Snapshot) -> dict[str, Tensor]:
    """Return the quantities of a probe, each (B,); NaN for instances whose weights are not finite.

    Raises
    ------
    ValueError
        If the probe does not return what its schema declares.
    """
    names, kind = sorted(quantities), type(probe).__name__
    finite = snapshot.W.flatten(1).isfinite().all(-1)
    values = dict(probe.measure(_without(snapshot, ~finite)))
    if sorted(values) != names:
        raise ValueError(f"probe {kind}: measured {sorted(values)}; must be {names}")
    for name, value in values.items():
        shape = tuple(value.shape), value.dtype
        if shape != ((len(finite),), torch.float64):
            must = f"must be ({len(finite)},) torch.float64"
            raise ValueError(f"probe {kind}: {name} has shape and type {shape}; {must}")
    return {name: torch.where(finite, value, torch.nan) for name, value in values.items()}


def _without(snapshot: Snapshot, excluded: Tensor) -> Snapshot:
    """Return the snapshot with zeros in the place of the weights of excluded instances."""
    if not excluded.any():
        return snapshot
    changed: dict[str, Any] = {}
    for name in ("W", "K", "Q", "softmax"):
        V = getattr(snapshot, name)
        changed[name] = None if V is None else V.masked_fill(excluded[:, None, None], 0.0)
    return dataclasses.replace(snapshot, **changed)


def over_steps(
    probe: Probe,
    quantities: Iterable[str],
    batch: ProblemBatch,
    path: Trajectory,
    selected: Tensor,
    loss: Loss,
    solutions: Mapping[str, SvmSolution[Tensor]],
) -> dict[str, Tensor]:
    """Return the quantities of a probe at every snapshot, each (B, S)."""
    K, Q = path.K_snapshots, path.Q_snapshots
    found = [
        measured(
            probe,
            quantities,
            Snapshot(
                batch=batch,
                step=step,
                W=path.snapshots[:, s],
                K=None if K is None else K[:, s],
                Q=None if Q is None else Q[:, s],
                softmax=path.softmax[:, s],
                selected=selected,
                loss=loss,
                solutions=solutions,
            ),
        )
        for s, step in enumerate(path.steps.tolist())
    ]
    return {name: torch.stack([one[name] for one in found], dim=1) for name in found[0]}
