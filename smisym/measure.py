"""What the posterior of the fields is integrated over: the level set of the output, or all fields under noise.

The fields are whitened with the cavity covariance, Z = omega + L zeta with V = L L^T and the rows in the order that the
measure asks for; the integrators of :mod:`smisym.quadrature` and :mod:`smisym.importance` see zeta alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from smisym.charts import LevelSet
from smisym.charts.base import FLAT, LINE, Arrays, Coordinates, Sheets
from smisym.errors import InputError
from smisym.link import LinkFunction, Observation
from smisym.modes import Integrand

# Outputs of a discrete model that differ by less, relative to their size, are the same.
_SAME = 1e-9


class Posteriors(Integrand, Protocol):
    """A batch of posteriors that a channel integrates.

    doubt (S,): what the evaluations so far may have missed may move the mean by, in units of the whitened fields.
    incomplete (S,): where something was missed, however small the doubt.
    """

    doubt: np.ndarray
    incomplete: np.ndarray

    def take(self, index: np.ndarray) -> Posteriors:
        """The same for some of the samples."""
        ...


class Block:
    """What every posterior of one block of samples holds: coordinates u (S, n) of the outputs, and the Gaussian of what
    is whitened, with means omega and factors L of the covariances.

    Most have maxima to begin with and miss nothing; those that do say so.
    """

    reach = 1.0
    modeless = False

    def __init__(self, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> None:
        self.u, self.omega, self.factor = u, omega, factor
        self.samples = len(u)
        self.doubt, self.incomplete = np.zeros(self.samples), np.zeros(self.samples, dtype=bool)


class Cavity(Protocol):
    """The Gaussian of the fields of a batch of samples before their outputs are seen, whitened.

    constant: whether it is centred and the same for all samples.  dimension: how many numbers are whitened.
    """

    constant: bool
    dimension: int

    def take(self, index: slice | np.ndarray) -> Cavity:
        """The same for some of the samples."""
        ...

    def integrand(self, u: np.ndarray) -> Posteriors:
        """The posterior at coordinates u (S, n) of the outputs."""
        ...

    def log_constant(self) -> np.ndarray:
        """What the log of the integral lacks to the log-partition, (S,), beside (2 pi)^(dimension / 2)."""
        ...

    def fields(self, mean: np.ndarray, cov: np.ndarray | None) -> FieldMoments:
        """Moments of the fields from those of the whitened numbers, (S, dimension) and (S, dimension, dimension)."""
        ...


@dataclass(frozen=True)
class FieldMoments:
    """Mean (S, P, T) and covariance (S, P, T, P, T) of the fields, g_out and its derivative, or None for these two."""

    mean: np.ndarray
    g: np.ndarray
    cov: np.ndarray | None
    dg: np.ndarray | None


class Measure(Protocol):
    """How the posterior of one output is integrated.

    dim: dimensions of the integral.
    fields_of_zeta: where the whitened numbers are among the coordinates that the integrator reports.
    smooth: whether the integrand is, so that a lattice converges fast.
    """

    dim: int
    smooth: bool
    fields_of_zeta: np.ndarray

    def coordinates(self, observation: Observation) -> Coordinates:
        """What the integrand needs of the outputs, (S, n)."""
        ...

    def cavity(self, omega: np.ndarray, V: np.ndarray) -> Cavity:
        """The Gaussian with mean omega (S, P, T) and covariance V, (1, P, P) or (S, P, P); InputError for a bad V."""

        ...


Integrands = Callable[[np.ndarray, np.ndarray, np.ndarray], Posteriors]


class CavityOfFields:
    """All fields, whitened row by row: Z = omega + L zeta with V = L L^T, the rows in the measure's order."""

    def __init__(
        self,
        omega: np.ndarray,
        factor: np.ndarray,
        order: tuple[int, ...],
        integrands: Integrands,
        constants: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        self.omega, self.factor, self.order = omega, factor, list(order)
        self._integrands, self._constants = integrands, constants
        self.dimension = int(np.prod(omega.shape[1:]))
        self.constant = bool(len(omega) and not omega.any() and (factor == factor[0]).all())

    def take(self, index: slice | np.ndarray) -> CavityOfFields:
        return CavityOfFields(
            self.omega[index], self.factor[index], tuple(self.order), self._integrands, self._constants
        )

    def integrand(self, u: np.ndarray) -> Posteriors:
        return self._integrands(u, self.omega, self.factor)

    def log_constant(self) -> np.ndarray:
        return self._constants(self.factor)

    def fields(self, mean: np.ndarray, cov: np.ndarray | None) -> FieldMoments:
        S, P, T = self.omega.shape
        order, factor = self.order, self.factor
        zeta = mean.reshape(S, P, T)
        inverse = np.linalg.inv(factor)
        g, inside = np.empty_like(self.omega), np.empty_like(self.omega)
        g[:, order] = np.swapaxes(inverse, 1, 2) @ zeta
        inside[:, order] = factor @ zeta
        inside += self.omega
        if cov is None:
            return FieldMoments(inside, g, None, None)
        second = cov.reshape(S, P, T, P, T)
        spread, dg = np.empty_like(second), np.empty_like(second)
        grid = np.ix_(range(S), order, range(T), order, range(T))
        spread[grid] = np.einsum("spi,sitju,sqj->sptqu", factor, second, factor, optimize=True)
        centred = second - np.eye(P * T).reshape(P, T, P, T)
        dg[grid] = np.einsum("sip,sitju,sjq->sptqu", inverse, centred, inverse, optimize=True)
        return FieldMoments(inside, g, spread, dg)


def cholesky(V: np.ndarray) -> np.ndarray:
    """Cholesky factors of V (..., P, P), or an InputError."""
    try:
        return np.linalg.cholesky(V)
    except np.linalg.LinAlgError:
        smallest = float(np.linalg.eigvalsh(V).min())
        raise InputError(
            "V",
            f"a matrix with smallest eigenvalue {smallest:.3g}",
            "positive definite",
            "at perfect recovery no channel is needed; else check that Q < I",
        ) from None


class OfFields(Protocol):
    """A measure whose cavity is that of all fields, whitened row by row in some order."""

    order: tuple[int, ...]

    def integrand(self, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> Posteriors: ...

    def log_constant(self, factor: np.ndarray) -> np.ndarray: ...


def cavity_of_fields(measure: OfFields, omega: np.ndarray, V: np.ndarray) -> CavityOfFields:
    """The cavity of such a measure; V (1, P, P) or (S, P, P)."""
    order = list(measure.order)
    factor = cholesky(V[..., order, :][..., :, order])
    factor = np.broadcast_to(factor, (len(omega), *factor.shape[1:]))
    return CavityOfFields(omega, factor, measure.order, measure.integrand, measure.log_constant)


def layout(level_set: LevelSet, tokens: int, more: int = 0) -> tuple[tuple[int, ...], int, np.ndarray]:
    """Order of the rows, dim and fields_of_zeta of a measure on a level set, with ``more`` coordinates besides its own.

    The integrator sees the whitened free fields, the latent coordinates, those besides, and the whitened solved fields.
    """
    free, solved = (len(rows) * tokens for rows in (level_set.free_rows, level_set.solved_rows))
    dim = free + len(level_set.latents) + more
    return (*level_set.free_rows, *level_set.solved_rows), dim, np.r_[:free, dim : dim + solved]


def entries_of(observation: Observation) -> Coordinates:
    """The entries of an output as its coordinates, (S, M)."""
    y = observation.y
    return Coordinates(y.reshape(len(y), math.prod(y.shape[1:])), np.zeros(len(y)))


def log_whitening(factor: np.ndarray, free: int, tokens: int) -> np.ndarray:
    """What whitening the rows after the ``free`` first ones adds to the log-partition, (S,); factor (S, P, P) of V."""
    return np.asarray(-tokens * np.log(np.einsum("sii->si", factor)[:, free:]).sum(axis=1))


def log_noise(link: LinkFunction) -> float:
    """What the noise in whose units misfits are adds to the log-partition; nothing where there is none."""
    return float(-0.5 * math.prod(link.output_shape) * np.log(2 * np.pi * link.noise)) if link.noise else 0.0


class OnLevelSet:
    """A noiseless output with a chart."""

    def __init__(self, level_set: LevelSet, tokens: int) -> None:
        self.level_set, self.tokens = level_set, tokens
        self.smooth = level_set.smooth
        self.order, self.dim, self.fields_of_zeta = layout(level_set, tokens)

    def coordinates(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation)

    def cavity(self, omega: np.ndarray, V: np.ndarray) -> CavityOfFields:
        return cavity_of_fields(self, omega, V)

    def integrand(self, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> Whitened:
        return Whitened(self.level_set, self.tokens, u, omega, factor)

    def log_constant(self, factor: np.ndarray) -> np.ndarray:
        return log_whitening(factor, len(self.level_set.free_rows), self.tokens)


class OnAllFields:
    """An output whose posterior lives on all fields: with Gaussian noise, or discrete (the prior cut to a cell)."""

    def __init__(self, link: LinkFunction) -> None:
        self.link = link
        self.order = tuple(range(link.fields))
        self.dim = link.fields * link.tokens
        self.fields_of_zeta = np.arange(self.dim)
        self.smooth = link.noise > 0

    def coordinates(self, observation: Observation) -> Coordinates:
        return entries_of(observation)

    def cavity(self, omega: np.ndarray, V: np.ndarray) -> CavityOfFields:
        return cavity_of_fields(self, omega, V)

    def integrand(self, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> OnFields:
        return OnFields(self.link, u, omega, factor)

    def log_constant(self, factor: np.ndarray) -> np.ndarray:
        return np.full(len(factor), log_noise(self.link))


class OnFields(Block):
    """The posterior of one block of samples on all fields: x are the whitened fields.

    Under noise r is the misfit in units of the noise; a discrete output has none, and a weight of one or zero.
    """

    def __init__(self, link: LinkFunction, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> None:
        super().__init__(u, omega, factor)
        self.link = link
        self.dim = link.fields * link.tokens
        self.residuals = u.shape[1] if link.noise else 0
        self.branches = 1

    def take(self, index: np.ndarray) -> OnFields:
        """The same for some of the samples."""
        return OnFields(self.link, self.u[index], self.omega[index], self.factor[index])

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Residuals (1, m, n, C) and log-weight (1, n, C) at x (d, n, C)."""
        values = self.link.entries(self._fields(index, x))
        r = np.empty((1, self.residuals, *x.shape[1:]))
        log_weight = np.zeros((1, *x.shape[1:]))
        if self.link.noise:
            scale = 1 / np.sqrt(self.link.noise)
            for j, value in enumerate(values):
                r[0, j] = (value - self.u[index, j]) * scale
        else:
            for j, value in enumerate(values):
                other = np.abs(value - self.u[index, j]) > _SAME * (1 + np.abs(self.u[index, j]))
                log_weight[0][np.broadcast_to(other, x.shape[1:])] = -np.inf
        return r, log_weight, None

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


class Whitened(Block):
    """The posterior of one block of samples over zeta = (x, r): an integrand for :mod:`smisym.quadrature`.

    x are the whitened free fields, then the latent coordinates of the chart, each as a function of a variable that the
    integrator takes for standard normal; r are the whitened solved fields.
    """

    def __init__(self, level_set: LevelSet, tokens: int, u: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> None:
        super().__init__(u, omega, factor)
        self.level_set, self.tokens = level_set, tokens
        self.n_free, self.n_solved = len(level_set.free_rows), len(level_set.solved_rows)
        self.n_white = self._white()
        self.dim = self.n_white + len(level_set.latents)
        self.residuals = self.n_solved * tokens
        self.branches = level_set.branches
        # Which entries of the factor below the diagonal are used at all: most V are diagonal.
        self._linked = np.any(factor != 0.0, axis=0)

    def _white(self) -> int:
        """How many of the coordinates x are whitened numbers."""
        return self.n_free * self.tokens

    def take(self, index: np.ndarray) -> Whitened:
        """The same for some of the samples."""
        return Whitened(self.level_set, self.tokens, self.u[index], self.omega[index], self.factor[index])

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Residuals (branches, m, n, C), log-weight (branches or 1, n, C) and spread at x (d, n, C)."""
        return self.on_sheets(index, x, list(self.u[index].T))

    def on_sheets(
        self, index: np.ndarray, x: np.ndarray, u: Arrays
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
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
            return r, log_weight, None
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

    def _integrate_directions(
        self, sheets: Sheets, L: np.ndarray, r: np.ndarray, log_weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
        return r, weight + 0.5 * count * np.log(2 * np.pi), along

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
