"""Outputs that leave finitely many fields, found numerically.

    p(y) = sum_Z N(Z; omega, V) / sqrt(det J^T J)

over all solutions of f(Z) = y, J the derivative of f there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields

import numpy as np

from smisym.base.complex_step import jacobian
from smisym.base.remembered import Remembered
from smisym.base.sobol import Normals
from smisym.integrate.modes import Doubt, Values
from smisym.integrate.roots import SAME, Roots, distinct, newton
from smisym.link.linking import Observation
from smisym.posterior.base import Block, Cavity, Kind, Whitening, log_whitening, whiten
from smisym.posterior.surface import Surface

# Finite sets: starts a round, rounds at least and at most, and from how many starts every solution must have been
# reached.
_ROUND, _LEAST_ROUNDS, _MOST_ROUNDS, _HITS = 64, 3, 16, 5
# Share of the starts of an output that end where no other does, after the rounds at least, from which on it is flat or
# has more solutions than can be told apart, and how many starts are kept of it.
_ALONE, _FEW = 0.9, 8
_SPREADS = (1.2, 0.7, 2.0)
# Finite sets remembered, in batches.
_REMEMBERED = 64


@dataclass(frozen=True)
class Solutions:
    """All fields that give each output, in slots that not all outputs fill.

    values (S, slots, n).  log_weight (S, slots): -inf in an empty slot.  rare (S, slots): 1 where a solution was
    reached too seldom to believe that there are no others like it, else 0.  doubt (S,): zero where the set counts as
    complete, else one over the number of starts that ended on it.  relative_error (S,): what rounding of y may do to
    them.
    """

    values: np.ndarray
    log_weight: np.ndarray
    rare: np.ndarray
    doubt: np.ndarray
    relative_error: np.ndarray

    def __len__(self) -> int:
        return len(self.doubt)

    def take(self, index: slice | np.ndarray) -> Solutions:
        """The same for some of the samples."""
        return Solutions(*(getattr(self, f.name)[index] for f in fields(self)))


class OnPoints(Kind):
    """Outputs that leave finitely many fields: a sum over all solutions, with weight 1 / sqrt(det J^T J).

    Every solution must be reached from several starts before a set counts as complete; images under the flips that
    leave the link unchanged belong to it.
    """

    smooth, sought = True, True

    def __init__(self, surface: Surface, signs: np.ndarray) -> None:
        self.surface, self.signs = surface, signs
        self.order = tuple(range(surface.link.fields))
        self.dim = 0
        self._known = Remembered[Solutions](_REMEMBERED)

    def read(self, observation: Observation) -> Solutions:
        y = self.surface.seen(observation)
        return self._known.get(hashlib.sha256(y.tobytes()).digest(), lambda: self._solve(y))

    def at(self, observed: Solutions, omega: np.ndarray, V: np.ndarray) -> PointPosterior:
        return PointPosterior(observed, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        where = (
            "no rule found a closed chart; each output leaves finitely many fields, found numerically from many starts "
            "until every solution was reached several times"
        )
        return where, "a finite sum over them, with weight 1 / sqrt(det J^T J)"

    def _solve(self, y: np.ndarray) -> Solutions:
        n, P, S = self.surface.entries, self.surface.link.fields, len(y)
        if not S:
            return Solutions(np.empty((0, 1, n)), *np.empty((2, 0, 1)), *np.empty((2, 0)))
        classes, doubt = self._classes(y)
        slots, images = classes.found.shape[1], len(self.signs)
        Z = classes.values.reshape(S, slots, P, -1)
        everywhere = (self.signs[None, None, :, :, None] * Z[:, :, None]).reshape(S, slots * images, n)
        found = np.repeat(classes.found, images, axis=1)
        # A solution that a flip leaves where it is counts once.
        once = distinct(everywhere, found, slots * images)
        seldom = classes.found & (classes.hits < _HITS)
        rare = distinct(everywhere, np.repeat(seldom, images, axis=1), slots * images)
        J = jacobian(self.surface, once.values.reshape(-1, n), np.arange(n))[1]
        values = np.linalg.svd(np.where(np.isfinite(J), J, 0.0), compute_uv=False).reshape(S, slots * images, n)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(once.found, -np.log(values).sum(axis=2), -np.inf)
            rounding = np.where(once.found, np.finfo(float).eps / values[..., -1], 0.0).max(axis=1)
        doubted = _among(once, rare)
        used = max(1, int(once.found.sum(axis=1).max()))
        return Solutions(once.values[:, :used], weight[:, :used], doubted[:, :used], doubt, rounding)

    def _classes(self, y: np.ndarray) -> tuple[Roots, np.ndarray]:
        """Solutions up to flips, and the doubt that they are all."""
        n, S = self.surface.entries, len(y)
        everything = np.arange(n)
        normals = Normals(n, 0)
        values, met = np.empty((S, 0, n)), np.empty((S, 0), dtype=bool)
        complete, flat = np.zeros(S, dtype=bool), np.zeros(S, dtype=bool)
        for number in range(_MOST_ROUNDS):
            rest = np.flatnonzero(~complete & ~flat)
            starts = _SPREADS[number % len(_SPREADS)] * normals.draw(_ROUND)
            begin = np.broadcast_to(starts, (len(rest), _ROUND, n)).reshape(-1, n)
            end, good = newton(self.surface, np.repeat(y[rest], _ROUND, axis=0), begin, everything)
            new_values, new_met = np.zeros((S, _ROUND, n)), np.zeros((S, _ROUND), dtype=bool)
            new_values[rest] = self._canonical(end).reshape(-1, _ROUND, n)
            new_met[rest] = good.reshape(-1, _ROUND)
            values, met = np.concatenate([values, new_values], axis=1), np.concatenate([met, new_met], axis=1)
            if number + 1 < _LEAST_ROUNDS:
                continue
            there = _different(values[rest], met[rest])
            enough = np.where(there.found, there.hits, _HITS).min(axis=1) >= _HITS
            complete[rest] = enough & there.found.any(axis=1)
            flat[rest] = (there.found & (there.hits == 1)).sum(axis=1) > _ALONE * met[rest].sum(axis=1)
            met[flat, _FEW:] = False
            if (complete | flat).all():
                break
        classes = _different(values, met)
        return classes, np.where(complete, 0.0, 1 / np.maximum(classes.hits.sum(axis=1), 1))

    def _canonical(self, Z: np.ndarray) -> np.ndarray:
        """One image of each point (N, n) under the flips."""
        P = self.surface.link.fields
        direction = np.random.default_rng(1).standard_normal((P, self.surface.link.tokens))
        sums = np.einsum("npt,pt->np", Z.reshape(len(Z), P, -1), direction)
        best = (sums @ self.signs.T).argmax(axis=1)
        fields = Z.reshape(len(Z), P, -1)
        flipped: np.ndarray = np.multiply(self.signs[best][:, :, None], fields)
        return flipped.reshape(Z.shape)


def _among(points: Roots, rare: Roots) -> np.ndarray:
    """(N, B): which of the points are among the rare ones, as 0 and 1."""
    out = np.zeros(points.found.shape)
    for j in range(rare.found.shape[1]):
        near = np.abs(points.values - rare.values[:, j, None]).max(axis=2) <= SAME * (
            1 + np.abs(rare.values[:, j]).max(axis=1, keepdims=True)
        )
        out[near & points.found & rare.found[:, j, None]] = 1.0
    return out


def _different(values: np.ndarray, met: np.ndarray) -> Roots:
    """All different ones of every problem, in as many slots as they take."""
    slots = 8
    while (found := distinct(values, met, slots)).lost.any():
        slots *= 2
    return found


class PointPosterior(Block):
    """Posteriors over finitely many fields, as an integrand without coordinates."""

    dim = 0

    def __init__(self, solutions: Solutions, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.solutions = solutions
        self.residuals = int(np.prod(self.omega.shape[1:]))
        self.branches = solutions.log_weight.shape[1]
        Z = solutions.values.reshape(-1, self.branches, *self.omega.shape[1:])
        self._zeta = whiten(Z, self.omega[:, None], self.factor[:, None]).reshape(-1, self.branches, self.residuals)

    def take(self, index: np.ndarray) -> PointPosterior:
        return PointPosterior(self.solutions.take(index), self.cavity.take(index))

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, 0, self.omega.shape[2])

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        shape = (self.branches, self.residuals, *x.shape[1:])
        r = np.broadcast_to(np.moveaxis(self._zeta[index], 0, 2)[:, :, None], shape)
        return Values(r, np.broadcast_to(self.solutions.log_weight[index].T[:, None], (len(r), *x.shape[1:])))

    def doubt(self, seen: Doubt | None) -> tuple[np.ndarray, np.ndarray]:
        """A solution that is missing moves the mean by its share, in units of the whitened fields: those that were
        seldom reached tell how large that may be."""
        log = self.solutions.log_weight - 0.5 * (self._zeta**2).sum(axis=2)
        share = np.exp(log - np.logaddexp.reduce(log, axis=1, keepdims=True))
        moved = np.sqrt(self.residuals) * ((share * self.solutions.rare).sum(axis=1) + self.solutions.doubt)
        return moved, self.solutions.doubt > 0
