"""Whether random fields lie on the sheets of a chart: a missing sheet would cut every posterior.

The free fields of a random Z and the coordinates of its output are given to the chart; Z must then be one of the points
that it finds.  Where a chart has no latent coordinates that is one call for thousands of fields at once; latent
coordinates are searched for, all fields side by side, by least squares from many starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smisym.base.complex_step import jacobian
from smisym.base.errors import InputError
from smisym.base.levenberg import Rule, Tried, descend
from smisym.base.sobol import Normals
from smisym.charts.base import FLAT, LINE, SCALE, Arrays, Coordinates, LevelSet, Sheets
from smisym.link.linking import LinkFunction, Observation

LATENT: dict[str, Callable[[np.ndarray], np.ndarray]] = {LINE: np.sinh, SCALE: np.exp, FLAT: np.asarray}
# How near Z must be (relative), and how many times rounding alone may move the nearest sheet for that to be why it is
# not; jitters of the coordinates that show it, and their relative size.
_SAME, _ROUNDED, _JITTERS, ULP = 1e-5, 1e3, 8, 4 * np.finfo(float).eps
# Left out: fields where the link is bent so much that rounding and differences tell little, or moves so much less than
# at so many usual ones; and larger ones.
_COND, FAR, _USUAL = 1e4, 1e3, 64
# Share of the fields that rounding may leave without a verdict.
_MOST_UNJUDGED = 0.5
# Starts of a search, those followed further, steps of each, gaps that count as infinite, step of differences; spreads
# of the starts round by round, with twice as many for the fields (at most so many) that the last one did not meet.
_STARTS, _FOLLOWED, _STEPS, _HUGE, _DIFFERENCE = 128, 4, 40, 1e6, 1e-6
# Damping at which a search is given up.
_GIVEN_UP = 1e8
_SPREADS, _LEFT = (1.0, 2.0, 0.5, 1.4, 2.0, 1.0), 8
# Points that one call of ``solve`` is given.
_CHUNK = 16384


@dataclass(frozen=True)
class Coverage:
    """Of random fields (n, P, T): which lie on a sheet, which on none, and the outputs of which the chart refuses.

    Rounding leaves the others undecided.
    """

    fields: np.ndarray
    met: np.ndarray
    lost: np.ndarray
    refused: np.ndarray

    @property
    def judged(self) -> int:
        return int((self.met | self.lost).sum())

    @property
    def telling(self) -> bool:
        """Whether enough fields were judged for the verdict to mean anything."""
        return self.judged >= (1 - _MOST_UNJUDGED) * len(self.fields)


def coverage(link: LinkFunction, chart: LevelSet, count: int, seed: int = 11) -> Coverage:
    """Where ``count`` random standard normal fields are on the sheets of a chart; fewer are asked where outputs
    overflow."""
    Z = np.random.default_rng(seed).standard_normal((count, link.fields, link.tokens))
    Z = Z[np.isfinite(link.raw(Z)).reshape(count, -1).all(axis=1)]
    met, lost = np.zeros((2, len(Z)), dtype=bool)
    with np.errstate(all="ignore"):
        found, read = read_coordinates(chart, link.observe(Z)) if len(Z) else (Coordinates(Z, Z), met)
    if chart.latents:
        # No search for what rounding hides: it would go through all its rounds.
        read &= steady(link, chart, Z)
    if read.any():
        asked = _Asked(link, chart, Z[read], found.values[read], found.relative_error[read])
        met[read], lost[read] = asked.searched() if chart.latents else asked.direct()
    rest = np.flatnonzero(~met)
    clear = steady(link, chart, Z[rest])
    lost[rest] &= clear
    refused = np.zeros(len(Z), dtype=bool)
    refused[rest] = clear & ~read[rest]
    return Coverage(Z, met, lost, refused)


def steady(link: LinkFunction, chart: LevelSet, Z: np.ndarray, usual: float | None = None) -> np.ndarray:
    """(n,) whether rounding leaves output and fields Z (n, P, T) alone.

    It does not where mixing is nearly singular, far out, and where sheets meet: there the link hardly moves, and no
    digits of the fields are left in the output.  usual: :func:`usual_size`, for who asks many times.
    """
    if not chart.dimension or not len(Z):
        return np.ones(len(Z), dtype=bool)
    sizes = _sizes(link, chart, Z)
    moves = sizes[:, -1] > (usual_size(link, chart) if usual is None else usual) / _COND
    return moves & (sizes[:, 0] < _COND * sizes[:, -1]) & (np.abs(Z).max(axis=(1, 2)) <= FAR)


def usual_size(link: LinkFunction, chart: LevelSet) -> float:
    """How much the link moves at usual fields, along the direction in which it moves least: a median."""
    if not chart.dimension:
        return 0.0
    Z = np.random.default_rng(23).standard_normal((_USUAL, link.fields, link.tokens))
    return float(np.nanmedian(_sizes(link, chart, Z)[:, -1]))


def _sizes(link: LinkFunction, chart: LevelSet, Z: np.ndarray) -> np.ndarray:
    """(n, K): the singular values of df/dZ that are not zero, largest first; NaN where there is none."""
    J = jacobian(link.of_entries, Z.reshape(len(Z), -1), np.arange(link.fields * link.tokens))[1]
    good = np.isfinite(J).all(axis=(1, 2))
    sizes = np.linalg.svd(np.where(good[:, None, None], J, 0.0), compute_uv=False)[:, : chart.dimension]
    return np.where(good[:, None], sizes, np.nan)


def log_normal(link: LinkFunction, chart: LevelSet, Z: np.ndarray) -> np.ndarray:
    """(n,) log sqrt(pdet J J^T) at fields Z (n, P, T), J = df/dZ; NaN where it is nearly singular."""
    if not chart.dimension or not len(Z):
        return np.zeros(len(Z))
    J = jacobian(link.of_entries, Z.reshape(len(Z), -1), np.arange(link.fields * link.tokens))[1]
    return log_volume(J, chart.dimension)


def log_volume(matrices: np.ndarray, rank: int) -> np.ndarray:
    """Log of the product of the ``rank`` largest singular values of each matrix; NaN where they differ too much."""
    good = np.isfinite(matrices).all(axis=(1, 2))
    sizes = np.linalg.svd(np.where(good[:, None, None], matrices, 0.0), compute_uv=False)[:, :rank]
    with np.errstate(divide="ignore"):
        total = np.log(sizes).sum(axis=1)
    return np.where(good & (sizes[:, 0] < _COND * sizes[:, -1]), total, np.nan)


def check_coverage(
    name: str, link: LinkFunction, chart: LevelSet, count: int, refused: float
) -> tuple[tuple[str, str], ...]:
    """(statement, how) of :func:`coverage`; InputError where fields lie on no sheet, or more outputs are refused."""
    found = coverage(link, chart, count)
    if found.refused.sum() > max(1.0, refused * len(found.fields)):
        raise InputError(
            f"chart {name!r}",
            f"coordinates that refuse {found.refused.sum()} of {len(found.fields)} outputs of random fields",
            "coordinates of every output of the link",
            "let coordinates read all outputs, or return a Refusal for this link",
        )
    if found.lost.any():
        Z = found.fields[found.lost][0]
        raise InputError(
            f"chart {name!r}",
            f"no sheet that holds the fields {Z.round(3).tolist()}, from which the output was made "
            f"({found.lost.sum()} of {found.judged} random fields)",
            "every point of the level set on one of the sheets",
            "add the branch of solve that is missing, or count the sheets in branches",
        )
    if not found.telling:
        return ()
    how = "latent coordinates searched for" if chart.latents else "solved at their own free fields"
    return (("every $Z$ lies on a sheet of the chart of its output", f"{found.judged} random fields, {how}"),)


def read_coordinates(chart: LevelSet, observed: Observation) -> tuple[Coordinates, np.ndarray]:
    """The chart's coordinates of outputs in the image, and where it could read them (rounding may forbid it)."""
    try:
        found = chart.coordinates(observed)
    except InputError:
        return _one_by_one(chart, observed)
    return found, found.read


def _one_by_one(chart: LevelSet, observed: Observation) -> tuple[Coordinates, np.ndarray]:
    """The same of a chart that raises where it cannot read one of a batch, as one of a user's own may."""
    parts = []
    for k in range(len(observed)):
        try:
            parts.append(chart.coordinates(observed[slice(k, k + 1)]))
        except InputError:
            parts.append(Coordinates(np.full((1, 1), np.nan), np.full(1, np.inf)))
    width = max((found.values.shape[1] for found in parts), default=1)
    values = np.concatenate([np.broadcast_to(found.values, (1, width)) for found in parts])
    error = np.concatenate([found.relative_error for found in parts])
    good = np.array([found.read[0] and not np.isnan(found.values).any() for found in parts])
    return Coordinates(values, error), good


def points(link: LinkFunction, chart: LevelSet, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, Sheets]:
    """Fields (branches, n, P, T) at coordinates x (d, n), and the sheets they come from; u (1 or n, K)."""
    T, free = link.tokens, len(chart.free_rows) * link.tokens
    latent = [np.asarray(LATENT[k](v)) for k, v in zip(chart.latents, x[free:], strict=True)]
    with np.errstate(all="ignore"):
        sheets = chart.solve(list(x[:free]), latent, list(u.T))
    check_shape(link, chart, sheets)
    n = x.shape[1]
    out = np.empty((chart.branches, link.fields, T, n))
    out[:, list(chart.free_rows)] = x[:free].reshape(len(chart.free_rows), T, n)
    for b, solved in enumerate(sheets.solved):
        out[b, list(chart.solved_rows)] = columns(solved, n).reshape(len(chart.solved_rows), T, n)
    return np.moveaxis(out, 3, 1), sheets


def check_shape(link: LinkFunction, chart: LevelSet, sheets: Sheets) -> None:
    """InputError unless there are as many rows, sheets and arrays of each as the chart says."""
    rows, fix = sorted((*chart.free_rows, *chart.solved_rows)), "see docs/extend/chart.md, what the parts are"
    if rows != list(range(link.fields)):
        allowed = f"each row of Z from 0 to {link.fields - 1} once, in one of both"
        raise InputError("free_rows, solved_rows of a chart", (chart.free_rows, chart.solved_rows), allowed, fix)
    each = [len(solved) for solved in sheets.solved]
    wanted = [len(chart.solved_rows) * link.tokens] * chart.branches
    if each != wanted:
        allowed = f"{chart.branches} (branches), each with {wanted[0] if wanted else 0} arrays (solved rows by tokens)"
        raise InputError("numbers of arrays in solved of a chart, sheet by sheet", each, allowed, fix)
    if len(sheets.log_weight) not in (1, chart.branches):
        allowed = "1" if chart.branches == 1 else f"1 or {chart.branches}, the number of sheets"
        raise InputError("length of log_weight of a chart", len(sheets.log_weight), allowed, fix)


def columns(entries: Arrays, count: int) -> np.ndarray:
    """Arrays that broadcast, as the rows of one (len(entries), count)."""
    return np.stack([np.broadcast_to(e, (count,)) for e in entries])


class _Asked:
    """Random fields Z (n, P, T) whose outputs have coordinates u (n, K), moved by rounding by ``error`` (n,)."""

    def __init__(self, link: LinkFunction, chart: LevelSet, Z: np.ndarray, u: np.ndarray, error: np.ndarray) -> None:
        self.link, self.chart, self.Z, self.u = link, chart, Z, u
        self.free = Z[:, list(chart.free_rows)].reshape(len(Z), -1)
        self.target = Z[:, list(chart.solved_rows)].reshape(len(Z), -1)
        self.near = _SAME * (1 + np.abs(Z).max(axis=(1, 2)))
        self.rounding = np.maximum(ULP, error)

    def direct(self) -> tuple[np.ndarray, np.ndarray]:
        """(met (n,), lost (n,)) where nothing has to be searched for."""
        every = np.arange(len(self.Z))
        away = self._distance(every, np.empty((len(every), 0)))
        met = (away <= self.near[:, None]).any(axis=1)
        return met, self._judged(met, every, np.empty((len(every), 0)), away.min(axis=1))

    def searched(self) -> tuple[np.ndarray, np.ndarray]:
        """(met (n,), lost (n,)) by searches, with new starts for those that were not met."""
        n, d = len(self.Z), len(self.chart.latents)
        best, x = np.full(n, np.inf), np.zeros((n, d))
        left = np.arange(n)
        for number, spread in enumerate(_SPREADS):
            # A few that are lost are enough for a verdict; the others are left open.
            left = left[best[left] > self.near[left]]
            left = left if number == 0 else left[:_LEFT]
            if not left.size:
                break
            start = Normals(d, 13 + number).draw(_STARTS << number)
            away, at = self._search(left, spread * start, _FOLLOWED << number)
            better = away < best[left]
            best[left[better]], x[left[better]] = away[better], at[better]
        met = best <= self.near
        lost = self._judged(met, np.arange(n), x, best)
        return met, lost & np.isin(np.arange(n), left)

    def _judged(self, met: np.ndarray, which: np.ndarray, x: np.ndarray, best: np.ndarray) -> np.ndarray:
        """Fields not met whose gap is more than rounding makes of it: that is seen by moving what the chart is told."""
        lost = ~met
        open_ = which[lost]
        if not open_.size:
            return lost
        rng = np.random.default_rng(17)
        tried = []
        for _ in range(_JITTERS):
            own = self._distance(open_, x[open_], rng)
            tried.append(np.where(np.isfinite(own), own, _HUGE).min(axis=1))
        moved, gap = np.ptp(tried, axis=0), np.where(np.isfinite(best[open_]), best[open_], _HUGE)
        by_rounding = (np.min(tried, axis=0) <= self.near[open_]) | (gap <= _ROUNDED * moved)
        lost[open_[by_rounding | ~np.isfinite(self.rounding[open_])]] = False
        return lost

    def _gaps(
        self, which: np.ndarray, x: np.ndarray, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(n, branches, m) from fields ``which`` to the sheets at latent coordinates x (n, d), and the log-weights."""
        free, u = self.free[which], self.u[which]
        if rng is not None:
            size = np.where(np.isfinite(self.rounding[which]), self.rounding[which], 0.0)[:, None]
            free = free * (1 + ULP * rng.standard_normal(free.shape))
            u = u * (1 + size * rng.standard_normal(u.shape))
        per_call = max(1, _CHUNK // self.chart.branches)
        parts = [
            self._gaps_of(which[i : i + per_call], free[i : i + per_call], x[i : i + per_call], u[i : i + per_call])
            for i in range(0, len(which), per_call)
        ]
        return np.concatenate([gap for gap, _ in parts]), np.concatenate([weight for _, weight in parts])

    def _gaps_of(
        self, which: np.ndarray, free: np.ndarray, x: np.ndarray, u: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        chart, n = self.chart, len(which)
        found, sheets = points(self.link, chart, np.concatenate([free, x], axis=1).T, u)
        gap = found[:, :, list(chart.solved_rows)].reshape(chart.branches, n, -1) - self.target[which]
        for b in range(chart.branches if chart.directions else 0):
            along = np.stack([columns(vector, n) for vector in sheets.directions[b]], axis=2)  # (m, n, k)
            gap[b] = _without(gap[b], np.moveaxis(along, 0, 1))
        weight = columns(sheets.log_weight, n)
        return np.moveaxis(gap, 0, 1), np.broadcast_to(weight, (chart.branches, n)).T

    def _distance(self, which: np.ndarray, x: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """(n, branches): largest entry of the gap to each sheet; infinite where it has no weight, or no number."""
        gap, weight = self._gaps(which, x, rng)
        largest = np.abs(gap).max(axis=2, initial=0.0)
        with np.errstate(invalid="ignore"):
            return np.where((weight > -np.inf) & np.isfinite(largest), largest, np.inf)

    def _search(self, which: np.ndarray, start: np.ndarray, followed: int) -> tuple[np.ndarray, np.ndarray]:
        """Smallest distance (n,) and where (n, d), from starts (m, d) for every field: the best few are followed."""
        n, (m, d) = len(which), start.shape
        B = self.chart.branches
        score = np.empty((n, m, B))
        per_call = max(1, 4 * _CHUNK // (m * B))
        for i in range(0, n, per_call):
            own = which[i : i + per_call]
            gap, weight = self._gaps(np.repeat(own, m), np.tile(start, (len(own), 1)))
            # Where one field is a wild function of the coordinates, the others must not be drowned by it.
            with np.errstate(all="ignore"):
                cost = np.log1p(np.nan_to_num(gap, nan=_HUGE) ** 2).sum(axis=2)
            score[i : i + per_call] = np.where(weight > -np.inf, cost, np.inf).reshape(len(own), m, B)
        order = np.argsort(score.reshape(n, m * B), axis=1, kind="stable")[:, :followed]
        owner = np.repeat(which, order.shape[1])
        from_, branch = np.divmod(order.ravel(), B)
        x = self._descend(owner, branch, start[from_])
        away = self._distance(owner, x)[np.arange(len(owner)), branch].reshape(n, -1)
        first = away.argmin(axis=1)
        return away[np.arange(n), first], x.reshape(n, -1, d)[np.arange(n), first]

    def _descend(self, owner: np.ndarray, branch: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Least squares of the gaps of fields ``owner`` to their sheets, from latent coordinates x (n, d)."""
        d = x.shape[1]

        def values(which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, None]:
            return self._residual(owner[which], branch[which], x), None

        def slopes(which: np.ndarray, x: np.ndarray, r: np.ndarray) -> np.ndarray:
            columns = []
            for step in _DIFFERENCE * np.eye(d):
                ahead, behind = (self._residual(owner[which], branch[which], x + s * step) for s in (1, -1))
                columns.append((ahead - behind) / (2 * _DIFFERENCE))
            return np.stack(columns, axis=2)

        def ends(tried: Tried) -> np.ndarray:
            met = np.abs(tried.residuals).max(axis=1) <= 1e-3 * self.near[owner[tried.which]]
            return met | (tried.damping >= _GIVEN_UP)

        return descend(values, x, ends, steps=_STEPS, rule=Rule(least=1e-12), slopes=slopes)[0]

    def _residual(self, owner: np.ndarray, branch: np.ndarray, x: np.ndarray) -> np.ndarray:
        gap, _ = self._gaps(owner, x)
        own = gap[np.arange(len(owner)), branch]
        return np.clip(np.nan_to_num(own, nan=_HUGE), -_HUGE, _HUGE)


def _without(gap: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Gaps (n, m) without what lies along the directions (n, m, k)."""
    good = np.isfinite(along).all(axis=(1, 2))
    frame = np.linalg.qr(np.where(good[:, None, None], along, 0.0))[0]
    rest = gap - np.einsum("nmk,nlk,nl->nm", frame, frame, np.where(np.isfinite(gap), gap, 0.0))
    return np.where(good[:, None], rest, np.nan)
