"""Declarations of the package as the oracles read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oracles.networks import LayerSpec, Spec
from smisym import Architecture


def _soft_sign(s: Any) -> Any:
    """s / (1 + |s|), analytic on either side of zero."""
    return s / (1 + s * np.sign(s.real))


OWN: dict[str, Callable[[Any], Any]] = {"tanh(s)": np.tanh, "s/(abs(s) + 1)": _soft_sign, "s/(1 + abs(s))": _soft_sign}


def spec(declared: Architecture) -> Spec:
    """The same network as the oracle reads it."""
    layers = tuple(
        LayerSpec(
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
        )
        for a in declared.layers
    )
    return Spec(declared.tokens, layers, declared.output, declared.head_layout, declared.combine, declared.limit)
