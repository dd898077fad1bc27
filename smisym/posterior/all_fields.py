"""A noisy or discrete output: the posterior lives on all fields.

    p(y) = int dZ N(y; f(Z), Delta) N(Z; omega, V),

with an indicator of the cell {Z : f(Z) = y} in place of the first Gaussian where the output is discrete.
"""

from __future__ import annotations

import numpy as np

from smisym.charts.base import Arrays, Coordinates
from smisym.integrate.modes import Values
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import is_smooth, jumps
from smisym.posterior.base import METHODS, SAMPLED, Block, Cavity, Kind, Whitening, entries_of, log_noise

# Outputs of a discrete model that differ by less, relative to their size, are the same.
_SAME = 1e-9


class OnAllFields(Kind):
    """An output with Gaussian noise of some variance, or a discrete one (noise 0: the prior cut to a cell)."""

    def __init__(self, link: LinkFunction, noise: float) -> None:
        self.link, self.noise = link, noise
        self.dim = link.fields * link.tokens
        self.smooth = noise > 0 and not jumps(link.program)
        self.broken = noise > 0 and not is_smooth(link.program)

    def read(self, observation: Observation) -> Coordinates:
        return entries_of(observation)

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> OnFields:
        cavity = Cavity.of(omega, V, tuple(range(self.link.fields)))
        return OnFields(self.link, self.noise, observed.values, cavity, self.broken)

    def describe(self) -> tuple[str, str]:
        return lives_on_all_fields(self.dim, self.noise)


def lives_on_all_fields(dim: int, noise: float) -> tuple[str, str]:
    """Where such a posterior lives, and how it is integrated, in words."""
    if not noise:
        where = f"the output is discrete, so that the posterior is the Gaussian of all {dim} fields cut to a cell"
        return where, SAMPLED
    where = f"the output has noise of variance {noise:g}, so that the posterior lives on all {dim} fields"
    return where, METHODS.get(dim, SAMPLED)


class OnFields(Block):
    """The posterior of one block of samples on all fields: x are the whitened fields.

    Under noise r is the misfit in units of the noise; a discrete output has none, and a weight of one or zero.
    """

    def __init__(self, link: LinkFunction, noise: float, u: np.ndarray, cavity: Whitening, broken: bool) -> None:
        super().__init__(cavity)
        self.link, self.noise, self.u = link, noise, u
        self.dim = link.fields * link.tokens
        self.residuals = u.shape[1] if noise else 0
        self.branches = 1
        self.broken = broken
        # Between two outputs that attention saturates at there is a ridge where it changes from one to the other.
        self.saturating = bool(noise)

    def take(self, index: np.ndarray) -> OnFields:
        """The same for some of the samples."""
        return OnFields(self.link, self.noise, self.u[index], self.cavity.take(index), self.broken)

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.dim)

    def log_density(self) -> np.ndarray:
        return np.full(self.samples, log_noise(self.u.shape[1], self.noise))

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        """Residuals (1, m, n, C) and log-weight (1, n, C) at x (d, n, C)."""
        values = self.link.entries(self._fields(index, x))
        r = np.empty((1, self.residuals, *x.shape[1:]))
        log_weight = np.zeros((1, *x.shape[1:]))
        if self.noise:
            scale = 1 / np.sqrt(self.noise)
            for j, value in enumerate(values):
                r[0, j] = (value - self.u[index, j]) * scale
        else:
            for j, value in enumerate(values):
                other = np.abs(value - self.u[index, j]) > _SAME * (1 + np.abs(self.u[index, j]))
                log_weight[0][np.broadcast_to(other, x.shape[1:])] = -np.inf
        return Values(r, log_weight)

    def at(self, index: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The fields themselves (P T, n, C) at x."""
        return np.stack([np.broadcast_to(entry, x.shape[1:]) for entry in self._fields(index, x)])

    def _fields(self, index: np.ndarray, x: np.ndarray) -> Arrays:
        P, T = self.link.fields, self.link.tokens
        omega, L = self.omega[index], self.factor[index]
        entries = []
        for p in range(P):
            for t in range(T):
                value = omega[:, p, t] + x[p * T + t] * L[:, p, p]
                for q in range(p):
                    if L[:, p, q].any():
                        value = value + x[q * T + t] * L[:, p, q]
                entries.append(value)
        return entries
