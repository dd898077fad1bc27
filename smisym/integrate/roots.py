"""All solutions of f(Z) = y in some of the entries of Z, the others given: where no closed chart is known.

One equation in one unknown is scanned along a line, many unknowns are sought from many starts.  Derivatives are
complex steps, exact to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smisym.base.bracketing import bracketed
from smisym.base.complex_step import STEP, Function, jacobian
from smisym.base.levenberg import Rule, Tried, descend

# Largest misfit of a solution, relative to the size of the output; distance at which two are the same one.
ON_SURFACE, SAME = 1e-9, 1e-6
# Points of a scan, from - to + this many standard deviations, dense in the middle.
_SCAN, _REACH = 97, 30.0
# Standard deviations beyond which a solution carries no mass beside nearer ones.
_CARRIES = 8.0
# Steps of a search, and failures running after which it is given up.
_ITERATIONS, _FAILED = 60, 8
# The first step is damped by as much as the mean eigenvalue: 56 % of starts at random arrive, 50 % at a hundredth of it
# (two layers with sequence output on three tokens), and of 240 outputs none keeps a solution hidden from 192 starts,
# where three did.  Ten times as much gains nothing more.
_SEARCH = Rule(first=1.0)
# How far beside a root it is looked for a jump, relative, and how many times steeper than at the root it may be there.
_ASIDE, _STEEPER = 1e-9, 10.0
# Equations solved together; lines scanned together: what a search costs beside arithmetic is paid once for all
# (thirty posteriors of one equation in two fields: 11.3 s with 168 lines, 3.3 s with 2702, 2.8 s with 10808).
_CHUNK, _LINES = 16384, 2048


@dataclass(frozen=True)
class Roots:
    """Solutions of a batch of N problems, at most B each.

    values (N, B, K): the unknowns, 0 where there are fewer.  found (N, B): which there are.  hits (N, B): from how many
    starts each was reached (0 for a scan).  lost (N,): whether there were more than B.
    """

    values: np.ndarray
    found: np.ndarray
    hits: np.ndarray
    lost: np.ndarray


def log_volume(J: np.ndarray) -> np.ndarray:
    """log sqrt(det J^T J) of (..., M, K) with M >= K; -inf where the rank is lower."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.linalg.svd(np.where(np.isfinite(J), J, 0.0), compute_uv=False))
    return np.asarray(logs.sum(axis=-1))


def newton(link: Function, y: np.ndarray, Z: np.ndarray, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Levenberg-Marquardt for f(Z) = y (N, M) in the unknown entries, from Z (N, n); returns Z and which were met."""
    Z, done = Z.copy(), np.zeros(len(Z), dtype=bool)
    for i in range(0, len(Z), _CHUNK):
        part = slice(i, i + _CHUNK)
        Z[part], done[part] = _newton(link, y[part], Z[part], unknown)
    return Z, done


def _newton(link: Function, y: np.ndarray, Z: np.ndarray, unknown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    done, scale = np.zeros(len(Z), dtype=bool), 1 + np.abs(y).max(axis=1)

    def at(which: np.ndarray, x: np.ndarray) -> np.ndarray:
        full = Z[which]
        full[:, unknown] = x
        return full

    def values(which: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, J = jacobian(link, at(which, x), unknown)
        return value - y[which], J

    def ends(tried: Tried) -> np.ndarray:
        misfit = np.abs(tried.residuals).max(axis=1)
        met = misfit <= ON_SURFACE * scale[tried.which]
        done[tried.which[met]] = True
        # Once met, one more step takes it to rounding: quadratic convergence.
        finished = met & ((misfit <= 1e-14 * scale[tried.which]) | (tried.failed > 0))
        return finished | (tried.failed >= _FAILED) | ~tried.moved

    found = descend(values, Z[:, unknown], ends, steps=_ITERATIONS, rule=_SEARCH)[0]
    return at(np.arange(len(Z)), found), done


def distinct(values: np.ndarray, met: np.ndarray, slots: int) -> Roots:
    """The different ones among values (N, m, K), where ``met`` (N, m)."""
    N, m, K = values.shape
    kept, found = np.zeros((N, slots, K)), np.zeros((N, slots), dtype=bool)
    hits, lost = np.zeros((N, slots), dtype=int), np.zeros(N, dtype=bool)
    rows = np.arange(N)
    for i in range(m):
        v = values[:, i]
        near = np.abs(kept - v[:, None]).max(axis=2) <= SAME * (1 + np.abs(v).max(axis=1))[:, None]
        near &= found
        known = near.any(axis=1)
        again = met[:, i] & known
        hits[rows[again], near[again].argmax(axis=1)] += 1
        new = met[:, i] & ~known
        count = found.sum(axis=1)
        lost |= new & (count >= slots)
        put = new & (count < slots)
        kept[rows[put], count[put]] = v[put]
        found[rows[put], count[put]] = True
        hits[rows[put], count[put]] = 1
    return Roots(kept, found, hits, lost)


def from_starts(link: Function, y: np.ndarray, Z: np.ndarray, unknown: np.ndarray, starts: np.ndarray) -> Roots:
    """Solutions of N problems from starts (N, m, K) of the unknowns; Z (N, n) holds the other entries."""
    N, m, K = starts.shape
    begin = np.repeat(Z, m, axis=0)
    begin[:, unknown] = starts.reshape(N * m, K)
    end, met = newton(link, np.repeat(y, m, axis=0), begin, unknown)
    return distinct(end[:, unknown].reshape(N, m, K), met.reshape(N, m), m)


def along_line(
    link: Function, y: np.ndarray, Z: np.ndarray, unknown: int, mean: np.ndarray, scale: np.ndarray, slots: int
) -> Roots:
    """Solutions of one equation (y (N, 1)) in one entry, about ``mean`` (N,) in units of ``scale`` (N,).

    Cells of the scan where f - y changes sign hold a solution, and those where its slope turns back before it does may
    hold two: the turning point is found and tells.
    """
    grid = _REACH * np.sinh(4.1 * np.linspace(-1, 1, _SCAN)) / np.sinh(4.1)
    parts = []
    for i in range(0, len(Z), _LINES):
        p = slice(i, i + _LINES)
        parts.append(_scan(link, y[p, 0], Z[p], unknown, mean[p], scale[p], grid, slots))
    return Roots(*(np.concatenate([getattr(r, name) for r in parts]) for name in ("values", "found", "hits", "lost")))


# Many parameters: arrays of one search, block by block.
def _scan(
    link: Function,
    y: np.ndarray,
    Z: np.ndarray,
    unknown: int,
    mean: np.ndarray,
    scale: np.ndarray,
    grid: np.ndarray,
    slots: int,
) -> Roots:
    v = mean[:, None] + scale[:, None] * grid
    N, G = v.shape

    def evaluate(owner: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f - y and its slope for problems ``owner`` at values ``at`` of the unknown."""
        full = Z[owner].astype(complex)
        full[:, unknown] = at + 1j * STEP
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            out = link(full)[:, 0]
        return out.real - y[owner], out.imag / STEP

    def away(at: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """f - y alone, by real numbers: beside a pole, a complex one has a real part of nought."""
        full = Z[owner]
        full[:, unknown] = at
        with np.errstate(all="ignore"):
            return np.asarray(link(full)[:, 0].real - y[owner])

    f, slope = (a.reshape(N, G) for a in evaluate(np.repeat(np.arange(N), G), v.ravel()))
    crossing = f[:, :-1] * f[:, 1:] <= 0
    turning = ~crossing & (f[:, :-1] * slope[:, :-1] < 0) & (f[:, 1:] * slope[:, 1:] > 0)
    owner, cell = np.nonzero(crossing)
    low, high = v[owner, cell], v[owner, cell + 1]
    turned, where = np.nonzero(turning)
    if turned.size:
        a, b = v[turned, where], v[turned, where + 1]
        at = bracketed(lambda x, own: evaluate(own, x)[1], a, b, turned)
        two = away(at, turned) * f[turned, where] <= 0
        owner = np.concatenate([owner, turned[two], turned[two]])
        low = np.concatenate([low, a[two], at[two]])
        high = np.concatenate([high, at[two], b[two]])
    if owner.size:
        root = bracketed(away, low, high, owner)
        # A jump of the link is no solution, not even where it takes the value y in the middle of it.
        with np.errstate(all="ignore"):
            enough = ON_SURFACE * (1 + np.abs(y[owner]))
            aside = _ASIDE * (scale[owner] + np.abs(root))
            beside = np.maximum(*(np.abs(away(root + side * aside, owner)) for side in (1, -1)))
            steady = beside <= enough + _STEEPER * np.abs(evaluate(owner, root)[1]) * aside
            met = (np.abs(away(root, owner)) <= enough) & steady
        owner, root = owner[met], root[met]
    else:
        root = low
    return _slotted(owner, root, np.abs(root - mean[owner]) / scale[owner], N, slots)


def _slotted(owner: np.ndarray, root: np.ndarray, away: np.ndarray, count: int, slots: int) -> Roots:
    """Solutions in the slots of their problems, those nearest to the mean first (``away``, in standard deviations).

    Those met twice, at the edge of two cells, count once; more than there are slots are lost unless they are so far
    away that they carry no mass.
    """
    order = np.lexsort((root, owner))
    owner, root, away = owner[order], root[order], away[order]
    if owner.size:
        fresh = np.r_[True, (owner[1:] != owner[:-1]) | (np.diff(root) > 1e-12 * (1 + np.abs(root[1:])))]
        owner, root, away = owner[fresh], root[fresh], away[fresh]
        order = np.lexsort((away, owner))
        owner, root, away = owner[order], root[order], away[order]
    number = np.arange(len(owner)) - np.searchsorted(owner, owner)
    inside = number < slots
    values, found = np.zeros((count, slots, 1)), np.zeros((count, slots), dtype=bool)
    values[owner[inside], number[inside], 0] = root[inside]
    found[owner[inside], number[inside]] = True
    lost = np.zeros(count, dtype=bool)
    lost[owner[~inside & (away < _CARRIES)]] = True
    return Roots(values, found, np.zeros((count, slots), dtype=int), lost)
