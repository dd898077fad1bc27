"""Outputs that tell on which side of planes the fields are: perceptrons, committees of signs, hardmax on two tokens.

    p(y) = sum_cells l(y) Phi_k(kappa; C),   kappa_i = (A_i omega + b_i) / sigma_i

A_i Z + b_i > 0 what holds on a cell, sigma_i the deviation of A_i Z, C their correlations, Phi_k the probability that k
normal numbers are below kappa; l(y) is one on the cells of an output and zero elsewhere, or the likelihood of noise.
Moments are derivatives of log Phi_k by kappa (:mod:`smisym.posterior.orthants`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from smisym.base.counting import counted
from smisym.charts.base import Coordinates
from smisym.charts.pieces import Cells, cells_of
from smisym.integrate.averages import Average
from smisym.link.linking import LinkFunction, Observation
from smisym.posterior.base import Cavity, Kind, Whitening, entries_of, log_noise
from smisym.posterior.measured import Gaussians
from smisym.posterior.orthants import MOST, log_orthant

# Outputs that differ by less, relative to the largest of them, are the same.
_SAME = 1e-9
# In logs: by how much less than another cell one counts for nothing, from where on a probability is no small one, up
# to where an output counts for nothing in a mean over outputs.
_NOTHING, _MUCH, _RARE = 40.0, math.log(1e-6), math.log(1e-13)
# Relative error of a logarithm: a few roundings.
_ROUNDING = 4 * np.finfo(float).eps


class OnHalfSpaces(Kind):
    """A discrete output, or one with noise of some variance, of which each cell is an intersection of half-spaces."""

    smooth, dim = True, 0

    def __init__(self, cells: Cells, noise: float) -> None:
        self.cells, self.noise = cells, noise
        self.order = tuple(range(cells.forms.shape[2]))
        self.outputs = None if noise else _distinct(cells.values)

    def read(self, observation: Observation) -> Coordinates:
        return entries_of(observation)

    def _of(self, y: np.ndarray) -> np.ndarray:
        """(S, cells): whether an output is that of a cell."""
        near = np.abs(y[:, None] - self.cells.values) <= _SAME * np.abs(self.cells.values).max(axis=0)
        return np.asarray(near.all(axis=2))

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> HalfSpaces:
        y, cavity = observed.values, Cavity.of(omega, V, self.order)
        if self.noise:
            return HalfSpaces(self.cells, *self._likelihood(y), cavity)
        return HalfSpaces(self.cells, np.where(self._of(y), 0.0, -np.inf), np.zeros(len(y)), cavity)

    def _likelihood(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log of how likely each cell makes an output, over that of the nearest one (S, cells), and of that one (S,).

        By differences: of an output far from all of them squares agree in all their digits.
        """
        values = self.cells.values
        with np.errstate(over="ignore"):
            nearest = values[((y[:, None] - values) ** 2).sum(axis=2).argmin(axis=1)]
            beside = ((values - nearest[:, None]) * (2 * y[:, None] - values - nearest[:, None])).sum(axis=2)
            square = ((y - nearest) ** 2).sum(axis=1)
        return 0.5 * beside / self.noise, -0.5 * square / self.noise + log_noise(y.shape[1], self.noise)

    def describe(self) -> tuple[str, str]:
        n, k = self.cells.forms.shape[:2]
        sides = "a plane" if k == 1 else counted(k, "plane")
        noise = f", seen with noise of variance {self.noise:g}" if self.noise else ""
        where = f"the output tells on which side of {sides} the fields are ({counted(n, 'cell')}){noise}"
        return where, f"the distribution function of {counted(k, 'normal number')}, in closed form"


def half_spaces_of(link: LinkFunction, noise: float) -> OnHalfSpaces | None:
    """The posterior of an output that at most three signs of affine forms of the fields decide on each of its cells;
    None for any other output."""
    cells = cells_of(link, MOST)
    return None if cells is None else OnHalfSpaces(cells, noise)


def _distinct(values: np.ndarray) -> np.ndarray:
    """Those of (n, M) that differ by more than rounding."""
    found: list[np.ndarray] = []
    same = _SAME * np.abs(values).max(axis=0)
    for value in values:
        if not any((np.abs(value - other) <= same).all() for other in found):
            found.append(value)
    return np.array(found)


class HalfSpaces(Gaussians):
    """The posteriors of one block of samples; log_weight (S, cells): log of what each counts for, times what all
    count for, of log (S,) common."""

    def __init__(self, cells: Cells, log_weight: np.ndarray, common: np.ndarray, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.cells, self.log_weight, self.common = cells, log_weight, common

    def take(self, index: np.ndarray) -> HalfSpaces:
        return HalfSpaces(self.cells, self.log_weight[index], self.common[index], self.cavity.take(index))

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        S, n = self.log_weight.shape
        planes = [self._planes(cell) for cell in range(n)]
        # No cell has more than what one of its planes leaves.
        bound = np.stack([log_ndtr(one.kappa).min(axis=1) for one in planes], axis=1)
        most = self.log_weight + bound
        first, log = most.argmax(axis=1), np.full((S, n), -np.inf)
        means = np.zeros((S, n, self.residuals))
        squares = np.zeros((S, n, self.residuals, self.residuals)) if cov else None
        digits = np.zeros((S, n))

        def add(cell: int, who: np.ndarray, spare: bool | np.ndarray) -> None:
            if who.size:
                planned = np.broadcast_to(spare, who.shape)
                own, means[who, cell], curve = planes[cell].take(who).moments(planned)
                log[who, cell] = own + self.log_weight[who, cell]
                # Slopes are quotients of numbers of which these logarithms, as large as they are, are known.
                digits[who, cell] = _ROUNDING * np.abs(own) * np.linalg.norm(means[who, cell], axis=1)
                if squares is not None:
                    squares[who, cell] = curve()

        # In a mean over outputs these count for no more than they are likely.
        rare = bound[np.arange(S), first] < (_RARE if averaged else -np.inf)
        for cell in range(n):
            add(cell, np.flatnonzero((first == cell) & ~rare), averaged)
        log[rare, first[rare]] = most[rare, first[rare]]
        known = np.where(rare, np.inf, log.max(axis=1))
        for cell in range(n):
            who = np.flatnonzero((first != cell) & (most[:, cell] > known - _NOTHING))
            add(cell, who, averaged | (known[who] - self.log_weight[who, cell] > _MUCH))
        total = logsumexp(log, axis=1) + self.common
        # An output that no cell has, as of a field that is zero: nothing is known of it.
        there = np.isfinite(total)
        share = np.exp(log - np.where(there, log.max(axis=1), 0.0)[:, None])
        share = np.where(there[:, None], share / share.sum(axis=1, keepdims=True), np.nan)
        mean = np.einsum("sc,sci->si", share, means)
        spread = None
        if squares is not None:
            # Mean of zeta zeta^T is one plus the second derivative of the probability over it.
            spread = np.eye(self.residuals) + np.einsum("sc,scij->sij", share, squares)
            spread -= mean[:, :, None] * mean[:, None]
        total = total + 0.5 * self.residuals * math.log(2 * math.pi)
        error = np.where(there, (share * digits).sum(axis=1), np.inf)
        return Average(total, mean, spread, error, np.ones(S), error <= rtol)

    def _planes(self, cell: int) -> _Planes:
        told = self.cells.forms[cell].any(axis=(1, 2))
        forms, constants = self.cells.forms[cell][told], self.cells.constants[cell][told]
        M = np.broadcast_to(self.through(forms[None]), (self.samples, len(forms), self.residuals))
        sigma = np.linalg.norm(M, axis=2)
        kappa = (np.einsum("kpt,spt->sk", forms, self.omega) + constants) / sigma
        return _Planes(M / sigma[..., None], kappa)


class _Planes(NamedTuple):
    """Of one cell: unit vectors (S, k, P T) across its planes in whitened fields, kappa (S, k)."""

    unit: np.ndarray
    kappa: np.ndarray

    def take(self, index: np.ndarray) -> _Planes:
        return _Planes(self.unit[index], self.kappa[index])

    def moments(self, spare: np.ndarray) -> tuple[np.ndarray, np.ndarray, Callable[[], np.ndarray]]:
        """Log of its probability (S,), gradient by zeta over it (S, P T), and second derivatives."""
        unit = self.unit
        log, slope, curve = log_orthant(self.kappa, unit @ np.swapaxes(unit, 1, 2), spare)
        return log, np.einsum("ski,sk->si", unit, slope), lambda: np.einsum("ski,skl,slj->sij", unit, curve, unit)
