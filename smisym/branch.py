"""The branch that vanishing side information follows, traced in the overlap instead of in alpha.

On a stage one newly unstable direction is being learned.  Its overlap s is prescribed at Chebyshev points;
the other learned overlaps and alpha follow from the fixed-point equations, one scramble at a time.
Nothing is iterated near criticality, folds need no care, and every alpha is then read off by interpolation.
A stage ends where the next direction becomes unstable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym.growth import LEAST, clear_growth, coupled_classes, growth_of, growth_rates
from smisym.overlap_map import Estimate, OverlapMap, scout_points
from smisym.solution import mean_and_error
from smisym.stages import Beginning, Branch, Stage, first_crossing, learned

# The last point of a stage leaves this much to learn: there E is homogeneous and alpha is at its limit.
LAST = 1e-6
# Chebyshev points of a stage and of the last one, where everything is learned and log alpha(t) is smoother (two layers:
# 6 points leave 2e-3 of it there, 9 leave 6e-3 on the first stage, where it is steep).
NODES, NODES_LAST = 9, 6
# Newton steps of one node at most, and the last step (relative to what is left to learn) after which it is solved.
_STEPS = 8
_SMALL = 0.02


# Steps of the scouting pass in t, until the next direction is unstable.
_SCOUT = (0.0, 0.05, 0.12, 0.22, 0.35, 0.48, 0.6, 0.7, 0.78, 0.84, 0.89, 0.93, 0.96, 0.98, 0.99)
_T_LAST = 1 - np.sqrt(LAST)
# Where a stage that begins at alpha = 0 has its first node.
_T_FIRST = 1e-3
# Points of one scramble, and scrambles, of the look at Q = 0 that tells trivial directions.
_TRIVIAL_POINTS, _TRIVIAL_SCRAMBLES = 64, 8
# Standard errors (over the scrambles) above which E(0) shows a trivial direction.
_SHOWN = 8.0


def scout(omap: OverlapMap, *, last_stage: bool = True, stages: int | None = None) -> Branch:
    """The branch of one scramble of a small map: which directions are learned, and roughly where.

    The nodes that it chooses serve every scramble of the full map, and its solutions are where they start.
    Without ``last_stage`` only the first nodes of a stage on which everything is learned are solved, and of the last
    one of ``stages`` none, after which nothing is looked for.
    """
    points = scout_points(omap.model)
    # Where only the beginning is wanted, scouting costs no more than what is scouted for.
    if stages is not None:
        points = min(points, 2 ** (omap.samples.bit_length() - 1))
    small = omap.sibling(2 * points, 2)
    k = len(omap.model.symmetry.basis)
    active = np.zeros(k, dtype=bool)
    base, alpha = np.zeros(k), 1.0
    still = small.at(0, small.model.symmetry.matrix(base))
    growth, _ = clear_growth(small, still)
    branch = Branch(k, [], [])
    trivial = trivial_coordinates(small)
    while not active.all() and (growth.max() > 0 or trivial.any()):
        active = active.copy()
        if trivial.any():
            # Learned from the first sample on, together, in proportion to what one look shows of each.
            shown = np.where(trivial, small.model.symmetry.coordinates(still.three[0]), 0.0)
            pivot = int(shown.argmax())
            active |= trivial
            base = learned(_T_FIRST) * shown / shown[pivot]
            alpha = learned(_T_FIRST) / shown[pivot]
        else:
            pivot, together = _unstable(small, base, active, growth)
            active |= together
            alpha = alpha if branch.stages else 1.0 / growth[pivot]
            active = excited(small, pivot, active, base)
        final = len(branch.stages) + 1 == stages
        if final and not last_stage:
            branch.beginning = Beginning(pivot, active, bool(trivial.any()))
            break
        stage = _scouted_stage(small, pivot, active, base, alpha, last_stage, trivial=bool(trivial.any()))
        trivial = np.zeros(k, dtype=bool)
        branch.stages.append(stage)
        branch.thresholds.append(0.0 if stage.trivial else float(stage.alpha[0]))
        if final or active.all() or stage.end >= stage.t[-1]:
            break
        base, alpha = stage.overlaps_at(stage.end), stage.alpha_at(stage.end)
        growth = np.where(active, 0.0, stage.growth_at(stage.end))
    return branch


def _scouted_stage(
    small: OverlapMap,
    pivot: int,
    active: np.ndarray,
    base: np.ndarray,
    alpha: float,
    last_stage: bool,
    *,
    trivial: bool = False,
) -> Stage:
    """One stage in coarse steps, cut soon after another direction becomes unstable."""
    rows: list[Any] = []
    steps = np.array(_SCOUT if not active.all() else (*_SCOUT, _T_LAST))
    if trivial:
        steps[0] = _T_FIRST
    if active.all() and not last_stage:
        steps = steps[:2]
    q, solved, passed = base.copy(), True, 0
    for i in range(len(steps)):
        estimate, q, alpha, met = _node(small, 0, steps, rows, i, pivot, active, q, alpha)
        solved &= met
        growth = growth_of(small, estimate, active, alpha)
        rows.append((alpha, q, growth, estimate.log_partition))
        # One step more than needed, so that the crossing lies inside.
        passed += bool(growth.max() > 1)
        if passed == 2:
            break
    stage = _gather(pivot, active, steps[: len(rows)], rows, solved, chebyshev=False, trivial=trivial)
    idle = ~active
    if idle.any():
        crossing = first_crossing(lambda t: np.log(stage.growth_at(t)[..., idle]).max(axis=-1), float(stage.t[-1]))
        stage.end = float(stage.t[-1]) if crossing is None else crossing
    else:
        stage.end = float(stage.t[-1])
    return stage


def trivial_coordinates(omap: OverlapMap) -> np.ndarray:
    """Which blocks of rows have g_out(y, 0, I) other than 0: (k,) booleans.

    A block that some symmetry flips has g_out = 0 there exactly; no estimate is asked.
    """
    symmetry = omap.model.symmetry
    found = np.zeros(len(symmetry.basis), dtype=bool)
    fixed = np.array([_fixed(symmetry, B) for B in symmetry.basis], dtype=bool)
    if not fixed.any():
        return found
    estimates = omap.sibling(_TRIVIAL_POINTS * _TRIVIAL_SCRAMBLES, _TRIVIAL_SCRAMBLES).evaluate(
        np.zeros((omap.model.fields,) * 2)
    )
    shown = np.array([symmetry.coordinates(e.three[0]) for e in estimates])
    mean, error = mean_and_error(shown)
    bounded = [e.inner_error for e in estimates if np.isfinite(e.inner_error)]
    inner = float(np.mean(bounded)) if bounded else 0.0
    found[fixed] = (np.asarray(mean) > np.maximum(_SHOWN * np.asarray(error), max(inner, LEAST)))[fixed]
    return found


def _unstable(small: OverlapMap, base: np.ndarray, active: np.ndarray, growth: np.ndarray) -> tuple[int, np.ndarray]:
    """(pivot, blocks (k,)) of the class that grows fastest: all of it becomes unstable at once, the pivot most."""
    idle, rates = growth_rates(small, small.at(0, small.model.symmetry.matrix(base)), active)
    fastest = int(growth.argmax())
    (members,) = [m for m in coupled_classes(rates) if fastest in idle[m]]
    vector = np.abs(np.linalg.eigh(rates[np.ix_(members, members)])[1][:, -1])
    blocks = np.zeros(len(active), dtype=bool)
    blocks[idle[members]] = True
    # Overlap per row, as the coordinates are eigenvalues.
    size = np.trace(small.model.symmetry.basis[idle[members]], axis1=1, axis2=2)
    return int(idle[members][int((vector / np.sqrt(size)).argmax())]), blocks


def excited(small: OverlapMap, pivot: int, active: np.ndarray, base: np.ndarray) -> np.ndarray:
    """``active`` and the blocks that are learned with it at once, because g_out does not vanish there any more.

    Only blocks that no symmetry flips while it leaves the active rows where they are can be.
    """
    symmetry = small.model.symmetry
    may = np.array([_fixed(symmetry, B, active) for B in symmetry.basis]) & ~active
    if not may.any():
        return active
    q = base.copy()
    q[pivot] = max(q[pivot], 0.3)
    shown = symmetry.coordinates(small.at(0, symmetry.matrix(q)).three[0])
    return active | (may & (shown > 1e-6 * shown[pivot]))


def _fixed(symmetry: Any, B: np.ndarray, active: np.ndarray | None = None) -> bool:
    """Whether the part of the group that leaves active rows where they are leaves some vector in the range of B too."""
    elements, rotations = symmetry.elements, symmetry.rotations
    if active is not None and active.any():
        known = symmetry.basis[active].sum(axis=0)
        elements = elements[np.abs(elements @ known - known).max(axis=(1, 2)) < 1e-9]
        touched = np.abs(known).max(axis=0) > 1e-9
        rotations = [group for group in rotations if not any(touched[row] for rows in group for row in rows)]
    average = elements.mean(axis=0)
    turned = [row for group in rotations for rows in group for row in rows]
    average[turned] = 0.0
    return bool(np.abs(average @ B).max() > 1e-9)


def trace(omap: OverlapMap, scramble: int, coarse: Branch) -> Branch:
    """The branch of one scramble of the full map, with the stages and starting points of ``coarse``."""
    branch = Branch(coarse.coordinates, [], [])
    for _ in coarse.stages:
        if not extend(branch, omap, scramble, coarse):
            break
    return branch


def extend(branch: Branch, omap: OverlapMap, scramble: int, coarse: Branch) -> bool:
    """Trace the next stage; False when the stage before it showed no crossing to start from."""
    i = len(branch.stages)
    if i and not branch.stages[-1].solved:
        return False
    guess, final = coarse.stages[i], i + 1 == len(coarse.stages)
    nodes = NODES_LAST if final else NODES
    # A margin, because every scramble crosses at its own place.
    last = float(guess.t[-1]) if final else 1 - 0.85 * (1 - guess.end)
    first = _T_FIRST if guess.trivial else 0.0
    t = first + 0.5 * (1 - np.cos(np.pi * np.arange(nodes) / (nodes - 1))) * (last - first)
    rows: list[Any] = []
    if not guess.trivial:
        estimate, q, alpha = _start_node(omap, scramble, guess.pivot, branch)
        rows.append((alpha, q, growth_of(omap, estimate, guess.active, alpha), estimate.log_partition))
    solved = True
    for j in range(len(rows), nodes):
        q, alpha = guess.overlaps_at(t[j]), guess.alpha_at(t[j])
        estimate, q, alpha, met = _solve_node(omap, scramble, guess.pivot, guess.active, q, alpha)
        solved &= met
        rows.append((alpha, q, growth_of(omap, estimate, guess.active, alpha), estimate.log_partition))
    stage = _gather(guess.pivot, guess.active, t, rows, solved, trivial=guess.trivial)
    stage.end = last
    branch.stages.append(stage)
    branch.thresholds.append(0.0 if guess.trivial else float(stage.alpha[0]))
    if not final:
        following = coarse.stages[i + 1].pivot
        crossing = first_crossing(lambda t: np.log(stage.growth_at(t)[..., following]), last)
        stage.solved = stage.solved and crossing is not None
        stage.end = last if crossing is None else crossing
    return True


def _gather(
    pivot: int,
    active: np.ndarray,
    t: np.ndarray,
    rows: list[Any],
    solved: bool,
    *,
    chebyshev: bool = True,
    trivial: bool = False,
) -> Stage:
    alphas, overlaps, growth, potential = (np.array(column) for column in zip(*rows, strict=True))
    return Stage(
        pivot,
        active,
        np.asarray(t, dtype=float),
        alphas,
        overlaps,
        growth,
        potential,
        solved,
        chebyshev=chebyshev,
        trivial=trivial,
    )


def _start_node(omap: OverlapMap, scramble: int, pivot: int, branch: Branch) -> tuple[Estimate, np.ndarray, float]:
    """The point where a stage begins: the pivot unlearned and marginally stable."""
    if not branch.stages:
        q = np.zeros(branch.coordinates)
        estimate = omap.at(scramble, omap.model.symmetry.matrix(q))
        return estimate, q, 1.0 / growth_of(omap, estimate, np.zeros(len(q), dtype=bool))[pivot]
    previous = branch.stages[-1]
    estimate = omap.at(scramble, omap.model.symmetry.matrix(previous.overlaps_at(previous.end)))
    q, alpha = refine_crossing(omap, estimate, previous, pivot, previous.end)
    return estimate, q, alpha


def refine_crossing(
    omap: OverlapMap, estimate: Estimate, stage: Stage, pivot: int, t: float
) -> tuple[np.ndarray, float]:
    """(q, alpha) where ``pivot`` becomes unstable on ``stage``, from one evaluation at its point t.

    The evaluation gives alpha and the growth there without interpolation error; the stage gives their slopes.
    """
    symmetry = omap.model.symmetry
    V = np.eye(len(estimate.Q)) - estimate.Q
    learned = symmetry.coordinates(np.linalg.inv(V) - np.eye(len(V)))[stage.pivot]
    alpha = learned / symmetry.coordinates(estimate.E)[stage.pivot]
    growth = growth_of(omap, estimate, stage.active, alpha)[pivot]
    h = 1e-4
    alpha_slope = (np.log(stage.alpha_at(t + h)) - np.log(stage.alpha_at(t - h))) / (2 * h)
    slope = (np.log(stage.growth_at(t + h)[pivot]) - np.log(stage.growth_at(t - h)[pivot])) / (2 * h)
    shift = float(-np.log(growth) / slope)
    return stage.overlaps_at(t + shift), float(alpha * np.exp(alpha_slope * shift))


def _node(
    omap: OverlapMap,
    scramble: int,
    t: np.ndarray,
    rows: list[Any],
    i: int,
    pivot: int,
    active: np.ndarray,
    q: np.ndarray,
    alpha: float,
) -> tuple[Estimate, np.ndarray, float, bool]:
    """Node i of a stage, predicted from the nodes before it."""
    q, alpha = _predict(t, rows, i, pivot, active, q, alpha)
    q[pivot] = 1 - (1 - t[i]) ** 2
    if q[pivot] == 0.0:
        estimate = omap.at(scramble, omap.model.symmetry.matrix(q))
        # What starts here, the pivot and all that grows with it, is still idle.
        return estimate, q, 1.0 / growth_of(omap, estimate, active & (q > 0))[pivot], True
    return _solve_node(omap, scramble, pivot, active, q, alpha)


def _predict(
    t: np.ndarray, rows: list[Any], i: int, pivot: int, active: np.ndarray, q: np.ndarray, alpha: float
) -> tuple[np.ndarray, float]:
    """Start of node i: polynomial extrapolation of alpha and of log(1 - q) relative to the pivot's."""
    if not rows:
        return q.copy(), alpha
    use = slice(max(0, i - 4), i)
    at = t[use]
    left = np.array([np.log(np.maximum(1 - r[1], 1e-300)) - np.log(1 - r[1][pivot]) for r in rows[use]])
    alphas = np.array([r[0] for r in rows[use]])
    weights = np.array([np.prod([(t[i] - b) / (a - b) for b in at if b != a]) for a in at])
    guess = q.copy()
    guess[active] = 1 - (1 - t[i]) ** 2 * np.exp(weights @ left)[active]
    return np.where(active, np.clip(guess, 1e-12, 1 - 1e-9), 0.0), float(max(weights @ alphas, 1e-6))


def _solve_node(
    omap: OverlapMap, scramble: int, pivot: int, active: np.ndarray, q: np.ndarray, alpha: float
) -> tuple[Estimate, np.ndarray, float, bool]:
    """Newton for (alpha, active overlaps but the pivot) with the exact derivative of E.

    Equations: the active coordinates of V^{1/2} (alpha E - V^{-1} + I) V^{1/2}, which stay of order one as V vanishes.
    """
    symmetry = omap.model.symmetry
    others = np.flatnonzero(active)
    others = others[others != pivot]
    before: tuple[np.ndarray, np.ndarray] | None = None
    for _ in range(_STEPS):
        estimate = omap.at(scramble, symmetry.matrix(q))
        V = np.eye(len(estimate.Q)) - estimate.Q
        values, vectors = np.linalg.eigh(V)
        root = (vectors * np.sqrt(values)) @ vectors.T
        inverse = np.linalg.inv(V)
        E = symmetry.project(estimate.E)

        def coordinates(M: np.ndarray, root: np.ndarray = root) -> np.ndarray:
            return symmetry.coordinates(root @ M @ root)[active]

        residual = coordinates(alpha * E - inverse + np.eye(len(V)))
        columns = [coordinates(E)]
        for i in others:
            B = symmetry.basis[i]
            columns.append(coordinates(alpha * estimate.derivative(B) - inverse @ B @ inverse))
        jacobian, at = np.array(columns).T, np.array([alpha, *q[others]])
        if before is not None and others.size:
            # The derivative is an estimate with noise of its own: correct it along the step that was just made.
            moved, seen = at - before[0], residual - before[1]
            jacobian += np.outer(seen - jacobian @ moved, moved) / (moved @ moved)
        before = at, residual
        step = -np.linalg.lstsq(jacobian, residual, rcond=None)[0]
        change = np.abs(step[1:]) / (1 - q[others]) if others.size else np.zeros(1)
        # Half of what is left to learn is the farthest a derivative can be trusted.
        scale = min(1.0, 0.5 / max(float(change.max()), 1e-300))
        alpha = max(alpha + scale * float(step[0]), 1e-3 * alpha)
        if not others.size:
            return estimate, q, alpha, True
        q = q.copy()
        q[others] = np.maximum(q[others] + scale * step[1:], 1e-12)
        # Newton is quadratic: a step this small leaves an error of its square.
        if float(change.max()) < _SMALL:
            return estimate, q, alpha, True
    return estimate, q, alpha, False
