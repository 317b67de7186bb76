"""One layer and head of a recorded network: a one-layer problem whose input the network makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from attnsvm.verify.exact import Array
from attnsvm.verify.expected import Expected, Interval, Words, number
from attnsvm.verify.heads import HeadAndLoss
from attnsvm.verify.history import Curve
from attnsvm.verify.instance_proof import InstanceProof
from attnsvm.verify.instances import Instance, UnknownError, initial_weights
from attnsvm.verify.network import NEXT, Beside, Network, Shape
from attnsvm.verify.tokens import Scores
from attnsvm.verify.unseen import unseen_shares
from attnsvm.verify.weights import Attention, Trained

OF_EXACT = 1e-6
"""Relative error of exact gradients."""

HEAD = "network_head_"
"""Start of the names of the parameters of a prediction head that was trained."""


@dataclass(frozen=True)
class Networks:
    """The network of an instance, at the last and at the first step.

    Attributes
    ----------
    last : Network
        With the stored weights of all layers and heads, and what else was trained; with weights of
        zero where they are not finite.
    first : Network or None
        With the drawn initial weights; None if they are not known.
    stored : mapping of str to Array
        The stored arrays of the network.
    attended : float
        Smallest attention through which the readout sees a row.
    """

    last: Network
    first: Network | None
    stored: Mapping[str, Array]
    attended: float

    @cached_property
    def unseen(self) -> list[Array] | None:
        """The shares of the gradient that rows have which are not seen; None: not derived."""
        certain, possible = self.last.seen(self.attended)
        if not is_finite(self.stored) or not all(map(np.array_equal, certain, possible)):
            return None
        return unseen_shares(self.last, certain[1:])

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        seed: int,
        drawn: Instance,
        head: HeadAndLoss | None,
        stored: Mapping[str, Array],
        error: float,
    ) -> Networks:
        """Return those of the instance of `seed`, whose tokens are known to `error`.

        Parameters
        ----------
        config : mapping
            The recorded config.
        seed : int
            The seed.
        drawn : Instance
            The sequences, with labels and the parameters of the head.
        head : HeadAndLoss or None
            None if it is not known.
        stored : mapping of str to Array
            The stored arrays of the network.
        error : float
            Error of the tokens.
        """
        shape, d = Shape.of(config["model"]), drawn.X.shape[-1]
        attended = config["selection"]["attended"]
        beside, W = Beside.drawn(shape, seed, d), stored["network_W"]
        last = Network(shape, beside, drawn, head, np.zeros_like(W), error)
        if is_finite(stored):
            parameters = {
                name: stored.get(HEAD + name.replace(".", "_"), p) for name, p in drawn.head.items()
            }
            ended = replace(drawn, head=parameters)
            last = Network(shape, beside.trained(stored), ended, head, W, error)
        heads = range(shape.layers * shape.heads)
        try:
            start = np.stack([initial_weights(config, seed + at * NEXT, d) for at in heads])
        except UnknownError:
            return cls(last, None, stored, attended)
        first = Network(shape, beside, drawn, head, start.reshape(W.shape), error)
        return cls(last, first, stored, attended)

    def start(self, at: int, head: int) -> Array | None:
        """Return the initial weights of a layer and head, (d, d)."""
        return None if self.first is None else self.first.W[at, head]


def of_network(at: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of the network, which all its layers and heads share."""
    return {name: array for name, array in at.items() if name.startswith("network_")}


def is_finite(at: Mapping[str, Array]) -> bool:
    """Return whether all that was trained is finite."""
    return all(np.isfinite(array).all() for array in of_network(at).values())


class _OfNetwork(Trained):
    """What follows from weights of a layer and head over the steps, with those of its network."""

    def __init__(self, instance: Instance, W: Array, found: Attention, risk: Curve | None) -> None:
        self.instance, self.head, self.W = instance, None, W
        self.found, self._risk = found, risk

    def risk(self) -> Curve | None:
        """Return the risk of the network."""
        return self._risk


@dataclass
class LayerProof(InstanceProof):
    """What follows for one layer and head.

    Attributes
    ----------
    networks : Networks or None
        None if the instance cannot be drawn here.
    """

    networks: Networks | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Layer and head."""
        return int(self.at["layer"]), int(self.at["attention_head"])

    @cached_property
    def trained(self) -> Trained | None:
        """The trained weights; None where the network diverged."""
        if not is_finite(self.at):
            return None
        W = self.at["trained_W"]
        found = Trained(self.instance, None, W).found
        risk = None if self.networks is None else self.networks.last.risk()
        return _OfNetwork(self.instance, W, found, risk)

    @cached_property
    def scores(self) -> Scores | None:
        """The scores by the adjoints of the network."""
        if self.networks is None or self.trained is None:
            return None
        return self.networks.last.scores(*self.place, self.instance.mask)

    def columns(self, row: Mapping[str, Any]) -> dict[str, Expected | None]:
        """Return what the columns of the row may hold; None: it does not follow."""
        columns = super().columns(row)
        if self.trained is not None:
            columns["flat"] = Words((None,))
            risk = self.trained.risk()
            columns["risk"] = None if risk is None else number(*map(float, risk))
        columns |= {"positions_seen": None, "unseen_gradient": None, "selected_since": None}
        if self.trained is not None:
            columns["unseen_gradient"] = self._unseen()
            columns["selected_since"] = self._since()
        if self.networks is not None:
            seen = self.networks.last.positions_seen(self.place[0], self.networks.attended)
            columns["positions_seen"] = number(*seen)
        return columns

    def _unseen(self) -> Expected:
        """Return the share of the gradient of rows that the readout does not see."""
        shares = None if self.networks is None else self.networks.unseen
        if shares is None:
            return Interval(0.0, 1.0)
        layer, head = self.place
        share = float(shares[layer][head])
        return number(share, 1e-12 + OF_EXACT * share)

    def _since(self) -> Expected | None:
        """Return the steps since which the selected tokens may have been the last ones."""
        if self.steps is None:
            return None
        return Words(tuple(map(float, self.steps)))

    def _over(self, W: Array) -> Trained:
        """Return what follows from the last weights, or from the first and the last ones."""
        last = self.trained
        assert last is not None  # a path is asked for of weights that are finite
        if len(W) == 1 or self.networks is None or self.networks.first is None:
            found, networks = [last.found], [] if self.networks is None else [self.networks.last]
        else:
            networks = [self.networks.first, self.networks.last]
            start = self.networks.first.attention_at(*self.place, self.instance.mask)
            found = [start, last.found]
        parts = zip(*(vars(one).values() for one in found), strict=True)
        risks = [risk for one in networks if (risk := one.risk()) is not None]
        values, errors = zip(*risks, strict=True) if risks else ((), ())
        risk = (np.array(values), np.array(errors)) if risks else None
        return _OfNetwork(self.instance, W, Attention(*map(np.stack, parts)), risk)

    def network_refusals(self) -> Iterator[tuple[str, str]]:
        """Yield what does not follow from the drawn instance and the weights of all layers."""
        at, (layer, head) = self.at, self.place
        if not np.array_equal(at["network_W"][layer, head], at["trained_W"], equal_nan=True):
            yield "trained_W", "is not that of this layer and head in network_W"
        if self.networks is None:
            return
        network = self.networks.last
        here = network.layers[layer]
        n, T, d = here.X.shape
        X, Z = at["X"].reshape(n, T, T, d), at["Z"].reshape(n, T, d)
        if not _near(Z, here.X, here.error):
            yield "Z", "is not the input of this layer"
        if not (X == Z[:, None]).all():
            yield "X", "is not the queries of the same sequence"
        if reason := network.mask_refusal(layer, head, at["mask"], self.networks.attended):
            yield "mask", reason


def samples(at: Mapping[str, Any]) -> Instance:
    """Return the stored samples of a layer and head; each has the label +1."""
    return Instance(at["X"], at["Z"], np.ones(len(at["Z"])), at["mask"], {})


def _near(stored: Array, derived: Array, error: Array) -> bool:
    """Return whether rows agree within twice their error: both were computed."""
    apart = np.linalg.norm(stored - derived, axis=-1)
    return bool((apart <= 2 * error + (error > 0) * 1e-15).all())
