"""Where a noisy output puts the coordinates v of its noiseless value, and how far it leaves them open.

v = centre + S a sinh(t / a) with t standard normal to the integrator: close to a Gaussian with the centre and
covariance S S^T of the posterior of v where that is one, and with tails that no posterior outgrows, since fields are
Gaussian.  Nothing here decides what is integrated, only in which coordinates: a poor place costs nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np

from smisym.base.sobol import Normals
from smisym.charts.base import Arrays, LevelSet, Unfolding
from smisym.integrate.modes import Values, levenberg, log_density

# From how many standard deviations on the coordinates are stretched.
_STRETCH = 2.5
# Points, for each dimension, at which the likelihood is probed, and how many of them maxima are sought from.
_PROBES, _STARTS, _STEPS = 16, 4, 20
# Draws of the free fields that say where v lies before y is seen.
_DRAWS = 8
# Components at most, and how much less mass (in nats) is not worth one.
_COMPONENTS, _WORTH = 4, 9.0
# Standard deviations apart from which two maxima are two.
_APART = 4.0
_ROUNDS = 4
# Rounds in which components are fitted to weighted points, points for each dimension, how many standard deviations of
# the last fit these have, and by how much the new covariance is enlarged.
_REFITS, _POINTS, _REACH, _INFLATION = 3, 32, 2.0, 1.6


class Likelihood(Protocol):
    """The likelihood of v for a block of samples."""

    unfolding: Unfolding

    def misfit(self, index: np.ndarray, v: Arrays) -> np.ndarray:
        """What v (K arrays (n, C)) misses of the outputs, in units of the noise, (M, n, C)."""
        ...


class Shell(Likelihood, Protocol):
    """The posteriors of one block of samples around their level sets.

    u (S, M): the outputs.  others: how many free fields and latent coordinates there are beside v.
    """

    samples: int
    others: int
    u: np.ndarray
    level_set: LevelSet

    def at(self, index: np.ndarray, x: np.ndarray, v: Arrays) -> Values:
        """Residuals (branches, m, n, C), log-weight and spread of the noiseless channel at x (others, n, C) and v."""
        ...


@dataclass(frozen=True)
class Places:
    """Components for each sample: log_weight (S, J), centre (S, J, K), factor and its inverse (S, J, K, K)."""

    log_weight: np.ndarray
    centre: np.ndarray
    factor: np.ndarray
    inverse: np.ndarray

    @property
    def components(self) -> int:
        return self.centre.shape[1]

    def take(self, index: np.ndarray) -> Places:
        """The same for some of the samples."""
        return Places(self.log_weight[index], self.centre[index], self.factor[index], self.inverse[index])

    def at(self, component: int, index: np.ndarray, t: np.ndarray) -> Arrays:
        """v, K arrays (n, C), where the integrator's variables are t (K, n, C)."""
        w = _STRETCH * np.sinh(t / _STRETCH)
        return _affine(self.centre[index, component], self.factor[index, component], w)

    def log_share(self, component: int, index: np.ndarray, v: Arrays, flips: np.ndarray) -> np.ndarray:
        """Log of the component's share of the integrand at v over its own density there, relative to exp(-t^2/2).

        Share is density over the sum of all densities at v and at its images, so that its own density cancels.
        """
        total = np.full(np.shape(v[0]), -np.inf)
        for k in range(self.components):
            for flip in flips:
                np.logaddexp(total, self._log_density(k, index, v, flip), out=total)
        return self.log_weight[index, component] - total

    def _log_density(self, k: int, index: np.ndarray, v: Arrays, flip: np.ndarray) -> np.ndarray:
        """Log of a component's density at v * flip, with its weight, without the factors of 2 pi."""
        centre, inverse = self.centre[index, k], self.inverse[index, k]
        away = [sign * value - centre[:, i] for i, (sign, value) in enumerate(zip(flip, v, strict=True))]
        out = np.broadcast_to(
            self.log_weight[index, k] + np.log(np.einsum("cii->ci", inverse)).sum(axis=1), np.shape(v[0])
        ).copy()
        for i in range(len(away)):
            w = sum((inverse[:, i, j] * away[j] for j in range(1, i + 1)), inverse[:, i, 0] * away[0]) / _STRETCH
            t = _STRETCH * np.arcsinh(w)
            out -= 0.5 * t * t + 0.5 * np.log1p(w * w)
        return out


class _Problem:
    """The posterior of v with a Gaussian for what is known before y: v = mean + factor x, and r is the misfit."""

    branches, widening, modeless, broken = 1, 1.0, False, False
    bordered, ended, saturating, tailed = False, False, False, False
    latents = 0
    outlying = 0.0

    def __init__(self, around: Shell, mean: np.ndarray, factor: np.ndarray) -> None:
        self.around, self.mean, self.factor = around, mean, factor
        self.samples, self.dim = mean.shape
        self.residuals = around.u.shape[1]

    def points(self) -> None:
        return None

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        misfit = self.around.misfit(index, _affine(self.mean[index], self.factor[index], x))
        return Values(misfit[None], np.zeros((1, *x.shape[1:])))


def _affine(mean: np.ndarray, factor: np.ndarray, x: np.ndarray) -> Arrays:
    """mean + factor x, K arrays (n, C), for mean (C, K), lower triangular factor (C, K, K) and x (K, n, C)."""
    return [sum((factor[:, i, j] * x[j] for j in range(i + 1)), mean[:, i]) for i in range(len(x))]


def find_places(around: Shell) -> Places:
    """Maxima of the posterior of v, each with the covariance of a Gaussian that fits around it."""
    mean, factor = _prior(around)
    problem = _Problem(around, mean, factor)
    x, value, jacobian = _maxima(problem)
    centre = mean[:, None] + np.einsum("sij,skj->ski", factor, x)
    precision = np.eye(problem.dim) + np.einsum("skmi,skmj->skij", jacobian, jacobian)
    known = np.linalg.inv(factor)
    precision = np.einsum("sji,skjl,slm->skim", known, precision, known, optimize=True)
    log_mass = value - 0.5 * np.linalg.slogdet(precision)[1]
    log_weight, centre, precision = _distinct(log_mass, centre, precision, around.unfolding.flips)
    prior_precision = np.einsum("sji,sjm->sim", known, known)
    widths = [_widths(around, centre[:, j], precision[:, j], prior_precision) for j in range(centre.shape[1])]
    places = components(log_weight, centre, np.stack(widths, axis=1))
    for _ in range(_REFITS):
        places = refit(around, places, mean, known)
    return places


def components(log_weight: np.ndarray, centre: np.ndarray, factor: np.ndarray) -> Places:
    """Components with these weights (S, J), centres (S, J, K) and lower triangular factors (S, J, K, K)."""
    return Places(log_weight, centre, factor, np.linalg.inv(factor))


def _wide(around: Likelihood, places: Places, j: int, mean: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, ...]:
    """Points (K, n, S) of the integrator's variables that reach further than component j, v there (K, n, S), and the
    log (n, S) of what the component adds to the integral, with the prior of v for the fields."""
    S, _, K = places.centre.shape
    index = np.arange(S)
    t = _REACH * np.broadcast_to(normals(K, _POINTS * K)[..., None], (K, _POINTS * K, S))
    v = places.at(j, index, t)
    misfit = around.misfit(index, v)
    away = _affine(np.zeros((S, K)), known, np.array([value - mean[:, i] for i, value in enumerate(v)]))
    log_f = -0.5 * ((t * t).sum(axis=0) + (misfit**2).sum(axis=0) + sum(value * value for value in away))
    log_f += places.log_share(j, index, v, around.unfolding.flips)
    return t, np.array(v), np.where(np.isfinite(log_f), log_f, -np.inf)


def refit(around: Likelihood, places: Places, mean: np.ndarray, known: np.ndarray) -> Places:
    """Weight, centre and covariance of every component from weighted points that reach further than it does.

    Where an activation has saturated y leaves v open on one side: the curvature near the maximum says little there.
    """
    _, J, K = places.centre.shape
    log_weight, centre = places.log_weight.copy(), places.centre.copy()
    factor = places.factor.copy()
    for j in range(J):
        t, v, log_f = _wide(around, places, j, mean, known)
        log_w = log_f + 0.5 * (t * t).sum(axis=0) / _REACH**2
        top = log_w.max(axis=0)
        w = np.exp(log_w - np.where(np.isfinite(top), top, 0.0))
        total = w.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_mass = top + np.log(total)
            enough = total**2 / (w * w).sum(axis=0) > 2 * K + 2
            own = np.einsum("ns,ins->si", w, v) / total[:, None]
            apart = v - own.T[:, None]
            spread = np.einsum("ns,ins,jns->sij", w, apart, apart, optimize=True) / total[:, None, None]
        enough &= np.isfinite(spread).all(axis=(1, 2))
        spread[~enough] = np.eye(K)
        scale = np.trace(spread, axis1=1, axis2=2)[:, None, None]
        fitted = np.linalg.cholesky(_INFLATION * spread + 1e-12 * scale * np.eye(K))
        factor[:, j] = np.where(enough[:, None, None], fitted, factor[:, j])
        centre[:, j] = np.where(enough[:, None], own, centre[:, j])
        log_weight[:, j] = np.where(enough & np.isfinite(log_weight[:, j]), log_mass, log_weight[:, j])
    return components(log_weight - log_weight.max(axis=1, keepdims=True), centre, factor)


def _prior(around: Shell) -> tuple[np.ndarray, np.ndarray]:
    """Mean (S, K) and factor (S, K, K) of the covariance of v before y is seen, roughly.

    At draws of the free fields and latent coordinates the residuals are taken for linear in v.
    """
    S, K = around.samples, around.unfolding.size
    x = np.broadcast_to(normals(around.others, _DRAWS)[..., None], (around.others, _DRAWS, S))
    index = np.arange(S)
    reference = [np.full((_DRAWS, S), 0.6 - 0.4 * i / K) for i in range(K)]
    branches = max(1, around.level_set.branches // len(around.unfolding.flips))

    def residuals(v: Arrays) -> np.ndarray:
        r = around.at(index, x, v)[0][:branches]
        return np.moveaxis(r, 1, -1).reshape(branches * _DRAWS, S, -1)

    r = residuals(reference)
    step = 1e-4
    columns = []
    for i in range(K):
        columns.append((residuals([v + step * (j == i) for j, v in enumerate(reference)]) - r) / step)
    J = np.stack(columns, axis=-1)
    normal = np.einsum("nsmi,nsmj->nsij", J, J)
    usable = np.isfinite(normal).all(axis=(2, 3)) & np.isfinite(r).all(axis=2)
    normal = np.where(usable[..., None, None], normal, np.eye(K))
    covariance = np.linalg.inv(normal + 1e-9 * np.trace(normal, axis1=2, axis2=3)[..., None, None] * np.eye(K))
    shift = np.einsum("nsij,nsmj,nsm->nsi", covariance, J, np.where(np.isfinite(r), r, 0.0))
    v = np.array([np.broadcast_to(a[0, 0], ()) for a in reference]) - np.where(usable[..., None], shift, 0.0)
    mean = v.mean(axis=0)
    total = covariance.mean(axis=0) + np.einsum("nsi,nsj->sij", v - mean, v - mean) / len(v)
    return mean, np.linalg.cholesky(total)


def _maxima(problem: _Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Local maxima from the best of a few probes: x (S, n, K), exponent (S, n) and Jacobian (S, n, M, K) there."""
    S, K = problem.samples, problem.dim
    probes = normals(K, _PROBES * K)
    x = np.broadcast_to(probes[..., None], (*probes.shape, S))
    r, log_weight, *_ = problem.evaluate(np.arange(S), x)
    best = np.argsort(-log_density(x, r, log_weight)[0], axis=0)[:_STARTS]  # (n, S)
    start = np.moveaxis(probes[:, best], 2, 1).reshape(K, 1, -1)
    owner = np.repeat(np.arange(S), _STARTS)
    x, value, jacobian = levenberg(problem, owner, start, _STEPS)
    shape = (S, _STARTS)
    return x[:, 0].T.reshape(*shape, K), value[0].reshape(shape), jacobian[0].reshape(*shape, -1, K)


def _distinct(
    log_mass: np.ndarray, centre: np.ndarray, precision: np.ndarray, flips: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The maxima that matter, each once and up to flips, the best first: log-weight, centre, precision."""
    S, n = log_mass.shape
    take = np.arange(S)
    order = np.argsort(-log_mass, axis=1)
    log_mass, centre, precision = (a[take[:, None], order] for a in (log_mass, centre, precision))
    keep = np.zeros((S, n), dtype=bool)
    keep[:, 0] = True
    for k in range(1, n):
        near = np.zeros(S, dtype=bool)
        for other in range(k):
            for flip in flips:
                apart = flip * centre[:, k] - centre[:, other]
                far = np.minimum(
                    np.einsum("si,sij,sj->s", apart, precision[:, other], apart),
                    np.einsum("si,sij,sj->s", flip * apart, precision[:, k], flip * apart),
                )
                near |= keep[:, other] & (far < _APART**2)
        keep[:, k] = ~near & (log_mass[:, k] > log_mass[:, 0] - _WORTH) & (keep.sum(axis=1) < _COMPONENTS)
    J = int(keep.sum(axis=1).max())
    first = np.argsort(~keep, axis=1, kind="stable")[:, :J]
    log_weight = np.where(keep, log_mass - log_mass[:, :1], -np.inf)[take[:, None], first]
    return log_weight, centre[take[:, None], first], precision[take[:, None], first]


def _widths(around: Shell, centre: np.ndarray, precision: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Factor (S, K, K) of the covariance whose inverse is the mean curvature over the Gaussian with it.

    The curvature at the maximum itself may vanish (an even output at v = 0) where a step aside it does not.
    """
    S, K = centre.shape
    z = np.sqrt(K) * np.concatenate([np.eye(K), -np.eye(K)], axis=1)[..., None] * np.ones(S)
    index, step = np.arange(S), 1e-4
    factor: np.ndarray = np.linalg.cholesky(np.linalg.inv(precision))
    for _ in range(_ROUNDS):
        at = [around.misfit(index, _affine(centre, factor, z))]
        for i in range(K):
            moved = z.copy()
            moved[i] += step
            at.append(around.misfit(index, _affine(centre, factor, moved)))
        J = np.stack([(a - at[0]) / step for a in at[1:]])  # (K, M, 2K, S)
        found = np.einsum("imns,jmns->sij", J, J) / (2 * K) + np.swapaxes(factor, 1, 2) @ known @ factor
        found = np.where(np.isfinite(found).all(axis=(1, 2), keepdims=True), found, np.eye(K))
        covariance = factor @ np.linalg.inv(0.5 * (found + np.eye(K))) @ np.swapaxes(factor, 1, 2)
        factor = np.linalg.cholesky(0.5 * (covariance + np.swapaxes(covariance, 1, 2)))
    return factor


@cache
def normals(dim: int, count: int) -> np.ndarray:
    """(dim, count) quasi-random standard normal points, always the same."""
    if dim == 0:
        return np.zeros((0, count))
    return np.asarray(Normals(dim, 0).draw(1 << int(np.ceil(np.log2(count))))[:count].T)
