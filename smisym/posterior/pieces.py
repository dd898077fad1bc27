"""A noisy output that jumps: the posterior lives on all fields, piece by piece.

    p(y) = int dZ sum_b 1[Z in piece b] N(y; f_b(Z), Delta) N(Z; omega, V)

On each piece, where every sign in the output is known, the link is one smooth function f_b.  Every piece is a
sheet that ends: there are maxima on each of them, and a jump is no steep slope that refining would resolve.
"""

from __future__ import annotations

import numpy as np

from smisym.charts.base import Arrays, Coordinates
from smisym.charts.pieces import Piece, pieces_of
from smisym.integrate.modes import Values
from smisym.link.linking import LinkFunction
from smisym.posterior.all_fields import OnAllFields, OnFields
from smisym.posterior.base import Cavity, Whitening


class OnPieces(OnAllFields):
    """An output with Gaussian noise of some variance, on the pieces where its link is smooth."""

    def __init__(self, link: LinkFunction, noise: float, pieces: tuple[Piece, ...]) -> None:
        super().__init__(link, noise)
        self.pieces, self.smooth = pieces, noise > 0

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> OnFields:
        cavity = Cavity.of(omega, V, tuple(range(self.link.fields)))
        return _OnPieces(self, observed.values, cavity)

    def describe(self) -> tuple[str, str]:
        where, how = super().describe()
        return f"{where}, in {len(self.pieces)} pieces on which the link is smooth", how


def on_all_fields(link: LinkFunction, noise: float) -> OnAllFields:
    """The posterior on all fields, in pieces where jumps of the output cut them into a few."""
    pieces = pieces_of(link)
    return OnAllFields(link, noise) if pieces is None else OnPieces(link, noise, pieces)


class _OnPieces(OnFields):
    """The posterior of one block of samples: a sheet for each piece, without weight outside of it."""

    def __init__(self, posterior: OnPieces, u: np.ndarray, cavity: Whitening) -> None:
        super().__init__(posterior.link, posterior.noise, u, cavity, posterior.broken)
        self.posterior = posterior
        self.branches = len(posterior.pieces)

    def take(self, index: np.ndarray) -> _OnPieces:
        return _OnPieces(self.posterior, self.u[index], self.cavity.take(index))

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        """Residuals (branches, m, n, C) and log-weight (branches, n, C) at x (d, n, C)."""
        fields: Arrays = self._fields(index, x)
        r = np.empty((self.branches, self.residuals, *x.shape[1:]))
        log_weight = np.zeros((self.branches, *x.shape[1:]))
        scale = 1 / np.sqrt(self.noise)
        for b, piece in enumerate(self.posterior.pieces):
            values = piece.values(*fields)
            for j, value in enumerate(values[len(piece.signs) :]):
                r[b, j] = (value - self.u[index, j]) * scale
            for sign, value in zip(piece.signs, values, strict=False):
                outside = np.broadcast_to(value < 0 if sign > 0 else value >= 0, x.shape[1:])
                log_weight[b][outside] = -np.inf
            # The function of a piece need not exist outside of it.
            r[b][~np.isfinite(r[b]) & (log_weight[b] == -np.inf)] = 0.0
        return Values(r, log_weight)
