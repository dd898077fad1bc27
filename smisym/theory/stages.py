"""What is learned after what: the directions that become unstable along the path of vanishing side information.

A part is what symmetries leave of the overlaps and no further: one block of rows, or several whose overlaps are
coupled (:attr:`smisym.link.symmetry.Symmetry.parts`).  A stage begins where a class of idle parts, which feed one
another, grows faster than it decays at the fixed point that the learned ones have at that alpha
(:mod:`smisym.theory.rung`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smisym.base.edge import check_model
from smisym.base.errors import InputError
from smisym.base.solution import Result
from smisym.theory.aim import Aim
from smisym.theory.maps import OverlapMap
from smisym.theory.rung import Rung
from smisym.theory.stage import Stage, first_stage


def staircase(omap: OverlapMap, aim: Aim | None = None, roughly: bool = False) -> Iterator[Stage]:
    """The stages in the order in which they are met, each computed when it is asked for.

    ``alpha`` of the first one is sampled at Q = 0; the caller may know it better (:mod:`smisym.theory.over_outputs`).
    aim: what is asked of later ones, which are measured on maps of as many samples as that takes.  roughly: later ones
    only as a map of few points has them, for the way beyond.
    """
    check_model(omap.model)
    first = first_stage(omap)
    if first is None:
        return
    yield first
    stage = first
    unseen = _unseen(omap)
    while stage.after is Result.SUCCESS and not (stage.active | unseen).all():
        following = Rung(omap, stage, unseen, aim, roughly).following()
        if following is None:
            return
        yield following
        stage = following


def _unseen(omap: OverlapMap) -> np.ndarray:
    """Which parts an analytic output never sees, exactly: nothing of them is ever learned."""
    directions = omap.model.symmetry.directions
    try:
        ranks = omap.model.jacobian_ranks(np.random.default_rng(0))
    except InputError:  # derivatives that overflow tell nothing
        return np.zeros(len(directions), dtype=bool)
    unseen = ranks.unseen() if ranks.analytic else np.empty((0, omap.model.fields))
    return np.array([np.abs(D - D @ unseen.T @ unseen).max() < 1e-9 for D in directions])
