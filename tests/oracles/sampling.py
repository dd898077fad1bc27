"""Monte Carlo oracles: posterior moments for any number of layers and tokens, from the forward link alone.

* :func:`by_kernel` inverts nothing: it samples fields, runs the network and weighs what comes close to the output, at
  several bandwidths, extrapolated to zero.
* :func:`by_importance` conditions exactly: the last layer's scores are found numerically from the output, its field by
  a linear solve, and the change of volume is the numerical derivative of the network.

Both come with an error bar.  Nothing here imports the package under test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from oracles.description import Layer, Network
from oracles.fields import forward


@dataclass(frozen=True)
class Estimate:
    """Posterior mean of the fields (P, T), its standard error, g = V^-1 (mean - omega), and effective sample size.

    ``g_error`` is the standard error of g; ``log_partition`` is the log density of the last layer's scores vector u up
    to its sign (d u as base measure), or None where the method does not give it.
    """

    mean: np.ndarray
    error: np.ndarray
    g: np.ndarray
    g_error: np.ndarray
    samples: float
    log_partition: float | None = None
    log_partition_error: float | None = None


def draw(omega: np.ndarray, V: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Fields (P, T, count) with law N(omega, V), independent over tokens; V positive semidefinite.

    The root is the symmetric one: any other depends on the signs of eigenvectors, and on their choice where eigenvalues
    coincide, which differ from processor to processor; and with them would all that is drawn here.
    """
    values, vectors = np.linalg.eigh(V)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    # Rows of noise go to the fields in the order of their variances.
    rank = np.argsort(np.argsort(np.diag(V), kind="stable"), kind="stable")
    noise = rng.standard_normal((*omega.shape, count))[rank]
    return omega[:, :, None] + np.einsum("pq,qts->pts", root, noise)


# --------------------------------------------------------------------------------------------- nothing is inverted


def by_kernel(
    Z: np.ndarray,
    omega: np.ndarray,
    V: np.ndarray,
    network: Network,
    rng: np.random.Generator,
    *,
    samples: int,
    bandwidth: float,
    batches: int = 32,
) -> Estimate:
    """Posterior given the output at Z (P, T), by Gaussian kernels on the output; extrapolated in the bandwidth.

    The bias is a series in bandwidth squared: three bandwidths remove two of its terms, and what the third one changed
    is part of the error bar, beside the jackknife over batches.
    """
    target = forward(Z[:, :, None], network)[0]
    widths = bandwidth * np.array([1.0, 1.4, 1.96])
    sums = np.zeros((batches, 3, 1 + Z.size))
    for batch in range(batches):
        for _ in range(max(1, samples // batches // 50_000)):
            fields = draw(omega, V, 50_000, rng)
            distance = ((forward(fields, network)[0] - target) ** 2).sum(axis=(0, 1))
            near = distance < 36 * widths[-1] ** 2
            weight = np.exp(-0.5 * distance[near] / widths[:, None] ** 2)
            rows = np.concatenate([np.ones((1, near.sum())), fields[:, :, near].reshape(Z.size, -1)])
            sums[batch] += weight @ rows.T
    total = sums.sum(axis=0)
    effective = total[0, 0] / np.sqrt(4.0)  # a Gaussian kernel in two or more dimensions: sum w^2 <= sum w
    all_terms, two_terms = _extrapolated(total, widths)
    left_out = np.stack([_extrapolated(total - one, widths)[0] for one in sums])
    jackknife = np.sqrt((batches - 1) * left_out.var(axis=0))
    error = np.hypot(jackknife, all_terms - two_terms).reshape(Z.shape)
    mean = all_terms.reshape(Z.shape)
    inverse = np.linalg.inv(V)
    return Estimate(mean, error, inverse @ (mean - omega), abs(inverse) @ error, float(effective))


def _extrapolated(total: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means at bandwidth zero from all three bandwidths, and from the two narrowest."""
    means = total[:, 1:] / total[:, :1]
    square = widths**2
    lagrange = [np.prod([square[j] / (square[j] - square[i]) for j in range(3) if j != i]) for i in range(3)]
    two = (means[0] * square[1] - means[1] * square[0]) / (square[1] - square[0])
    return np.asarray(lagrange) @ means, two


# ------------------------------------------------------------------------------------------------ exact conditioning


def scores_roots(y: np.ndarray, layer: Layer, rng: np.random.Generator, starts: int = 60) -> np.ndarray:
    """All vectors u (R, T) found with attention(beta u u^T) = y, by least squares from random starts."""
    seen = _readable(y, layer)
    found: list[np.ndarray] = []
    for _ in range(starts):
        start = rng.standard_normal(len(y)) * rng.choice([0.5, 1.0, 2.0, 4.0])
        solved = optimize.least_squares(
            lambda u: (_readable(_attention(u[:, None], layer)[:, :, 0], layer) - seen).ravel(),
            start,
            xtol=3e-16,
            ftol=3e-16,
            gtol=1e-15,
        )
        if np.sqrt(2 * solved.cost) < 1e-9 and all(abs(solved.x - u).max() > 1e-5 for u in found):
            found.append(solved.x)
    return np.array(found)


def _attention(u: np.ndarray, layer: Layer) -> np.ndarray:
    """Attention (T, T, S) of one layer whose tokens project to u (T, S)."""
    return forward(u[None], Network(len(u), (layer,)))[0]


def _readable(y: np.ndarray, layer: Layer) -> np.ndarray:
    """The output in coordinates that keep small entries visible; any smooth coordinates serve."""
    return y if layer.linear else np.log(np.maximum(y, 1e-300))


def by_importance(
    Z: np.ndarray,
    omega: np.ndarray,
    V: np.ndarray,
    network: Network,
    rng: np.random.Generator,
    *,
    samples: int,
) -> Estimate:
    """Posterior given the output at Z (P, T): earlier layers from their prior, the last layer's field solved for.

    Weight of a solution: density of the last field given the others, over the volume factor sqrt(det J^T J), with J the
    derivative of the output with respect to the last field, by complex steps through the network.
    """
    y = forward(Z[:, :, None], network)[0][:, :, 0]
    alone = replace(network, layers=network.layers[-1:])
    roots = scores_roots(y, network.layers[-1], rng)
    if len(roots) == 0:
        raise ArithmeticError("no scores found for this output")
    low = slice(0, len(network.layers) - 1)
    fields = draw(omega, V, samples, rng)
    mixed = np.moveaxis(forward(fields, network)[1], 2, 0)
    inverse_low = np.linalg.pinv(V[low, low])
    gain = V[-1, low] @ inverse_low
    spread = V[-1, -1] - gain @ V[low, -1]
    expected = omega[-1][:, None] + np.einsum("p,pts->ts", gain, fields[low] - omega[low][:, :, None])
    log_weight, points = [], []
    for root in roots:
        last = np.linalg.solve(mixed, np.broadcast_to(root[:, None], (samples, len(root), 1)))[:, :, 0].T
        moved = np.concatenate([fields[low], last[None]])
        _check_solution(moved, y, network)
        distance = ((last - expected) ** 2).sum(axis=0)
        log_density = -0.5 * distance / spread - 0.5 * len(root) * np.log(2 * np.pi * spread)
        volume = _log_volume(moved, network) - _log_volume(root[None, :, None], alone)
        log_weight.append(log_density - volume)
        points.append(moved.reshape(Z.size, -1))
    return _weighted(np.stack(log_weight), np.stack(points), omega, V)


def _check_solution(fields: np.ndarray, y: np.ndarray, network: Network) -> None:
    """The solved fields must give the output back: a wrong inversion cannot pass unseen."""
    reached = _readable(forward(fields, network)[0], network.layers[-1])
    seen = _readable(y, network.layers[-1])
    if np.median(abs(reached - seen[:, :, None]).max(axis=(0, 1))) > 1e-8 * (1 + abs(seen).max()):
        raise ArithmeticError("the solved fields do not reproduce the output")


def _log_volume(fields: np.ndarray, network: Network) -> np.ndarray:
    """log sqrt(det J^T J), (S,), with J the derivative of the output with respect to the last field (T, S)."""
    size = fields.shape[1]
    linear, columns = network.layers[-1].linear, []
    for t in range(size):
        moved = fields.astype(complex)
        moved[-1, t] += 1e-40j
        output = forward(moved, network)[0]
        columns.append((output.imag / (1.0 if linear else output.real)).reshape(size * size, -1) / 1e-40)
    jacobian = np.moveaxis(np.stack(columns, axis=1), 2, 0)
    return np.log(np.linalg.svd(jacobian, compute_uv=False)).sum(axis=1)


def _weighted(log_weight: np.ndarray, points: np.ndarray, omega: np.ndarray, V: np.ndarray) -> Estimate:
    """Self-normalised moments; branches (R, S) of one draw stay together, for they are not independent."""
    peak = log_weight.max()
    weight = np.exp(log_weight - peak)
    per_draw = weight.sum(axis=0)
    total = per_draw.sum()
    flat = (weight[:, None] * points).sum(axis=0)
    mean = flat.sum(axis=1) / total
    error = np.sqrt(((flat - mean[:, None] * per_draw) ** 2).sum(axis=1)) / total
    inverse = np.linalg.inv(V)
    residual = ((flat - mean[:, None] * per_draw) / total).reshape(*omega.shape, -1)
    g_error = np.sqrt((np.einsum("pq,qts->pts", inverse, residual) ** 2).sum(axis=2))
    mean = mean.reshape(omega.shape)
    count = len(per_draw)
    return Estimate(
        mean=mean,
        error=error.reshape(omega.shape),
        g=inverse @ (mean - omega),
        g_error=g_error,
        samples=float(total**2 / (per_draw**2).sum()),
        log_partition=float(peak + np.log(total / count)),
        log_partition_error=float(per_draw.std() / per_draw.mean() / np.sqrt(count)),
    )
