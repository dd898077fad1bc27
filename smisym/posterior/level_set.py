"""A noiseless output with a chart: the posterior lives on the level set.

    p(y) = int dx sum_sheets w(x) N(Z(x, y); omega, V)

x the free fields and the latent coordinates of the chart, Z the fields there, w the weight of the chart.
"""

from __future__ import annotations

import numpy as np

from smisym.charts import LevelSet
from smisym.charts.base import FLAT, LINE, Arrays, Coordinates, Sheets
from smisym.integrate.modes import Values
from smisym.link.linking import Observation
from smisym.posterior.base import METHODS, SAMPLED, Block, Cavity, Kind, Whitening, log_whitening


class OnLevelSet(Kind):
    """A noiseless output with a chart."""

    def __init__(self, level_set: LevelSet, tokens: int) -> None:
        self.level_set, self.tokens = level_set, tokens
        self.smooth = level_set.smooth
        self.order = rows_of(level_set)
        self.dim = len(level_set.free_rows) * tokens + len(level_set.latents)

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Whitened:
        return Whitened(self.level_set, self.tokens, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        return lives_on_level_set(self.dim, self.level_set)


def lives_on_level_set(dim: int, level_set: LevelSet) -> tuple[str, str]:
    """Where such a posterior lives, and how it is integrated, in words."""
    where = f"the posterior lives on the level set: {dim} free dimension(s) and {level_set.branches} branches"
    return where, METHODS.get(dim, SAMPLED)


def rows_of(level_set: LevelSet) -> tuple[int, ...]:
    """Order in which the rows are whitened on a level set: the free ones first."""
    return (*level_set.free_rows, *level_set.solved_rows)


class Whitened(Block):
    """The posterior of one block of samples over zeta = (x, r): an integrand for :mod:`smisym.integrate.quadrature`.

    x are the whitened free fields, then the latent coordinates of the chart, each as a function of a variable that the
    integrator takes for standard normal; r are the whitened solved fields.
    """

    def __init__(self, level_set: LevelSet, tokens: int, u: np.ndarray, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.level_set, self.tokens, self.u = level_set, tokens, u
        self.n_free, self.n_solved = len(level_set.free_rows), len(level_set.solved_rows)
        self.n_white = self._white()
        self.dim = self.n_white + len(level_set.latents)
        self.residuals = self.n_solved * tokens
        self.branches = level_set.branches
        # Which entries of the factor below the diagonal are used at all: most V are diagonal.
        self._linked = np.any(self.factor != 0.0, axis=0)

    def _white(self) -> int:
        """How many of the coordinates x are whitened numbers."""
        return self.n_free * self.tokens

    def take(self, index: np.ndarray) -> Whitened:
        """The same for some of the samples."""
        return Whitened(self.level_set, self.tokens, self.u[index], self.cavity.take(index))

    @property
    def whitened(self) -> np.ndarray:
        return np.r_[: self.n_white, self.dim : self.dim + self.residuals]

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, self.n_free, self.tokens)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        """Residuals (branches, m, n, C), log-weight (branches or 1, n, C) and spread at x (d, n, C)."""
        return self.on_sheets(index, x, list(self.u[index].T))

    def on_sheets(self, index: np.ndarray, x: np.ndarray, u: Arrays) -> Values:
        """The same on the level set at coordinates u, one array each, that broadcast with x."""
        omega, L = self.omega[index], self.factor[index]
        latent, log_measure = self._latent(x)
        sheets = self.level_set.solve(self._free(x, omega, L), latent, u)
        shape = x.shape[1:]
        shift = self._shift(x, omega, L)
        r = np.empty((self.level_set.branches, self.residuals, *shape))
        for b, solved in enumerate(sheets.solved):
            self._whiten(solved, shift, L, r[b])
        log_weight = np.stack([np.broadcast_to(w, shape) for w in sheets.log_weight])
        if log_measure is not None:
            log_weight = log_weight + log_measure
        if not self.level_set.directions:
            return Values(r, log_weight)
        return self._integrate_directions(sheets, L, r, log_weight)

    def _latent(self, x: np.ndarray) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Latent coordinates at x, and the log of their measure relative to a standard normal."""
        latent, total = [], None
        for kind, value in zip(self.level_set.latents, x[self.n_white :], strict=True):
            # Far beyond any scale of the fields at both ends, so that no mass is cut off.
            if kind == LINE:
                latent.append(np.sinh(value))
                measure = np.log(np.cosh(value))
            elif kind == FLAT:
                latent.append(value)
                measure = np.zeros_like(value)
            else:
                latent.append(np.exp(value))
                measure = value.copy()
            measure += 0.5 * value * value
            total = measure if total is None else total + measure
        return latent, total

    def _shift(self, x: np.ndarray, omega: np.ndarray, L: np.ndarray) -> list[np.ndarray]:
        """What the means and the free fields take off the whitened solved fields, entry by entry."""
        T, F = self.tokens, self.n_free
        shifts = []
        for s, row in enumerate(self.level_set.solved_rows):
            scale = 1.0 / L[:, F + s, F + s]
            for t in range(T):
                shift = omega[:, row, t] * scale
                for q in np.flatnonzero(self._linked[F + s, :F]):
                    shift = shift + x[q * T + t] * (L[:, F + s, q] * scale)
                shifts.append(shift)
        return shifts

    def _whiten(self, solved: Arrays, shift: list[np.ndarray] | None, L: np.ndarray, out: np.ndarray) -> None:
        """Forward substitution with the factor of V, into ``out`` (m, n, C); ``shift`` None for directions."""
        T, F = self.tokens, self.n_free
        for s in range(self.n_solved):
            scale = 1.0 / L[:, F + s, F + s]
            for t in range(T):
                target = out[s * T + t]
                np.multiply(solved[s * T + t], scale, out=target)
                if shift is not None:
                    target -= shift[s * T + t]
                for q in np.flatnonzero(self._linked[F + s, F : F + s]):
                    target -= out[q * T + t] * (L[:, F + s, F + q] * scale)

    def _integrate_directions(self, sheets: Sheets, L: np.ndarray, r: np.ndarray, log_weight: np.ndarray) -> Values:
        """Gaussian integral along the directions: orthonormalised one after the other and taken out of r."""
        count = self.level_set.directions
        branches = self.level_set.branches
        along = np.zeros((branches, count, *r.shape[1:]))
        weight = np.repeat(log_weight, branches // len(log_weight), axis=0)
        for b, vectors in enumerate(sheets.directions):
            for i, vector in enumerate(vectors):
                own = along[b, i]
                self._whiten(vector, None, L, own)
                for other in along[b, :i]:
                    own -= other * (other * own).sum(axis=0)
                norm = np.sqrt((own * own).sum(axis=0))
                own /= norm
                weight[b] -= np.log(norm)
                r[b] -= own * (own * r[b]).sum(axis=0)
        return Values(r, weight + 0.5 * count * np.log(2 * np.pi), along)

    def _free(self, x: np.ndarray, omega: np.ndarray, L: np.ndarray) -> list[np.ndarray]:
        """The free fields at x, row by row and token by token."""
        T = self.tokens
        free = []
        for p, row in enumerate(self.level_set.free_rows):
            for t in range(T):
                value = x[p * T + t] * L[:, p, p]
                for q in np.flatnonzero(self._linked[p, :p]):
                    value += x[q * T + t] * L[:, p, q]
                value += omega[:, row, t]
                free.append(value)
        return free
