"""The points that a chain sums over behind its cut: a lattice of the shallower network's level set, sample by sample.

Which part of the level set matters depends on the fields before the cut.  A few of these, scouts, are spread over the
cavity; a lattice in a box, the same for all samples but for its scale, shows where any of them finds mass and how fast
sums over half its nodes go wrong.  From that follow the region and the step of the final lattice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smisym.base.sobol import Normals
from smisym.kernels.pairs import compiled_look, compiled_near, compiled_scouts
from smisym.posterior.sheeted import SIDE, Sheeted

# How often the box is drawn closer, while that takes more than a share of it away.
_ROUNDS, _CLOSER = 5, 0.5
# Scouts, by the dimension of the fields before the cut; more of these are for others to integrate.
SCOUTS = {1: 16, 2: 32, 3: 64}
# How often steps are chosen anew, by which factor at most, and what counts as good enough beside what is asked for.
_STEPS, _FINER, _COARSER, _NEAR = 4, 0.4, 1.6, 2.0
# How the logarithm of what a sum misses grows with the inverse step: between an exponential and a Gaussian.
_POWER = 1.5
# Columns beyond which one sample is left to others, and nodes of the box that they are chosen from.
MOST, _NODES = 16384, 2**18
# Numbers held at once in the largest array.
_MEMORY = 1_000_000


@dataclass(frozen=True)
class Rows:
    """Fields before the cut as the columns see them, n points of S samples.

    coefficients (S, n, F): of what the exponent is linear in.  square (S, n): what makes that a square, -rho^2/2, rho
    the distance of the late fields from their mean in standard deviations.  weight (S, n): the rest of the exponent.
    stretch (S, n): change of rho over that of the whitened mixed fields, at most.
    """

    coefficients: np.ndarray
    square: np.ndarray
    weight: np.ndarray
    stretch: np.ndarray

    @property
    def constant(self) -> np.ndarray:
        return self.square + self.weight

    def take(self, index: np.ndarray) -> Rows:
        return Rows(self.coefficients[index], self.square[index], self.weight[index], self.stretch[index])


@dataclass(frozen=True)
class Box:
    """Boxes (S, c) each in the coordinates of the level set."""

    low: np.ndarray
    high: np.ndarray

    def nodes(self, side: int) -> np.ndarray:
        """(S, c, n): a lattice with ``side`` nodes along each axis."""
        c = self.low.shape[1]
        unit = np.array(list(itertools.product(range(side), repeat=c))).T / (side - 1)
        return self.low[:, :, None] + (self.high - self.low)[:, :, None] * unit

    def step(self, side: int) -> np.ndarray:
        return np.asarray((self.high - self.low) / (side - 1))

    def volume(self) -> np.ndarray:
        return np.asarray((self.high - self.low).prod(axis=1))


@dataclass(frozen=True)
class Columns:
    """Columns of one sample: the late fields in mixed form (n, N), what the exponent is linear in (F, N), and their
    log-weights (N,); height (N,): the largest exponent that any scout has there.

    They are sorted by the parities of their places on the lattice, 2^c sets one after the other, which begin at
    ``starts`` (2^c + 1,).
    """

    fields: np.ndarray
    features: np.ndarray
    log_weight: np.ndarray
    starts: np.ndarray
    height: np.ndarray


def sublattices(dim: int) -> np.ndarray:
    """(A, 2^dim): signs of each of the A = 2^dim - 1 sublattices of half the density, by the parities of places."""
    bits = np.arange(2**dim)[:, None] >> np.arange(dim) & 1
    return np.asarray(1.0 - 2.0 * (bits[1:] @ bits.T % 2))


def falling(half: np.ndarray) -> np.ndarray:
    """What a sum over all nodes misses, from what half of them miss, relative to the sum: see
    :func:`smisym.integrate.cells.sublattice_error`.

    The power is less than there, as rows that no scout stands for may be narrower than the step: three layers of skip 3
    missed up to 2.5 times what the power 7/4 says, and at most 0.6 of what this one does (96 posteriors).
    """
    return np.asarray(np.minimum(2 * half**1.5, half))


def missed_by(mass: np.ndarray) -> np.ndarray:
    """What sums (..., A) over nodes miss, relative to the sum of all, from sums over the nodes of each parity, mass
    (..., R, 2^c).

    Row by row of R, as one may be narrower than the others, in each of the A directions.
    """
    signs = sublattices(mass.shape[-1].bit_length() - 1)
    total = mass.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        half = np.abs(mass @ signs.T) / total[..., None]
        missed = falling(np.nan_to_num(half, nan=0.0)) * total[..., None]
        return np.asarray(missed.sum(axis=-2) / total.sum(axis=-1)[..., None])


def set_sums(weights: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums (..., sets) of weights (..., N) over sets of columns that begin at ``starts``."""
    return np.stack([weights[..., a:b].sum(axis=-1) for a, b in itertools.pairwise(starts)], axis=-1)


Features = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(S,) samples and mixed late fields (S, n, N) -> what the exponent is linear in, (S, F, N)."""


def scouts(dim: int) -> np.ndarray:
    """(R, dim): fields before the cut, whitened, spread over the cavity."""
    return 1.2 * Normals(dim, 0).draw(SCOUTS[dim])


def find_columns(
    sheeted: Sheeted, rows: Rows, box: Box, features: Features, depth: float, error: float
) -> list[Columns | None]:
    """Columns of each sample, None where they would be too many; ``depth``: weights below exp(-depth) of the largest
    are left out, ``error``: of the sum over columns."""
    S = len(box.low)
    found: list[Columns | None] = [None] * S
    left = np.arange(S)
    scouted = rows.square.shape[1] * sheeted.level_set.branches * SIDE[sheeted.dim] ** sheeted.dim
    per = max(1, _MEMORY // scouted)
    for turn in range(_ROUNDS):
        again: list[np.ndarray] = []
        low, high = box.low.copy(), box.high.copy()
        for i in range(0, len(left), per):
            index = left[i : i + per]
            mine = Box(box.low[index], box.high[index])
            seen = _look(sheeted, index, rows.take(index), mine, features, depth)
            low[index], high[index] = seen.box.low, seen.box.high
            closer = seen.box.volume() < _CLOSER * mine.volume()
            if turn == _ROUNDS - 1:
                closer[:] = False
            again.append(index[closer])
            for k in np.flatnonzero(~closer):
                own = int(index[k])
                found[own] = _Final(sheeted, own, rows.take(np.array([own])), features, seen, int(k)).columns(error)
        left = np.concatenate(again)
        box = Box(low, high)
        if not len(left):
            break
    return found


@dataclass(frozen=True)
class _Seen:
    """What the scouts saw of S samples: kept (S, nodes) near which there may be mass, what sums over the nodes miss
    (S, A), the lattice's steps (S, c) and origin, and the box around what is kept."""

    kept: np.ndarray
    missed: np.ndarray
    step: np.ndarray
    origin: np.ndarray
    box: Box


@dataclass(frozen=True)
class _Final:
    """The search for the final lattice of one sample, the k-th of what was seen."""

    sheeted: Sheeted
    sample: int
    rows: Rows
    features: Features
    seen: _Seen
    k: int

    def columns(self, error: float) -> Columns | None:
        """None where it is too large."""
        step, missed, found = self.seen.step[self.k], self.seen.missed[self.k], None
        for _ in range(_STEPS):
            step = step * _factor(missed, error, self.sheeted.dim)
            tried = self._at(step)
            if tried is None:
                return None
            found, missed = tried
            if (missed <= _NEAR * error).all():
                break
        return found

    def _at(self, step: np.ndarray) -> tuple[Columns, np.ndarray] | None:
        """The lattice with this step, and what it misses; None where it is too large."""
        seen, k, c = self.seen, self.k, self.sheeted.dim
        low = seen.box.low[k]
        counts = np.ceil((seen.box.high[k] - low) / step) + 1
        if not np.isfinite(counts).all() or np.prod(counts) > _NODES:
            return None
        nodes, sets = self._nodes(low, step, counts.astype(int))
        if nodes.shape[1] > MOST:
            return None
        fields, weight = self.sheeted.of_one(self.sample, nodes)
        # By parity first, then sheet by sheet.
        B = self.sheeted.level_set.branches
        parity = np.tile(np.repeat(np.arange(2**c), sets), B)
        order = np.argsort(parity, kind="stable")
        alive = np.isfinite(weight[order])
        if not alive.all():
            order = order[alive]
        starts = np.r_[0, np.cumsum(np.bincount(parity[order], minlength=2**c))]
        fields = np.ascontiguousarray(fields[:, order])
        features = self.features(np.array([self.sample]), fields[None])[0]
        return self._scouted(fields, features, weight[order] + np.log(step).sum(), starts)

    def _nodes(self, low: np.ndarray, step: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Nodes (c, N) near which there may be mass, by the parities of their places, and how many of each."""
        seen, k, c = self.seen, self.k, self.sheeted.dim
        side = SIDE[c]
        run = compiled_near()
        if run is not None:
            nodes, sets = np.empty((c, MOST + 1)), np.empty(2**c, dtype=int)
            found = run(low, step, counts, seen.origin[k], seen.step[k], seen.kept[k], side, nodes, sets)
            return np.ascontiguousarray(nodes[:, :found]), sets
        grid = np.stack(np.meshgrid(*[np.arange(n) for n in counts], indexing="ij")).reshape(c, -1)
        nodes = low[:, None] + grid * step[:, None]
        near = np.clip(np.rint((nodes - seen.origin[k][:, None]) / seen.step[k][:, None]).astype(int), 0, side - 1)
        mine = np.flatnonzero(seen.kept[k].reshape((side,) * c)[tuple(near)])
        parity = 2 ** np.arange(c) @ (grid[:, mine] % 2)
        order = np.argsort(parity, kind="stable")
        return nodes[:, mine[order]], np.bincount(parity, minlength=2**c)

    def _scouted(
        self, fields: np.ndarray, features: np.ndarray, log_weight: np.ndarray, starts: np.ndarray
    ) -> tuple[Columns, np.ndarray]:
        """Columns, and what sums over them miss for the scouts, (A,)."""
        rows, R = self.rows, self.rows.square.shape[1]
        if not len(log_weight):
            return Columns(fields, features, log_weight, starts, log_weight), np.zeros(len(self.seen.missed[0]))
        top, mass, height = np.empty(R), np.empty((R, len(starts) - 1)), np.empty(len(log_weight))
        run = compiled_scouts(len(features))
        if run is not None:
            run(rows.coefficients[0], rows.constant[0], features, log_weight, starts, top, mass, height)
        else:
            exponent = rows.coefficients[0] @ features
            exponent += log_weight
            exponent += rows.constant[0][:, None]
            top, height = exponent.max(axis=1), exponent.max(axis=0)
            exponent -= np.where(np.isfinite(top), top, 0.0)[:, None]
            mass = set_sums(np.exp(exponent, out=exponent), starts)
        missed = missed_by(mass * np.exp(top - top.max())[:, None])
        return Columns(fields, features, log_weight, starts, height), missed


def _factor(missed: np.ndarray, error: float, dim: int) -> np.ndarray:
    """By which the step changes along each axis, (c,), for sums that miss that much in each direction (A,)."""
    bits = np.arange(1, 2**dim)[:, None] >> np.arange(dim) & 1
    with np.errstate(divide="ignore"):
        ratio = np.log(np.clip(missed, 1e-15, 0.9)) / np.log(error)
    factor = np.clip(ratio ** (1 / _POWER), _FINER, _COARSER)
    return np.array([factor[bits[:, a] == 1].min() for a in range(dim)])


def _look(sheeted: Sheeted, index: np.ndarray, rows: Rows, box: Box, features: Features, depth: float) -> _Seen:
    side, c, S = SIDE[sheeted.dim], sheeted.dim, len(index)
    fields, weight = sheeted.at(index, box.nodes(side))
    moved, most = sheeted.reach(index, fields, weight)
    unit = np.array(list(itertools.product(range(side), repeat=c)))
    parity = unit % 2 @ 2 ** np.arange(c)
    kept, mass = _scanned(rows, features(index, fields), weight, moved, most, parity, depth)
    missed = np.nan_to_num(missed_by(mass), nan=1.0)
    step = box.step(side)
    low, high = np.empty((S, c)), np.empty((S, c))
    for a in range(c):
        first, last = np.where(kept, unit[:, a], side).min(axis=1), np.where(kept, unit[:, a], -1).max(axis=1)
        # Half a step beyond, which is what a node answers for.
        low[:, a] = box.low[:, a] + (first - 0.5) * step[:, a]
        high[:, a] = box.low[:, a] + (last + 0.5) * step[:, a]
    return _Seen(kept, missed, step, box.low, Box(low, high))


def _scanned(
    rows: Rows,
    features: np.ndarray,
    weight: np.ndarray,
    moved: np.ndarray,
    most: np.ndarray,
    parity: np.ndarray,
    depth: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (S, n) near which there may be mass, and sums of weights by parity for each scout, (S, R, 2^c)."""
    S, R = rows.square.shape
    run = compiled_look(features.shape[1])
    if run is not None:
        kept, mass = np.empty((S, len(parity)), dtype=bool), np.empty((S, R, int(parity.max()) + 1))
        given = rows.coefficients, rows.square, rows.weight, rows.stretch, features, weight, moved, most
        run(*map(np.ascontiguousarray, given), parity, depth, kept, mass)
        return kept, mass
    exponent = rows.coefficients @ features
    exponent += rows.square[:, :, None]
    square = -2.0 * exponent
    exponent += weight[:, None]
    exponent += rows.weight[:, :, None]
    top = exponent.max(axis=(1, 2))
    top = np.where(np.isfinite(top), top, 0.0)[:, None, None]
    # Distances fall by the stretch times the move at most: where may the exponent come within depth of the largest?
    allowed = np.sqrt(np.maximum(2 * (most[:, None] + rows.weight[:, :, None] - top + depth), 0.0))
    allowed += rows.stretch[:, :, None] * moved[:, None]
    kept = (square < allowed * allowed).any(axis=1).reshape(S, -1, len(parity)).any(axis=1)
    exponent -= top
    w = np.exp(exponent, out=exponent).reshape(S, R, -1, len(parity)).sum(axis=2)
    return kept, np.stack([w[..., parity == k].sum(axis=-1) for k in range(int(parity.max()) + 1)], axis=-1)
