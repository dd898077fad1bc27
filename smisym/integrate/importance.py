"""Mixture importance sampling of posteriors with a Gaussian part, for many dimensions or narrow ridges.

Proposal: one Gaussian for each local maximum of the posterior (every branch and symmetry image that the
search finds), with the covariance of its linearisation, adapted to the samples, plus the prior, which bounds
the weights.  Points: Sobol with independent random shifts, whose spread is the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from smisym.base import patience
from smisym.integrate.accuracy import SAMPLED_BUDGET
from smisym.integrate.averages import SURE, Average
from smisym.integrate.cells import inner_error, inner_sums
from smisym.integrate.modes import Doubt, Integrand, Summed, at_points
from smisym.integrate.seeking import find_modes

# Components of the mixture besides the prior; share that the prior always keeps; inflation of the covariances.
_COMPONENTS = 8
_PRIOR_SHARE = 0.1
_INFLATION = 1.25
REPLICATES = 8
_ADAPT = (512, 1024)
# Points of each shift in the first pass.
_FIRST = 128
# Numbers held at once in the largest array of a batch.
_MEMORY = 2_000_000


@dataclass
class _Mixture:
    """Proposals of S posteriors: weight (S, K), mean (S, K, d), factor (S, K, d, d) lower triangular."""

    weight: np.ndarray
    mean: np.ndarray
    factor: np.ndarray

    def inverse(self) -> np.ndarray:
        return np.linalg.inv(self.factor)

    def log_constant(self) -> np.ndarray:
        """(S, K): log weight - log det factor; -inf for a component that is switched off."""
        with np.errstate(divide="ignore"):
            return np.log(self.weight) - np.log(np.einsum("skii->ski", self.factor)).sum(axis=2)


@dataclass
class _Draw:
    """Points of one pass: x (d, n, S), zeta (branches, D, n, S) is (x, r), log weight of each (branches, n, S)."""

    x: np.ndarray
    r: np.ndarray
    log_w: np.ndarray
    along: np.ndarray | None
    doubt: Doubt | None
    summed: Summed | None


def mixture(
    integrand: Integrand,
    *,
    rtol: float,
    cov: bool,
    rng: np.random.Generator,
    max_nodes: int | None = None,
) -> Average:
    """Importance sampling with its error from eight independent shifts; doubles the points until ``rtol`` or budget.

    ``error`` is one standard error, as a norm over zeta; ``converged`` says whether it is below ``rtol``.
    """
    S, D = integrand.samples, integrand.dim + integrand.residuals
    budget = max_nodes or SAMPLED_BUDGET
    start = _broad(integrand) if integrand.modeless else _start(integrand)
    doubt = Doubt.none(S)
    proposal = _adapt(integrand, start, rng, doubt)
    result = Average(
        np.full(S, np.nan),
        np.full((S, D), np.nan),
        np.full((S, D, D), np.nan) if cov else None,
        np.full(S, np.inf),
        np.full(S, float(sum(_ADAPT) * integrand.branches)),
        np.zeros(S, dtype=bool),
        doubt,
        np.full(S, SURE),
    )
    per_replicate = _FIRST
    active = np.arange(S)
    while active.size:
        group = max(1, _MEMORY // (per_replicate * REPLICATES * D))
        for i in range(0, active.size, group):
            index = active[i : i + group]
            before = result.take(index)
            summed = _estimate(integrand, proposal, index, per_replicate, rng, result)
            if per_replicate > _FIRST:
                _pool(result, index, before, 1 - _FIRST / per_replicate, summed)
            result.converged[index] = result.error[index] <= rtol
        per_replicate *= 2
        spent = result.nodes[active] + per_replicate * REPLICATES * integrand.branches
        active = active[~result.converged[active] & (spent <= budget)]
    return result


def _start(integrand: Integrand) -> _Mixture:
    """Laplace mixture at the local maxima, and the prior as component 0."""
    S, d = integrand.samples, integrand.dim
    modes = find_modes(integrand, np.arange(S))
    normal = np.eye(d) + np.einsum("skmi,skmj->skij", modes.jacobian, modes.jacobian)
    usable = np.isfinite(modes.value) & np.isfinite(normal).all(axis=(2, 3))
    normal[~usable] = np.eye(d)
    log_mass = np.where(usable, modes.value - 0.5 * np.linalg.slogdet(normal)[1], -np.inf)
    order = np.argsort(-log_mass, axis=1)
    weight = np.zeros((S, 1 + _COMPONENTS))
    mean = np.zeros((S, 1 + _COMPONENTS, d))
    covariance = np.broadcast_to(np.eye(d), (S, 1 + _COMPONENTS, d, d)).copy()
    weight[:, 0] = _PRIOR_SHARE
    filled = np.zeros(S, dtype=int)
    take = np.arange(S)
    for rank in range(order.shape[1]):
        k = order[:, rank]
        x, precision, mass = modes.x[take, k], normal[take, k], log_mass[take, k]
        best = log_mass[take, order[:, 0]]
        apart = x[:, None, :] - mean[:, 1:]
        distance = np.einsum("ski,sij,skj->sk", apart, precision, apart)
        known = ((distance < 0.25) & (weight[:, 1:] > 0)).any(axis=1)
        add = np.isfinite(mass) & (mass > best - 15) & ~known & (filled < _COMPONENTS)
        at = 1 + filled[add]
        weight[add, at] = np.exp(mass[add] - best[add])
        mean[add, at] = x[add]
        covariance[add, at] = _INFLATION * np.linalg.inv(precision[add])
        filled += add
    total = weight[:, 1:].sum(axis=1, keepdims=True)
    weight[:, 1:] *= np.where(total > 0, (1 - _PRIOR_SHARE) / np.where(total > 0, total, 1), 0)
    weight[:, 0] = 1 - weight[:, 1:].sum(axis=1)
    return _Mixture(weight, mean, _factor(covariance, np.broadcast_to(np.eye(d), covariance.shape)))


def _broad(integrand: Integrand) -> _Mixture:
    """The prior, and narrower components all over it, which adapt to the posterior."""
    S, d = integrand.samples, integrand.dim
    centres = ndtri(np.clip(_sobol(d, 2 * _COMPONENTS)[:, 1 : 1 + _COMPONENTS], 1e-16, 1 - 1e-16)).T
    weight = np.full((S, 1 + _COMPONENTS), (1 - 2 * _PRIOR_SHARE) / _COMPONENTS)
    weight[:, 0] = 2 * _PRIOR_SHARE
    mean = np.zeros((S, 1 + _COMPONENTS, d))
    mean[:, 1:] = centres
    factor = np.broadcast_to(np.eye(d), (S, 1 + _COMPONENTS, d, d)).copy()
    factor[:, 1:] *= 0.6
    return _Mixture(weight, mean, factor)


def _adapt(integrand: Integrand, proposal: _Mixture, rng: np.random.Generator, doubt: Doubt) -> _Mixture:
    """Two rounds of population Monte Carlo: weights, means and covariances from weighted points."""
    S, d = integrand.samples, integrand.dim
    for n in _ADAPT:
        group = max(1, _MEMORY // (n * (d + integrand.residuals) * integrand.branches))
        for i in range(0, S, group):
            index = np.arange(i, min(i + group, S))
            part = _Mixture(proposal.weight[index], proposal.mean[index], proposal.factor[index])
            draw = _draw(integrand, part, index, n, 1, rng)
            _update(part, draw)
            if draw.doubt is not None:
                doubt.add(index, draw.doubt)
            proposal.weight[index], proposal.mean[index], proposal.factor[index] = part.weight, part.mean, part.factor
    return proposal


def _update(part: _Mixture, draw: _Draw) -> None:
    d = part.mean.shape[2]
    log_w = np.logaddexp.reduce(draw.log_w, axis=0)  # (n, S)
    w = np.exp(log_w - log_w.max(axis=0))
    w = np.where(np.isfinite(w), w, 0.0)
    total = w.sum(axis=0)
    told = total > 0  # no point may have met the posterior: its mixture stays as it is
    w /= np.where(told, total, 1.0)
    x = np.moveaxis(draw.x, 0, 2)  # (n, S, d)
    responsibility = np.exp(_component_logs(part, draw.x))  # (K, n, S)
    responsibility /= responsibility.sum(axis=0)
    mass = w * responsibility
    share = mass.sum(axis=1)  # (K, S)
    size = share**2 / np.maximum((mass**2).sum(axis=1), 1e-300)
    # A component is moved only where enough effective points speak for it.
    moved = ((size > 4.0 * d) & (share > 0)).T  # (S, K)
    moved[:, 0] = False
    safe = np.where(share > 0, share, 1.0)
    mean = np.einsum("kns,nsd->skd", mass, x) / safe.T[..., None]
    second = np.einsum("kns,nsd,nse->skde", mass, x, x, optimize=True) / safe.T[..., None, None]
    covariance = second - mean[..., :, None] * mean[..., None, :]
    covariance = np.where(moved[..., None, None], _INFLATION * covariance, part.factor @ np.swapaxes(part.factor, 2, 3))
    old = part.factor @ np.swapaxes(part.factor, 2, 3)
    covariance = np.where(moved[..., None, None], covariance, old)
    part.mean = np.where(moved[..., None], mean, part.mean)
    part.factor = _factor(covariance, old)
    weight = np.where(part.weight > 0, share.T + 1e-3, 0.0)
    weight[:, 0] = np.maximum(weight[:, 0], _PRIOR_SHARE)
    part.weight = np.where(told[:, None], weight / weight.sum(axis=1, keepdims=True), part.weight)


def _factor(covariance: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Cholesky factors (S, K, d, d), of ``fallback`` where a covariance is not safely positive definite."""
    values = np.linalg.eigvalsh(np.where(np.isfinite(covariance), covariance, 0.0))
    safe = (values[..., 0] > 1e-12 * values[..., -1]) & np.isfinite(covariance).all(axis=(2, 3))
    return np.linalg.cholesky(np.where(safe[..., None, None], covariance, fallback))


def _component_logs(part: _Mixture, x: np.ndarray) -> np.ndarray:
    """(K, n, S): log of weight * Gaussian density, up to the (2 pi)^(d/2) common to all."""
    inverse, constant = part.inverse(), part.log_constant()
    d = x.shape[0]
    out = np.empty((part.weight.shape[1], *x.shape[1:]))
    for k in range(out.shape[0]):
        if not (part.weight[:, k] > 0).any():
            out[k] = -np.inf
            continue
        square = np.zeros(x.shape[1:])
        shifted = x - part.mean[:, k].T[:, None, :]
        for i in range(d):
            z = shifted[0] * inverse[:, k, i, 0]
            for j in range(1, i + 1):
                z = z + shifted[j] * inverse[:, k, i, j]
            square += z * z
        out[k] = constant[:, k] - 0.5 * square
    return out


@lru_cache(maxsize=16)
def _sobol(dim: int, n: int) -> np.ndarray:
    """(dim, n) unscrambled Sobol points; randomness comes from shifts."""
    from scipy.stats import qmc  # slow to import

    return qmc.Sobol(dim, scramble=False).random(n).T.copy()


def _draw(
    integrand: Integrand, part: _Mixture, index: np.ndarray, n: int, replicates: int, rng: np.random.Generator
) -> _Draw:
    """n points for each of ``replicates`` independent shifts, for each posterior."""
    patience.check()
    S, d = len(index), integrand.dim
    shift = rng.random((d + 1, replicates, 1, S))
    uniform = (_sobol(d + 1, n)[:, None, :, None] + shift) % 1.0
    uniform = np.clip(uniform, 1e-16, 1 - 1e-16).reshape(d + 1, replicates * n, S)
    z = ndtri(uniform[1:])
    edges = np.cumsum(part.weight, axis=1)
    component = (uniform[0][..., None] > edges[:, :-1]).sum(axis=2)  # (n, S)
    take = np.arange(S)
    mean, factor = part.mean[take, component], part.factor[take, component]  # (n, S, d), (n, S, d, d)
    x = np.moveaxis(mean + np.einsum("nsij,jns->nsi", factor, z, optimize=True), 2, 0)
    log_q = np.logaddexp.reduce(_component_logs(part, x), axis=0)
    found = at_points(integrand, index, x)
    r = found.residuals
    log_f = found.log_weight - 0.5 * (x**2).sum(axis=0) - 0.5 * (found.squared**2).sum(axis=1)
    log_f = np.where(np.isfinite(log_f), log_f, -np.inf)
    return _Draw(x, np.where(np.isfinite(r), r, 0.0), log_f - log_q, found.along, found.doubt, found.summed)


def _estimate(
    integrand: Integrand,
    proposal: _Mixture,
    index: np.ndarray,
    n: int,
    rng: np.random.Generator,
    result: Average,
) -> bool:
    """One estimate from eight shifts of n points, written into ``result``; whether inner sums are part of its error."""
    S, d = len(index), integrand.dim
    part = _Mixture(proposal.weight[index], proposal.mean[index], proposal.factor[index])
    draw = _draw(integrand, part, index, n, REPLICATES, rng)
    if draw.doubt is not None and result.doubt is not None:
        result.doubt.add(index, draw.doubt)
    top = draw.log_w.max(axis=(0, 1))
    top = np.where(np.isfinite(top), top, 0.0)
    w = np.exp(draw.log_w - top).reshape(len(draw.log_w), REPLICATES, n, S)
    zeta = [np.broadcast_to(row, draw.log_w.shape).reshape(w.shape) for row in draw.x]
    zeta += [draw.r[:, j].reshape(w.shape) for j in range(integrand.residuals)]
    mass = w.sum(axis=(0, 2))  # (replicates, S)
    first = np.stack([(w * row).sum(axis=(0, 2)) for row in zeta])  # (D, replicates, S)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = mass.sum(axis=0)
        mean = first.sum(axis=1) / total
        # Linearised ratio: each shift's deviation from the pooled mean, weighted by its own mass.
        deviation = (first - mean[:, None] * mass) / (total / REPLICATES)
        error = np.sqrt((deviation**2).sum(axis=(0, 1)) / (REPLICATES * (REPLICATES - 1)))
        # From the points themselves: the shifts may agree by luck where a few points carry all the mass.
        ess = w.sum(axis=(0, 1, 2)) ** 2 / (w**2).sum(axis=(0, 1, 2))
        result.log_norm[index] = top + np.log(total / (REPLICATES * n)) + 0.5 * d * np.log(2 * np.pi)
    result.mean[index] = mean.T
    if result.cov is not None:
        for i, a in enumerate(zeta):
            wa = w * a
            for j in range(i, len(zeta)):
                product = wa * zeta[j]
                if draw.summed is not None and draw.summed.second is not None and i >= d:
                    product = w * draw.summed.second[i - d, j - d].reshape(w.shape[1:])
                value = product.sum(axis=(0, 1, 2)) / total - mean[i] * mean[j]
                result.cov[index, i, j] = result.cov[index, j, i] = value
        if draw.along is not None:
            along = np.where(np.isfinite(draw.along), draw.along, 0.0)
            weight = w.reshape(len(w), -1, S) / total
            inside = np.arange(d, len(zeta))
            block = np.ix_(index, inside, inside)
            result.cov[block] += np.einsum("bns,bijns,bikns->sjk", weight, along, along, optimize=True)
    if draw.summed is not None:
        inner = inner_sums(draw.x, draw.r[0], draw.summed, w.reshape(-1, S))
        error = error + inner_error(inner, total, mean.T)
    error = np.where(np.isfinite(error) & (ess >= 20), error, np.inf)
    result.error[index] = error
    result.nodes[index] += n * REPLICATES * integrand.branches
    return draw.summed is not None


def _pool(result: Average, index: np.ndarray, before: Average, points: float, summed: bool) -> None:
    """Writes what all passes make together of posteriors of which the last is in ``result``, and the others ``before``.

    points: those of the others, beside those of the last.  A pass that is kept because its own error is small has, on
    average, too few points far out, and so too narrow a posterior: of sign(z1^2 - z2^2) at 3e-2 variances were 0.7 %
    too small.  All points that were drawn, whatever they told, have no such bias.
    """
    known = np.isfinite(before.error) & np.isfinite(result.error[index])
    if not known.any():
        return
    index, before = index[known], before.take(known)
    share = points * np.exp(before.log_norm - result.log_norm[index])
    share = share / (1 + share)  # of all weight
    apart = result.mean[index] - before.mean
    if result.cov is not None and before.cov is not None:
        between = np.einsum("s,si,sj->sij", share * (1 - share), apart, apart)
        rest = (1 - share)[:, None, None] * result.cov[index]
        result.cov[index] = share[:, None, None] * before.cov + rest + between
    result.mean[index] -= share[:, None] * apart
    log = np.logaddexp(before.log_norm + np.log(points), result.log_norm[index])
    result.log_norm[index] = log - np.log1p(points)
    old, new = points * before.error, result.error[index]
    # Errors of inner sums do not average out.
    result.error[index] = (old + new if summed else np.hypot(old, new)) / (1 + points)
