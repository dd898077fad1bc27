"""How fast idle directions can grow at all: where what is learned is known almost perfectly."""

from __future__ import annotations

import numpy as np

from smisym.theory.growth import class_rate, coupled_classes
from smisym.theory.linearised import Equation
from smisym.theory.maps import OverlapMap

# Rate of growth below which a direction is hard: squares of what integration leaves in g_out.
NO_RATE = 1e-5
# What is left of learned directions where the limit is looked for, and a rate that is plain.
_LEFT, _PLAIN = (1e-2, 1e-4, 1e-6), 1e-2


def idle_directions(omap: OverlapMap, active: np.ndarray, idle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, c, c) rates at alpha = 1 of overlaps that are idle (their numbers (c,)), by scramble, where the active parts
    are known almost perfectly; and how much of them may be the errors of the integrals: that grows at no alpha.

    Posteriors get dear as more is known, so that less is asked first: where something grows plainly that is enough.
    """
    symmetry = omap.model.symmetry
    projector, on = symmetry.span(active), np.ix_(idle, idle)

    def task(r: int, left: float) -> tuple[np.ndarray, np.ndarray]:
        here = Equation(omap, r).at((1 - left) * projector, 1.0)
        return here.jacobian[on], here.estimate.unclear[on]

    rates = unclear = np.zeros((omap.scrambles, len(idle), len(idle)))
    for left in _LEFT if active.any() else _LEFT[:1]:
        found: list[tuple[np.ndarray, np.ndarray]] = omap.each(lambda r, left=left: task(r, left))
        rates, unclear = (np.array(x) for x in zip(*found, strict=True))
        if largest_rate((rates - unclear).mean(axis=0), symmetry.parts[idle]) > _PLAIN:
            break
    return rates, unclear


def largest_rate(rates: np.ndarray, parts: np.ndarray) -> float:
    """Of all classes of coordinates with these rates (c, c) and parts (c,); 0 where there are none."""
    return max((class_rate(rates, members) for members in coupled_classes(rates, parts)), default=0.0)
