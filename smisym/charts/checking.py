"""A chart held against the link alone: does it give the output back, hold every field, and measure the surface?

The measure on {Z : f(Z) = y} must be the surface measure over sqrt(pdet J J^T), J = df/dZ, up to a factor that depends
on y alone (co-area formula): log_weight - log vol(dZ/d(coordinates)) + log sqrt(pdet J J^T) is the same all over it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import least_squares

from smisym.charts.base import FLAT, LINE, SCALE, Arrays, LevelSet, Sheets
from smisym.errors import InputError
from smisym.link import LinkFunction

# Outputs, and points of each of their level sets; spread of the coordinates there: small, so that the smoothed turn of
# an angle counts every point once.
_OUTPUTS, _POINTS, _SPREAD = 3, 4, 0.2
# Step and weights of derivatives of fourth order, and what may be wrong: with the output (relative), and with the
# log-measure.
_STEP, _SAME, _EVEN = 2e-4, 1e-5, 1e-3
_DIFFERENCES = ((1.0, 2 / 3), (-1.0, -2 / 3), (2.0, -1 / 12), (-2.0, 1 / 12))
# Random fields that must lie on a sheet, starts of the search for each, and gaps that count as infinite there.
_TRUTHS, _STARTS, _HUGE = 8, 32, 1e6
# Left out: points where chart or surface is bent so much that differences tell little, and larger fields.
_COND, _FAR = 1e4, 1e3
_LATENT: dict[str, Callable[[np.ndarray], np.ndarray]] = {LINE: np.sinh, SCALE: np.exp, FLAT: np.asarray}
_LOG_SLOPE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    LINE: lambda v: np.log(np.cosh(v)),
    SCALE: lambda v: v,
    FLAT: lambda v: 0 * v,
}


def check_chart(name: str, link: LinkFunction, chart: LevelSet, *, whole: bool) -> tuple[tuple[str, str], ...]:
    """(statement, how) of what was verified of a chart at random points; InputError where it is wrong.

    whole: also whether random fields lie on some sheet, which takes a search (seconds with many branches).
    """
    rng = np.random.default_rng(7)
    changes, spreads = [], []
    for _ in range(_OUTPUTS):
        truth = rng.standard_normal((1, link.fields, link.tokens))
        x = _SPREAD * rng.standard_normal((len(chart.free_rows) * link.tokens + len(chart.latents), _POINTS))
        try:
            with np.errstate(all="ignore"):
                u = chart.coordinates(link.observe(truth)).values
        except InputError:
            continue  # an output of which rounding leaves too little, which the chart says
        points, sheets = _points(link, chart, x, u)
        log_weight = _log_weights(sheets, chart, x)
        there = np.isfinite(log_weight) & np.isfinite(points).all(axis=(2, 3))
        for b, j in np.argwhere(there):
            there[b, j] = _steady(link, chart, points[b, j])
        if there.any():
            raw = link.raw(truth)
            changes.append(float((np.abs(link.raw(points[there]) - raw) / (1 + np.abs(raw))).max()))
        if not chart.shared:
            spreads.append(_spread(link, chart, x, u, points, sheets, log_weight, there))
    found = _verdict(name, changes, [spread for spread in spreads if spread is not None])
    return found + (_reached(name, link, chart) if whole else ())


def _reached(name: str, link: LinkFunction, chart: LevelSet) -> tuple[tuple[str, str], ...]:
    """Whether random fields lie on a sheet of the chart of their output: a missing one would cut the level set."""
    truths = np.random.default_rng(11).standard_normal((_TRUTHS, link.fields, link.tokens))
    met = 0
    for Z in truths:
        try:
            with np.errstate(all="ignore"):
                u = chart.coordinates(link.observe(Z[None])).values
        except InputError:
            continue  # an output of which rounding leaves too little, which the chart says
        if chart.dimension and not _steady(link, chart, Z):
            continue
        if not _is_reached(link, chart, Z, u):
            raise InputError(
                f"chart {name!r}",
                f"no sheet that holds the fields {Z.round(3).tolist()}, from which the output was made",
                "every point of the level set on one of the sheets",
                "add the branch of solve that is missing, or count the sheets in branches",
            )
        met += 1
    return (("every $Z$ lies on a sheet of the chart of its output", f"{met} random fields"),) if met else ()


def _is_reached(link: LinkFunction, chart: LevelSet, Z: np.ndarray, u: np.ndarray) -> bool:
    """Least squares from Z to the sheets, over the latent coordinates and along the directions, from several starts."""
    latents = len(chart.latents)
    free = Z[list(chart.free_rows)].reshape(-1, 1)
    target = Z[list(chart.solved_rows)].ravel()
    rng = np.random.default_rng(13)

    def gaps(latent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(branches, n) of what is missing to Z on each sheet, and the log-weights (branches,) there."""
        points, sheets = _points(link, chart, np.concatenate([free, latent[:, None]]), u)
        missing = points[:, 0, list(chart.solved_rows)].reshape(chart.branches, -1) - target
        for b in range(chart.branches if chart.directions else 0):
            along = np.array([_columns(d, 1).ravel() for d in sheets.directions[b]]).T
            missing[b] -= along @ np.linalg.lstsq(along, missing[b], rcond=None)[0]
        return missing, _log_weights(sheets, chart, np.concatenate([free, latent[:, None]]))[:, 0]

    def there(latent: np.ndarray) -> bool:
        missing, weight = gaps(latent)
        with np.errstate(invalid="ignore"):
            return bool(((np.abs(missing).max(axis=1) < _SAME * (1 + np.abs(Z).max())) & (weight > -np.inf)).any())

    def search(b: int, start: np.ndarray, loss: str) -> np.ndarray:
        found = least_squares(
            lambda x: np.clip(np.nan_to_num(gaps(x)[0][b], nan=_HUGE), -_HUGE, _HUGE), start, loss=loss
        )
        return np.asarray(found.x)

    for number in range(_STARTS if latents else 1):
        start = rng.standard_normal(latents)
        if there(start):
            return True
        for b in range(chart.branches if latents else 0):
            end = start
            if number % 2:
                # Where one field is a wild function of the coordinates, the others must not be drowned by it.
                end = search(b, start, "cauchy")
            if there(search(b, end, "linear")):
                return True
    return False


def _steady(link: LinkFunction, chart: LevelSet, Z: np.ndarray) -> bool:
    """Whether rounding leaves the output and the fields alone: near singular mixing and far out it does not."""
    if not chart.dimension:
        return True
    J = _jacobian(link, Z)
    if np.abs(Z).max() > _FAR or not np.isfinite(J).all():
        return False
    normal = np.linalg.svd(J, compute_uv=False)[: chart.dimension]
    return bool(normal[0] < _COND * normal[-1])


def _verdict(name: str, changes: list[float], spreads: list[float]) -> tuple[tuple[str, str], ...]:
    found = []
    if changes:
        if max(changes) > _SAME:
            raise InputError(
                f"chart {name!r}",
                f"fields whose output differs from the one asked for by {max(changes):.1e}",
                "fields that give the output back",
                "check coordinates and solve against link.raw",
            )
        found.append(("$f(Z(x, u)) = y$ on every branch", f"relative misfit at random points {_within(max(changes))}"))
    if spreads:
        if max(spreads) > _EVEN:
            raise InputError(
                f"chart {name!r}",
                f"a log-weight that leaves the co-area formula by {max(spreads):.1e} from point to point",
                "log |det d(solved, directions)/d(u, flat coordinates)|, up to what depends on y alone",
                "check log_weight against the derivative of solve",
            )
        found.append(
            (
                r"$w = |dZ/dx|\,/\sqrt{\det J J^{\top}}$ up to a factor of $y$, $J = \partial f / \partial Z$",
                f"co-area formula by finite differences at random points, relative differences {_within(max(spreads))}",
            )
        )
    return tuple(found)


def _within(value: float) -> str:
    """A bound in coarse steps: the last digits of rounding differ from machine to machine."""
    return f"below {next((bound for bound in (1e-12, 1e-9, 1e-6) if value < bound), 1e-3):.0e}"


def _points(link: LinkFunction, chart: LevelSet, x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, Sheets]:
    """Fields (branches, n, P, T) at coordinates x (d, n), and the sheets they come from."""
    T, free = link.tokens, len(chart.free_rows) * link.tokens
    latent = [np.asarray(_LATENT[k](v)) for k, v in zip(chart.latents, x[free:], strict=True)]
    with np.errstate(all="ignore"):
        sheets = chart.solve(list(x[:free]), latent, list(u.T))
    n = x.shape[1]
    out = np.empty((chart.branches, link.fields, T, n))
    out[:, list(chart.free_rows)] = x[:free].reshape(len(chart.free_rows), T, n)
    for b, solved in enumerate(sheets.solved):
        out[b, list(chart.solved_rows)] = _columns(solved, n).reshape(len(chart.solved_rows), T, n)
    return np.moveaxis(out, 3, 1), sheets


def _columns(entries: Arrays, count: int) -> np.ndarray:
    return np.stack([np.broadcast_to(e, (count,)) for e in entries])


def _log_weights(sheets: Sheets, chart: LevelSet, x: np.ndarray) -> np.ndarray:
    """(branches, n) of the measure against dx."""
    own = _columns(sheets.log_weight, x.shape[1])
    total = np.broadcast_to(own, (chart.branches, x.shape[1])).copy()
    for kind, value in zip(chart.latents, x[len(x) - len(chart.latents) :], strict=True):
        total += _LOG_SLOPE[kind](value)
    return total


def _spread(
    link: LinkFunction,
    chart: LevelSet,
    x: np.ndarray,
    u: np.ndarray,
    points: np.ndarray,
    sheets: Sheets,
    log_weight: np.ndarray,
    there: np.ndarray,
) -> float | None:
    """How much the log-measure over that of the surface varies over the points of one level set."""
    tangents = []
    for i in range(len(x)):
        step = np.zeros_like(x)
        step[i] = _STEP
        total = sum(weight * _points(link, chart, x + by * step, u)[0] for by, weight in _DIFFERENCES)
        tangents.append(np.asarray(total) / _STEP)
    values = []
    for b, j in np.argwhere(there):
        frame = [t[b, j].ravel() for t in tangents]
        for direction in sheets.directions[b] if chart.directions else []:
            along = np.zeros((link.fields, link.tokens))
            along[list(chart.solved_rows)] = _columns(direction, x.shape[1])[:, j].reshape(-1, link.tokens)
            frame.append(along.ravel())
        normal = np.ones(1)
        if chart.dimension:
            normal = np.linalg.svd(_jacobian(link, points[b, j]), compute_uv=False)[: chart.dimension]
        along_set = np.linalg.svd(np.array(frame), compute_uv=False) if frame else np.ones(1)
        if len(frame) != link.fields * link.tokens - chart.dimension:
            raise InputError(
                "chart",
                f"{len(frame)} coordinates and {chart.dimension} numbers of the output",
                f"{link.fields * link.tokens} in all, as many as fields",
                "check free_rows, latents, directions and dimension",
            )
        if np.isfinite(along_set).all() and max(along_set[0] / along_set[-1], normal[0] / normal[-1]) < _COND:
            values.append(log_weight[b, j] - np.log(along_set).sum() + np.log(normal).sum())
    return float(np.ptp(values)) if len(values) > 1 else None


def _jacobian(link: LinkFunction, Z: np.ndarray) -> np.ndarray:
    """df/dZ (n, P T) of the exact output by complex steps."""
    count = Z.size
    shifted = np.repeat(Z[None].astype(complex), count, axis=0).reshape(count, -1)
    shifted[np.arange(count), np.arange(count)] += 1e-30j
    return np.asarray(link.raw(shifted.reshape(count, *Z.shape)).imag.reshape(count, -1).T / 1e-30)
