"""A chart held against the link alone: does it give the output back, hold every field, and measure the surface?

The measure on {Z : f(Z) = y} must be the surface measure over sqrt(pdet J J^T), J = df/dZ, up to a factor that depends
on y alone (co-area formula): log_weight - log vol(dZ/d(coordinates)) + log sqrt(pdet J J^T) is the same all over it.
That no sheet is missing: :mod:`smisym.charts.covering`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smisym.base.errors import InputError
from smisym.charts.base import FLAT, LINE, SCALE, LevelSet, Sheets
from smisym.charts.covering import (
    FAR,
    ULP,
    check_coverage,
    columns,
    log_normal,
    log_volume,
    points,
    read_coordinates,
)
from smisym.link.linking import LinkFunction

# Points of each level set.  Spread of the latent coordinates there: small, so that the smoothed turn of an angle counts
# every point once.
_POINTS, _SPREAD = 4, 0.2
# Step and weights of derivatives of fourth order, and what may be wrong: with the output (relative), and with the
# log-measure.
_STEP, _SAME, _EVEN = 2e-4, 1e-5, 1e-3
_DIFFERENCES = ((1.0, 2 / 3), (-1.0, -2 / 3), (2.0, -1 / 12), (-2.0, 1 / 12))
# Largest difference of these from those of second order, relative: the square of it is what may be wrong with them.
_CONVERGED = 3e-3
# Left out: points that rounding of the coordinates moves further than this (relative).
_MOVED = 1e-8
_LOG_SLOPE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    LINE: lambda v: np.log(np.cosh(v)),
    SCALE: lambda v: v,
    FLAT: lambda v: 0 * v,
}


@dataclass(frozen=True)
class Effort:
    """How much is checked: outputs whose level sets are measured, and fields that must lie on a sheet.

    direct: fields where nothing has to be searched for; searched: where latent coordinates have to be.  numbers: a
    bound on what is computed, over sheets and derivatives, to which these are cut for charts with many.  latents: no
    search for more latent coordinates than these.  refused: share of the outputs that coordinates may refuse.
    """

    outputs: int
    direct: int
    searched: int
    numbers: int
    latents: int
    refused: float

    def level_sets(self, link: LinkFunction, chart: LevelSet) -> int:
        entries = link.fields * link.tokens
        return max(2, min(self.outputs, self.numbers // (chart.branches * _POINTS * entries**2)))

    def points(self, link: LinkFunction) -> int:
        return int(max(16, self.numbers // (link.fields * link.tokens) ** 2))

    def fields(self, chart: LevelSet) -> int:
        d = len(chart.latents)
        if not d:
            return max(32, min(self.direct, self.numbers // chart.branches))
        if d > self.latents:
            return 0
        return max(2, min(self.searched, self.numbers // (256 * chart.branches * (1 + d) ** 2)))


# A chart of a registered rule takes seconds (many sheets and latent coordinates: a minute); our own, which tests hold
# against the link as thoroughly, a fraction of a second; they refuse outputs that saturated, saying so when asked.
THOROUGH = Effort(outputs=256, direct=4096, searched=1024, numbers=1 << 22, latents=32, refused=0.05)
QUICK = Effort(outputs=16, direct=256, searched=32, numbers=1 << 17, latents=8, refused=1.0)


def check_chart(name: str, link: LinkFunction, chart: LevelSet, effort: Effort) -> tuple[tuple[str, str], ...]:
    """(statement, how) of what was verified of a chart at random points; InputError where it is wrong.

    What rounding alone may have done (nearly singular mixing, saturated outputs) is no verdict: those points are left
    out, and where too few remain the statement is left out as well.
    """
    held = _held(link, chart, effort.level_sets(link, chart), effort.points(link))
    fields = effort.fields(chart)
    return _verdict(name, held) + (check_coverage(name, link, chart, fields, effort.refused) if fields else ())


@dataclass(frozen=True)
class _Held:
    """Relative misfits of the output at points of the sheets, and spreads of the log-measure level set by level set."""

    changes: np.ndarray
    spreads: np.ndarray


def _held(link: LinkFunction, chart: LevelSet, outputs: int, most: int) -> _Held:
    rng = np.random.default_rng(7)
    P, T, d = link.fields, link.tokens, len(chart.latents)
    truth = rng.standard_normal((outputs, P, T))
    truth = truth[np.isfinite(link.raw(truth)).reshape(outputs, -1).all(axis=1)]
    if not len(truth):
        return _Held(np.empty(0), np.empty(0))
    with np.errstate(all="ignore"):
        found, read = read_coordinates(chart, link.observe(truth))
    # Outputs of which rounding leaves too little: the chart says so.
    read &= np.isfinite(found.relative_error)
    truth, u, error = truth[read], found.values[read], found.relative_error[read]
    N = len(truth)
    if not N:
        return _Held(np.empty(0), np.empty(0))
    free = rng.standard_normal((N, _POINTS, len(chart.free_rows) * T))
    x = np.concatenate([free, _SPREAD * rng.standard_normal((N, _POINTS, d))], axis=2).reshape(N * _POINTS, -1).T
    u, error = np.repeat(u, _POINTS, axis=0), np.repeat(error, _POINTS)
    _check_count(link, chart, len(x))
    Z, sheets = points(link, chart, x, u)
    log_weight = _log_weights(sheets, chart, x)
    there = np.isfinite(log_weight) & np.isfinite(Z).all(axis=(2, 3)) & (np.abs(Z).max(axis=(2, 3)) <= FAR)
    there &= _still(link, chart, x, u, error, Z, rng)
    many = np.flatnonzero(there)
    there.ravel()[rng.permutation(many)[most:]] = False
    normal = np.full(there.shape, np.nan)
    normal[there] = log_normal(link, chart, Z[there])
    there &= np.isfinite(normal)
    who, which = np.nonzero(there)
    with np.errstate(all="ignore"):
        raw = link.raw(truth)[which // _POINTS]
        changes = np.abs(link.raw(Z[there]) - raw) / (1 + np.abs(raw)) if len(who) else np.empty(0)
    if chart.shared or chart.pieces:  # sheets that share points have weights that only add up to those of the surface
        return _Held(changes, np.empty(0))
    along = _along(link, chart, x, u, sheets, there)
    values = np.where(there & np.isfinite(along), log_weight - along + normal, np.nan).reshape(-1, N, _POINTS)
    several = np.isfinite(values).sum(axis=(0, 2)) > 1
    values = values[:, several]
    spreads = np.nanmax(values, axis=(0, 2)) - np.nanmin(values, axis=(0, 2)) if several.any() else np.empty(0)
    return _Held(changes, spreads)


def _check_count(link: LinkFunction, chart: LevelSet, coordinates: int) -> None:
    count = coordinates + chart.directions
    if not (chart.shared or chart.pieces) and count != link.fields * link.tokens - chart.dimension:
        raise InputError(
            "chart",
            f"{count} coordinates and {chart.dimension} numbers of the output",
            f"{link.fields * link.tokens} in all, as many as fields",
            "check free_rows, latents, directions and dimension",
        )


def _still(
    link: LinkFunction, chart: LevelSet, x: np.ndarray, u: np.ndarray, error: np.ndarray, Z: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """(branches, n): points that stay where they are when the coordinates are moved by what rounding may be."""
    still = np.ones(Z.shape[:2], dtype=bool)
    for _ in range(2):
        moved = u * (1 + np.maximum(ULP, error)[:, None] * rng.standard_normal(u.shape))
        other = points(link, chart, x * (1 + ULP * rng.standard_normal(x.shape)), moved)[0]
        with np.errstate(invalid="ignore"):
            still &= np.abs(other - Z).max(axis=(2, 3)) <= _MOVED * (1 + np.abs(Z).max(axis=(2, 3)))
    return still


def _along(
    link: LinkFunction, chart: LevelSet, x: np.ndarray, u: np.ndarray, sheets: Sheets, there: np.ndarray
) -> np.ndarray:
    """(branches, n): log vol(dZ/d(coordinates, directions)) by differences; NaN where the chart is nearly singular."""
    n, entries = x.shape[1], link.fields * link.tokens
    tangents, shape = [], (chart.branches, n, entries)
    converged = np.ones(there.shape, dtype=bool)
    for i in range(len(x)):
        step = np.zeros((len(x), 1))
        step[i] = _STEP
        at = [points(link, chart, x + by * step, u)[0].reshape(shape) for by, _ in _DIFFERENCES]
        with np.errstate(invalid="ignore"):
            own = sum(weight * Z for (_, weight), Z in zip(_DIFFERENCES, at, strict=True)) / _STEP
            plain = (at[0] - at[1]) / (2 * _STEP)
            converged &= np.abs(own - plain).max(axis=2) <= _CONVERGED * np.abs(own).max(axis=2)
        tangents.append(np.asarray(own))
    for i in range(chart.directions):
        along = np.zeros((chart.branches, n, link.fields, link.tokens))
        for b, vectors in enumerate(sheets.directions):
            along[b][:, list(chart.solved_rows)] = columns(vectors[i], n).T.reshape(n, -1, link.tokens)
        tangents.append(along.reshape(shape))
    out = np.full(there.shape, np.nan)
    if not tangents:
        out[there] = 0.0
    elif there.any():
        out[there] = log_volume(np.stack([t[there] for t in tangents], axis=1), len(tangents))
    return np.where(converged, out, np.nan)


def _log_weights(sheets: Sheets, chart: LevelSet, x: np.ndarray) -> np.ndarray:
    """(branches, n) of the measure against dx."""
    own = columns(sheets.log_weight, x.shape[1])
    total = np.broadcast_to(own, (chart.branches, x.shape[1])).copy()
    for kind, value in zip(chart.latents, x[len(x) - len(chart.latents) :], strict=True):
        total += _LOG_SLOPE[kind](value)
    return total


def _verdict(name: str, held: _Held) -> tuple[tuple[str, str], ...]:
    found = []
    if held.changes.size:
        change = float(np.nan_to_num(held.changes, nan=np.inf).max())
        if change > _SAME:
            raise InputError(
                f"chart {name!r}",
                f"fields whose output differs from the one asked for by {change:.1e}",
                "fields that give the output back",
                "check coordinates and solve against link.raw",
            )
        found.append(("$f(Z(x, u)) = y$ on every sheet", f"relative misfit at random points {_within(change)}"))
    if held.spreads.size:
        spread = float(held.spreads.max())
        if spread > _EVEN:
            raise InputError(
                f"chart {name!r}",
                f"a log-weight that leaves the co-area formula by {spread:.1e} from point to point",
                "log |det d(solved, directions)/d(u, flat coordinates)|, up to what depends on y alone",
                "check log_weight against the derivative of solve",
            )
        found.append(
            (
                r"$w = |dZ/dx|\,/\sqrt{\det J J^{\top}}$ up to a factor of $y$, $J = \partial u / \partial Z$, $u$ the "
                "coordinates of $y$",
                f"co-area formula by finite differences at random points, relative differences {_within(spread)}",
            )
        )
    return tuple(found)


def _within(value: float) -> str:
    """A bound in coarse steps: the last digits of rounding differ from machine to machine."""
    return f"below {next((bound for bound in (1e-12, 1e-9, 1e-6) if value < bound), 1e-3):.0e}"
