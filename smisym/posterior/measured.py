"""Outputs that are linear measurements of the fields: the posterior is a Gaussian.

    p(y) = N(u; R omega, R V R^T),   Z | y  Gaussian, of a covariance that no output changes

u = R Z what is measured.  With Z = omega + L zeta and M = R L, zeta is known along the rows of M and standard normal
across them.
"""

from __future__ import annotations

import math

import numpy as np

from smisym.base.counting import counted
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates
from smisym.integrate.averages import Average
from smisym.integrate.modes import Values
from smisym.link.linking import Observation
from smisym.posterior.base import Block, Cavity, Kind, Whitening


class OnMeasurements(Kind):
    """A noiseless output whose level sets are parallel planes."""

    smooth = alike = True

    def __init__(self, level_set: LevelSet, fields: int, tokens: int) -> None:
        self.level_set, self.order = level_set, tuple(range(fields))
        self.dim, self.along = 0, level_set.directions
        K = level_set.dimension
        sheets = level_set.solve([], [], list(np.eye(K)))
        rows = [np.broadcast_to(entry, (K,)) for entry in sheets.solved[0]]
        self.rows = np.linalg.pinv(np.array(rows)).reshape(K, fields, tokens)

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Measured:
        return Measured(self.rows, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        K, n = len(self.rows), self.rows[0].size
        seen = f"{counted(K, 'linear measurement')} of {counted(n, 'field')}"
        return f"the posterior is a Gaussian: {seen}", "linear algebra, in closed form"


class Gaussians(Block):
    """What integrands in closed form have in common: no coordinates, all whitened fields as moments."""

    dim, branches = 0, 1

    def __init__(self, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.residuals = int(np.prod(self.omega.shape[1:]))

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.residuals)

    def log_density(self) -> np.ndarray:
        return np.zeros(self.samples)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        raise TypeError("an integral in closed form is never asked for its integrand")

    def through(self, rows: np.ndarray) -> np.ndarray:
        """(S, K, P T): linear forms (S or 1, K, P, T) of the fields as forms of zeta."""
        # Most batches have one covariance.
        one = np.ptp(self.factor, axis=0).max() == 0 if self.samples else True
        factor = self.factor[:1] if one else self.factor
        return np.einsum("skpt,spq->skqt", rows, factor).reshape(-1, rows.shape[1], self.residuals)


class Measured(Gaussians):
    """The posteriors of one block of samples."""

    def __init__(self, rows: np.ndarray, u: np.ndarray, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.rows, self.u = rows, u

    def take(self, index: np.ndarray) -> Measured:
        return Measured(self.rows, self.u[index], self.cavity.take(index))

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        M = self.through(self.rows[None])
        U, sizes, Vt = np.linalg.svd(M, full_matrices=False)
        off = self.u - np.einsum("kpt,spt->sk", self.rows, self.omega)
        known = np.einsum("skj,sk->sj", np.broadcast_to(U, (self.samples, *U.shape[1:])), off) / sizes
        mean = np.einsum("sji,sj->si", np.broadcast_to(Vt, (self.samples, *Vt.shape[1:])), known)
        log = -0.5 * (known**2).sum(axis=1) - np.log(sizes).sum(axis=1)
        log += 0.5 * (self.residuals - len(self.rows)) * math.log(2 * math.pi)
        spread = None
        if cov:
            left = np.eye(self.residuals) - np.swapaxes(Vt, 1, 2) @ Vt
            spread = np.broadcast_to(left, (self.samples, *left.shape[1:]))
        nothing = np.zeros(self.samples)
        return Average(log, mean, spread, nothing, nothing + 1, np.ones(self.samples, dtype=bool))
