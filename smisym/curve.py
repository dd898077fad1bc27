"""Overlaps against alpha along the branch that vanishing side information follows, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from smisym.branch import extend, scout
from smisym.edge import check_alpha
from smisym.errors import InputError
from smisym.model import Model
from smisym.overlap_map import OverlapMap, as_map
from smisym.solution import Result, Solution, mean_and_error
from smisym.stages import Branch, Stage
from smisym.state_evolution import FixedPoint, state_evolution


def curve(
    model: Model | OverlapMap,
    alphas: Sequence[float],
    *,
    on_point: Callable[[Solution], object] | None = None,
    **settings: Any,
) -> list[Solution]:
    """State evolution at many alphas, each as :func:`smisym.state_evolution` gives it, for the cost of one branch.

    The branch is traced in the overlap (see :mod:`smisym.branch`), so that its cost does not grow with the number of
    alphas; where overlaps are coupled (no ``model.symmetry.projectors``) each alpha is solved for, from the one before.
    Returns one Solution for each alpha in increasing order (no alphas, no Solutions), value a FixedPoint; ``on_point``
    is called with each as soon as its stage is traced.

    settings
        Of the overlap map when ``model`` is a Model: samples, scrambles, seed, rtol, workers, store.

    Raises InputError for an alpha that is not a finite number >= 0, and for settings that the map refuses.
    """
    omap = as_map(model, **settings)
    alphas = _listed(alphas)
    if not omap.model.symmetry.projectors:
        return _one_by_one(omap, alphas, on_point)
    if not alphas:
        return []  # before the scouting, which is most of the work
    coarse = scout(omap)
    branches = [Branch(coarse.coordinates, [], []) for _ in range(omap.scrambles)]
    waiting = sorted(float(a) for a in alphas)
    done: list[Solution] = []
    for number in range(len(coarse.stages) + 1):
        final = number == len(coarse.stages)
        ready = np.inf if final else _settled_below(branches, coarse, number)
        while waiting and waiting[0] < ready:
            done.append(_point(omap, branches, waiting.pop(0)))
            if on_point is not None:
                on_point(done[-1])
        if not final:
            omap.each(lambda r: extend(branches[r], omap, r, coarse))
    return done


def _listed(alphas: Sequence[float]) -> list[float]:
    """The alphas, checked; an iterator can be read but once."""
    if not isinstance(alphas, Iterable):
        raise InputError("alphas", alphas, "a sequence of numbers", f"write curve(model, [{alphas!r}])")
    listed = list(alphas)
    for alpha in listed:
        check_alpha(alpha)
    return listed


def _one_by_one(
    omap: OverlapMap, alphas: Iterable[float], on_point: Callable[[Solution], object] | None
) -> list[Solution]:
    """Where overlaps are coupled: a fixed point at each alpha, continued from the one before."""
    done: list[Solution] = []
    for alpha in sorted(float(a) for a in alphas):
        done.append(state_evolution(omap, alpha, warm=done[-1].value if done else None))
        if on_point is not None:
            on_point(done[-1])
    return done


def _settled_below(branches: list[Branch], coarse: Branch, traced: int) -> float:
    """Every alpha below this is settled by the stages traced so far."""
    if traced == 0:
        return 0.5 * coarse.thresholds[0]
    return min(b.stages[-1].alpha_at(b.stages[-1].end) if b.stages[-1].solved else 0.0 for b in branches)


def _point(omap: OverlapMap, branches: list[Branch], alpha: float) -> Solution:
    symmetry = omap.model.symmetry
    eye = np.eye(omap.model.fields)
    overlaps, potentials, wrong = [], [], []
    result = Result.SUCCESS
    for branch in branches:
        found = branch.locate(alpha)
        if found is None or isinstance(found, str):
            overlaps.append(np.zeros(branch.coordinates) if found is None else symmetry.coordinates(eye))
            potentials.append(np.nan)
            wrong.append(0.0)
            continue
        stage, t = found
        overlaps.append(stage.overlaps_at(t))
        potentials.append(stage.potential_at(t))
        wrong.append(_interpolated(stage, t))
        if not stage.solved:
            result = Result.NOISY
    q = np.array(overlaps)
    stacked = symmetry.matrix(q)
    Q, error = mean_and_error(stacked)
    perfect = bool((stacked == eye).all())
    if perfect:
        Q_hat = np.diag(np.full(len(eye), np.inf))
    else:
        hats = [np.linalg.inv(eye - m) - eye for m in stacked if np.linalg.eigvalsh(m)[-1] < 1]
        Q_hat = np.mean(hats, axis=0)
    silent = np.isnan(potentials) & (np.abs(q).max(axis=1) == 0)
    if silent.any():
        at_zero = np.array([omap.at(r, 0 * eye).log_partition if silent[r] else 0.0 for r in range(len(branches))])
        potentials = np.where(silent, at_zero, potentials).tolist()
    point = FixedPoint(
        alpha, Q, error, Q_hat, q, "symmetry-broken", 0.0, np.ones(len(branches), dtype=bool), np.array(potentials)
    )
    return Solution(
        point,
        result,
        statistical_error=error,
        deterministic_error=float(np.mean(wrong)),
        degrees_of_freedom=len(branches) - 1,
        settings={**omap.settings(), "start": "symmetry-broken"},
    )


def _interpolated(stage: Stage, t: float) -> float:
    """What the interpolation of alpha(t) leaves in the pivot's overlap at t."""
    h = 1e-4
    slope = (np.log(stage.alpha_at(t + h)) - np.log(stage.alpha_at(t - h))) / (2 * h)
    return stage.interpolation_error() * 2 * (1 - t) / max(abs(float(slope)), 1e-3)
