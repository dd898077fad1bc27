"""What a kind of posterior is: given outputs and a cavity, integrands, and moments of the fields from theirs.

The fields are whitened with the cavity covariance, Z = omega + L zeta with V = L L^T and the rows in the order that the
posterior asks for; the integrators of :mod:`smisym.integrate.quadrature` and :mod:`smisym.integrate.importance` see
zeta alone.  Moments of zeta give g_out = L^{-T} E[zeta] without losing digits as V vanishes, and nothing is added to V.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, Protocol, Self, final

import numpy as np

from smisym.base.errors import InputError
from smisym.charts.base import Coordinates
from smisym.integrate import modes
from smisym.integrate.accuracy import LATTICES
from smisym.integrate.averages import Average
from smisym.integrate.ball_blocks import serves
from smisym.integrate.ball_loops import balls_source
from smisym.integrate.balls import rules
from smisym.integrate.loops import cells_source, points_source
from smisym.integrate.modes import Doubt
from smisym.kernels.points import PointProgram
from smisym.link.linking import Observation

# How integrals of so many dimensions are done, in words; more are sampled.
SAMPLED = "importance sampling"
METHODS = {
    0: "a finite sum over the sheets",
    1: "an adaptive lattice",
    2: "an adaptive lattice",
    3: "an adaptive lattice or importance sampling",
    4: "an adaptive lattice or importance sampling",
}


class Observed(Protocol):
    """What a posterior reads off a batch of outputs: a record of arrays with one row a sample.

    relative_error (S,): how far rounding of y may have moved them, relative to their size.
    """

    @property
    def relative_error(self) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def take(self, index: slice | np.ndarray) -> Self:
        """The same for some of the samples."""
        ...


@dataclass(frozen=True)
class FieldMoments:
    """Mean (S, P, T) and covariance (S, P, T, P, T) of the fields, g_out and its derivative, or None for these two."""

    mean: np.ndarray
    g: np.ndarray
    cov: np.ndarray | None
    dg: np.ndarray | None


class Integrand(modes.Integrand, Protocol):
    """A batch of posteriors that a channel integrates, and the way back from its moments to those of the fields."""

    def take(self, index: np.ndarray) -> Self:
        """The same for some of the samples."""
        ...

    def prepared(self, rtol: float, cov: bool) -> Self:
        """The same, made ready to be integrated to that error; ``cov``: whether second moments are asked for."""
        ...

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average | None:
        """All of it, to that error, by an integrand that has a way of its own; None where integrators are asked.

        averaged: whether the error is one of the mean over the batch, which a way of its own may make use of.
        """
        ...

    def fields(self, mean: np.ndarray, cov: np.ndarray | None) -> FieldMoments:
        """Moments of the fields from those of all that is integrated over, (S, D) and (S, D, D)."""
        ...

    def log_constant(self) -> np.ndarray:
        """What the log of the integral lacks to the log-partition, (S,)."""
        ...

    def sources(self) -> list[str]:
        """Texts of the compiled loops that integrate it."""
        ...

    def doubt(self, seen: Doubt | None) -> tuple[np.ndarray, np.ndarray]:
        """(S,) each: what was missed may move the mean by, in units of the whitened fields; and whether anything was
        missed, however little that is.  ``seen``: what the integrator summed up of the evaluations."""
        ...


@dataclass(frozen=True)
class Task:
    """Samples of a batch that are integrated in one way: which (n,), by which posterior, and their data.

    otherwise: asked where that misses the error asked for.  bounded: knows the log-partition where all rows are known
    equally well, which bounds that of others.
    """

    where: np.ndarray
    posterior: Kind
    observed: Any
    omega: np.ndarray
    V: np.ndarray
    otherwise: Kind | None = None
    bounded: Kind | None = None

    def take(self, index: np.ndarray, posterior: Kind) -> Task:
        """Some of its samples, by another posterior."""
        V = self.V if len(self.V) == 1 else self.V[index]
        return Task(self.where[index], posterior, self.observed.take(index), self.omega[index], V)


class Posterior(abc.ABC):
    """How the posterior of the fields given one output is integrated.

    dim: dimensions of the integral.  summed: how many of them the integrand sums over by itself.  smooth: whether the
    integrand is, so that a lattice converges fast.  broken: whether it is continuous or bounded, but with kinks or
    jumps: a lattice converges like a power of its step.  tabled: whether it is integrated layer by layer.  along: how
    many directions beside are integrated in closed form.  sought: whether the fields are found by searches.  boxed:
    whether it cuts a box down by itself.  framed: whether it is known in closed form but for one integral.  alike:
    whether the covariance is the same whatever the output is, so that any one of them tells E.  outputs: (n, M) all
    there are, where these are few and log-partitions exact, so that means over them are sums; None elsewhere.  dropped:
    relative size of what a single posterior leaves out by design, which its errors do not state.
    """

    dim: int
    smooth: bool
    broken: bool = False
    summed: int = 0
    tabled: bool = False
    along: int = 0
    sought: bool = False
    boxed: bool = False
    framed: bool = False
    alike: bool = False
    outputs: np.ndarray | None = None
    dropped: float = 0.0

    @abc.abstractmethod
    def read(self, observation: Observation) -> Any:
        """What the integrand needs of the outputs, :class:`Observed`; InputError where one is no output of this
        model."""

    @abc.abstractmethod
    def tasks(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Task, ...]:
        """Which samples are integrated how; one in two tasks is taken from where its error is smaller.

        omega (S, P, T), V (1, P, P) or (S, P, P) positive definite, or an InputError.
        """

    @abc.abstractmethod
    def describe(self) -> tuple[str, str]:
        """(where the posterior lives, how it is integrated), as clauses of a sentence."""


class Kind(Posterior):
    """A posterior that is integrated in one way."""

    @abc.abstractmethod
    def at(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> Integrand:
        """Posteriors of a batch; omega (S, P, T), V (1, P, P) or (S, P, P) positive definite, or an InputError."""

    @final
    def tasks(self, observed: Any, omega: np.ndarray, V: np.ndarray) -> tuple[Task, ...]:
        return (Task(np.arange(len(omega)), self, observed, omega, V),)


# ------------------------------------------------------------------------------------------------------ whitened fields


@dataclass(frozen=True)
class Cavity:
    """The Gaussian of the fields before outputs are seen: Z = omega + L zeta, V = L L^T, with the rows in some order.

    centre (S, P, T): omega.  factor (S, P, P): L.  order (P,): of the rows in zeta.
    """

    centre: np.ndarray
    factor: np.ndarray
    order: tuple[int, ...]

    @classmethod
    def of(cls, omega: np.ndarray, V: np.ndarray, order: tuple[int, ...]) -> Cavity:
        rows = list(order)
        factor = cholesky(V[..., rows, :][..., :, rows])
        return cls(omega, np.broadcast_to(factor, (len(omega), *factor.shape[1:])), order)

    def take(self, index: slice | np.ndarray) -> Cavity:
        return Cavity(self.centre[index], self.factor[index], self.order)

    def fields(self, mean: np.ndarray, cov: np.ndarray | None) -> FieldMoments:
        """Moments of the fields from those of zeta, (S, P T) and (S, P T, P T)."""
        S, P, T = self.centre.shape
        order, factor = list(self.order), self.factor
        zeta = mean.reshape(S, P, T)
        inverse = np.linalg.inv(factor)
        g, inside = np.empty_like(self.centre), np.empty_like(self.centre)
        g[:, order] = np.swapaxes(inverse, 1, 2) @ zeta
        inside[:, order] = factor @ zeta
        inside += self.centre
        if cov is None:
            return FieldMoments(inside, g, None, None)
        second = cov.reshape(S, P, T, P, T)
        spread, dg = np.empty_like(second), np.empty_like(second)
        grid = np.ix_(range(S), order, range(T), order, range(T))
        spread[grid] = np.einsum("spi,sitju,sqj->sptqu", factor, second, factor, optimize=True)
        centred = second - np.eye(P * T).reshape(P, T, P, T)
        dg[grid] = np.einsum("sip,sitju,sjq->sptqu", inverse, centred, inverse, optimize=True)
        return FieldMoments(inside, g, spread, dg)


class Whitening(Protocol):
    """A Gaussian of means ``centre`` (S, ...) and covariances factor factor^T, and the way back from its moments."""

    @property
    def centre(self) -> np.ndarray: ...

    @property
    def factor(self) -> np.ndarray: ...

    def take(self, index: slice | np.ndarray) -> Self: ...

    def fields(self, mean: np.ndarray, cov: np.ndarray | None) -> FieldMoments: ...


class Block(abc.ABC):
    """What every integrand of one block of samples holds: the Gaussian that is whitened, and where its numbers are.

    Most have maxima to begin with and miss nothing; those that do say so.
    """

    widening = 1.0
    modeless = False
    broken = False
    bordered = False
    ended = False
    saturating = False
    tailed = False
    latents = 0
    dim: int
    residuals: int
    branches: int

    def __init__(self, cavity: Whitening) -> None:
        self.cavity = cavity
        self.omega, self.factor = cavity.centre, cavity.factor
        self.samples = len(self.omega)

    @property
    def outlying(self) -> np.ndarray:
        """(S,) largest mean of a field, which the model has of variance one at most."""
        return np.asarray(np.abs(self.omega).reshape(self.samples, -1).max(axis=1, initial=0.0))

    def prepared(self, rtol: float, cov: bool) -> Self:
        return self

    def points(self) -> tuple[PointProgram, np.ndarray] | None:
        return None

    def sources(self) -> list[str]:
        """Texts of the compiled loops that integrate it, with second moments; none where it is numpy code alone."""
        found = self.points()
        if found is None or not self.residuals:
            return []
        point = found[0]
        if point.dim == 0 or point.dim not in LATTICES:
            return [points_source(point)]
        cells = cells_source(point, LATTICES[point.dim].cell ** point.dim, True)
        balls = [balls_source(point, True, rules(point.dim))] if serves(self) else []
        return [*balls, cells, points_source(point)]

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average | None:
        return None

    @property
    @abc.abstractmethod
    def whitened(self) -> np.ndarray:
        """Where the whitened numbers are among the coordinates that the integrator reports, in their order."""

    @abc.abstractmethod
    def log_density(self) -> np.ndarray:
        """What is left out of the integrand, (S,), beside the factors of 2 pi of the whitened numbers."""

    def fields(self, mean: np.ndarray, cov: np.ndarray | None) -> FieldMoments:
        where = self.whitened
        return self.cavity.fields(mean[:, where], None if cov is None else cov[:, where][:, :, where])

    def log_constant(self) -> np.ndarray:
        return np.asarray(-0.5 * len(self.whitened) * np.log(2 * np.pi) + self.log_density())

    def doubt(self, seen: Doubt | None) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.samples), np.zeros(self.samples, dtype=bool)


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


def whiten(Z: np.ndarray, omega: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """L^{-1} (Z - omega), (..., P, T)."""
    return np.asarray(np.linalg.solve(factor, Z - omega))


def entries_of(observation: Observation) -> Coordinates:
    """The entries of an output as its coordinates, (S, M)."""
    y = observation.y
    return Coordinates(y.reshape(len(y), math.prod(y.shape[1:])), np.zeros(len(y)))


def log_whitening(factor: np.ndarray, free: int, tokens: int) -> np.ndarray:
    """What whitening the rows after the ``free`` first ones adds to the log-partition, (S,); factor (S, P, P) of V."""
    return np.asarray(-tokens * np.log(np.einsum("sii->si", factor)[:, free:]).sum(axis=1))


def log_noise(entries: int, noise: float) -> float:
    """What the noise in whose units misfits are adds to the log-partition; nothing where there is none."""
    return float(-0.5 * entries * np.log(2 * np.pi * noise)) if noise else 0.0
