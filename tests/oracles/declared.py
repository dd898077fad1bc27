"""Declarations of the package as the oracles read them: the only place where one becomes the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.description import Layer, Network
from smisym import Architecture


def _soft_sign(s: Any) -> Any:
    """s / (1 + |s|), analytic on either side of zero."""
    return s / (1 + s * np.sign(s.real))


OWN: dict[str, Callable[[Any], Any]] = {"tanh(s)": np.tanh, "s/(abs(s) + 1)": _soft_sign, "s/(1 + abs(s))": _soft_sign}


def described(declared: Architecture) -> Network:
    """The same network as the oracles read it."""
    layers = tuple(
        Layer(
            rank=a.rank,
            skip=a.skip,
            activation=OWN.get(a.activation, a.activation),
            beta=a.beta,
            tied=a.tied,
            heads=a.heads,
            readout=a.readout,
            scale=a.scale,
            mask=a.mask,
            position=a.position,
            rank_ratio=a.rank_ratio,
        )
        for a in declared.layers
    )
    return Network(
        declared.tokens,
        layers,
        output=declared.output,
        head_layout=declared.head_layout,
        combine=declared.combine,
        limit=declared.limit,
        noise=declared.noise,
    )
