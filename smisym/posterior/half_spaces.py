"""Outputs that tell on which side of one or two planes the fields are, as of hardmax on two tokens.

    p(y) = Phi_k(kappa; c),   kappa_i = (A_i omega + b_i) / sigma_i

A_i Z + b_i > 0 what the output says, sigma_i the deviation of A_i Z, c their correlation; Phi_1, Phi_2 the distribution
functions of normal numbers.  Moments are derivatives of log Phi_k, by kappa:

    d Phi_2 / d kappa_1 = phi(kappa_1) Phi((kappa_2 - c kappa_1) / sqrt(1 - c^2)),
    d^2 Phi_2 / d kappa_1 d kappa_2 = phi_2, the density.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from smisym.charts.base import Coordinates, Refusal
from smisym.charts.measurements import affine_scores
from smisym.integrate.averages import Average
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import RowHardmax
from smisym.posterior.base import Cavity, Kind, Whitening, entries_of
from smisym.posterior.measured import Gaussians

# Planes whose probability is in closed form.
_MOST = 2
# Gauss's rule for Phi_2 over the angle of the correlation, good to rounding up to such a correlation; the other way,
# good to rounding too but dearer, beyond, and where the probability is so small that its digits are lost.
_ANGLE, _STEEP, _FAINT = np.polynomial.legendre.leggauss(48), 0.95, 1e-6
_LINE, _REACH, _TO_THE_TOP = np.polynomial.legendre.leggauss(64), 9.0, 60


class OnHalfSpaces(Kind):
    """A discrete output: each is an intersection of at most two half-spaces.

    forms (n, k, P, T), constants (n, k): those of each of the n outputs, values (n, M).
    """

    smooth, dim = True, 0

    def __init__(self, values: np.ndarray, forms: np.ndarray, constants: np.ndarray) -> None:
        self.values, self.forms, self.constants = values, forms, constants
        self.order = tuple(range(forms.shape[2]))

    def read(self, observation: Observation) -> Coordinates:
        return entries_of(observation)

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> HalfSpaces:
        which = np.abs(observed.values[:, None] - self.values).max(axis=2).argmin(axis=1)
        return HalfSpaces(self.forms, self.constants, which, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        k = self.forms.shape[1]
        sides = "a plane" if k == 1 else "two planes"
        return f"the output tells on which side of {sides} the fields are", "the normal distribution function"


def half_spaces_of(link: LinkFunction) -> OnHalfSpaces | None:
    """The posterior of a noiseless hardmax of scores that are affine in the fields; None for any other output."""
    cores = link.cores or ()
    if len(cores) != 1 or not isinstance(cores[0].expression, RowHardmax):
        return None
    scores = affine_scores(link.program, cores[0].expression.arg)
    if isinstance(scores, Refusal):
        return None
    A, b = scores
    hardmax = cores[0].expression
    size = int(hardmax.shape[0])
    columns = [hardmax.attended(i) for i in range(size)]
    if sum(len(own) - 1 for own in columns) > _MOST or max(map(len, columns)) > _MOST:
        return None
    rows = [i for i in range(size) if len(columns[i]) > 1]
    values, forms, constants = [], [], []
    for pattern in np.ndindex(*([2] * len(rows))):
        table = np.zeros((size, size))
        for i in range(size):
            table[i, columns[i][0]] = 1.0
        own_forms, own_constants = [], []
        for i, chosen in zip(rows, pattern, strict=True):
            won, lost = columns[i][chosen], columns[i][1 - chosen]
            table[i] = np.eye(size)[won]
            own_forms.append(A[i, won] - A[i, lost])
            own_constants.append(b[i, won] - b[i, lost])
        values.append(np.asarray(cores[0].apply(table)).ravel())
        forms.append(own_forms)
        constants.append(own_constants)
    shape = (len(values), len(rows), link.fields, link.tokens)
    found = np.array(forms).reshape(shape)
    return OnHalfSpaces(np.array(values), found, np.array(constants)) if found.any(axis=(2, 3)).all() else None


class HalfSpaces(Gaussians):
    """The posteriors of one block of samples; which (S,): of the outputs."""

    def __init__(self, forms: np.ndarray, constants: np.ndarray, which: np.ndarray, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.forms, self.constants, self.which = forms, constants, which

    def take(self, index: np.ndarray) -> HalfSpaces:
        return HalfSpaces(self.forms, self.constants, self.which[index], self.cavity.take(index))

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        forms = self.forms[self.which]
        M = self.through(forms)
        sigma = np.linalg.norm(M, axis=2)
        unit = M / sigma[..., None]
        kappa = (np.einsum("skpt,spt->sk", forms, self.omega) + self.constants[self.which]) / sigma
        log, slope, curve = _one(kappa[:, 0]) if kappa.shape[1] == 1 else _two(kappa, (unit[:, 0] * unit[:, 1]).sum(1))
        mean = np.einsum("ski,sk->si", unit, slope)
        spread = np.eye(self.residuals) + np.einsum("ski,skl,slj->sij", unit, curve, unit) if cov else None
        nothing = np.zeros(self.samples)
        log = log + 0.5 * self.residuals * math.log(2 * math.pi)
        return Average(log, mean, spread, nothing, nothing + 1, np.ones(self.samples, dtype=bool))


def _one(kappa: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log Phi (S,), its derivative (S, 1) and second derivative (S, 1, 1)."""
    log = log_ndtr(kappa)
    slope = np.exp(_log_phi(kappa) - log)
    return log, slope[:, None], (-slope * (kappa + slope))[:, None, None]


def _two(kappa: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log Phi_2 (S,), its derivatives (S, 2) and second derivatives (S, 2, 2) by kappa."""
    s = np.sqrt((1 - c) * (1 + c))
    log = log_normal_orthant(kappa[:, 0], kappa[:, 1], c)
    other = (kappa[:, ::-1] - c[:, None] * kappa) / s[:, None]
    slope = np.exp(_log_phi(kappa) + log_ndtr(other) - log[:, None])
    both = np.exp(_log_phi(kappa[:, 0]) + _log_phi(other[:, 0]) - np.log(s) - log)
    second = np.empty((len(c), 2, 2))
    second[:, [0, 1], [0, 1]] = -kappa * slope - (c * both)[:, None]
    second[:, 0, 1] = second[:, 1, 0] = both
    return log, slope, second - slope[:, :, None] * slope[:, None]


def _log_phi(x: np.ndarray) -> np.ndarray:
    return np.asarray(-0.5 * x * x - 0.5 * math.log(2 * math.pi))


def log_normal_orthant(h: np.ndarray, k: np.ndarray, c: np.ndarray) -> np.ndarray:
    """(S,): log P(x < h, y < k) of standard normal x, y with correlation c, -1 < c < 1."""
    x, w = _ANGLE
    angle = np.arcsin(c)[:, None] * 0.5 * (1 + x)
    exponent = -(h**2 + k**2)[:, None] + 2 * (h * k)[:, None] * np.sin(angle)
    found = ndtr(h) * ndtr(k) + np.arcsin(c) * (np.exp(0.5 * exponent / np.cos(angle) ** 2) @ w) / (4 * np.pi)
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(found)
    rest = np.flatnonzero(~(found > _FAINT) | (np.abs(c) > _STEEP))
    if rest.size:
        log[rest] = _along_a_line(h[rest], k[rest], c[rest])
    return log


def _along_a_line(h: np.ndarray, k: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The same by the integral over x, of a function whose log is concave: around its maximum, relative to it."""
    s = np.sqrt((1 - c) * (1 + c))

    def log_at(x: np.ndarray) -> np.ndarray:
        shape = (-1,) + (1,) * (x.ndim - 1)
        return _log_phi(x) + log_ndtr((k.reshape(shape) - c.reshape(shape) * x) / s.reshape(shape))

    low, high = np.minimum(h, 0.0) - 1.0, h.copy()

    def slope(x: np.ndarray) -> np.ndarray:
        other = (k - c * x) / s
        return -x - c / s * np.exp(_log_phi(other) - log_ndtr(other))

    while (down := slope(low) < 0).any():
        low = np.where(down, 2 * low - 1, low)
    for _ in range(_TO_THE_TOP):
        middle = 0.5 * (low + high)
        rises = slope(middle) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    top = high
    # How far it takes to fall by _REACH^2 / 2, at most: its curvature is at least one.
    begin, x, w = top - _REACH, *_LINE
    end = np.minimum(h, top + _REACH)
    fall = np.maximum(np.abs(slope(end)), 1e-300)
    # Where it ends at a slope it falls by e in 1 / |slope|.
    begin = np.where(end - top < 1e-9, np.maximum(begin, end - 45.0 / fall), begin)
    # Where the second factor falls it does so within s / |c|: a piece of its own.
    size = np.maximum(np.abs(c), 1e-9)
    cuts = [np.clip((k * np.sign(c) + side * _REACH * s) / size, begin, end) for side in (-1, 1)]
    pieces = np.stack([begin, *cuts, end])
    half = 0.5 * np.diff(pieces, axis=0)[..., None]
    values = log_at((pieces[:-1, :, None] + half * (1 + x)).swapaxes(0, 1)).swapaxes(0, 1)
    most = values.max(axis=(0, 2))
    return np.asarray(most + np.log((np.exp(values - most[:, None]) * w * half).sum(axis=(0, 2))))
