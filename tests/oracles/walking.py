"""Oracle of first thresholds: random walks from the truth, which is a sample of its own posterior.

Nothing here imports the package under test: no chart, no posterior, no integrator.  Two walks that leave the posterior
of the fields given y unchanged start at the fields that y was made from, and forget them; then

    F(M) = E_y sum_ts G_ts M G_ts^T,     G_ts = E[z_t z_s^T | y] - delta_ts I

is the mean of the product of the two walks' G, whatever each of them has averaged over.  The walks may be any that are
reversible: constrained to a level set (:mod:`oracles.manifold`), or accepted by the likelihood under noise.  One that
has not forgotten its start makes F larger, and later windows of it less so: their difference is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from oracles.manifold import level_set_steps

Forward = Callable[[np.ndarray], np.ndarray]
"""(n, P, T) fields -> (n, K) noiseless outputs."""


@dataclass(frozen=True)
class Seen:
    """What walks and roots know of a network, or of any other function of fields.

    forward: the output, noiseless.  shape: (P, T).  rows (G, P, P): maps of the rows of Z, a group, that leave it
    unchanged.  noise: variance of what is added to each of its numbers.
    """

    forward: Forward
    shape: tuple[int, int]
    rows: np.ndarray
    noise: float = 0.0


@dataclass(frozen=True)
class Walked:
    """A largest rate, its standard error, and by how much a walk of half the length would have been larger."""

    rate: float
    error: float
    drift: float
    drift_error: float

    @property
    def alpha(self) -> float:
        return 1 / self.rate


@dataclass(frozen=True)
class Walk:
    """How long to walk: truths, steps of each of the two walks, and the largest step on a level set."""

    samples: int = 1000
    steps: int = 200
    step_size: float = 1.5
    seed: int = 0


def level_set_rate(seen: Seen, walk: Walk) -> Walked:
    """Largest rate by walks on {Z : f(Z) = y}, or under noise on {(Z, xi) : f(Z) + sqrt(noise) xi = y}."""
    forward, noise, (P, T) = seen.forward, seen.noise, seen.shape
    count = forward(np.ones((1, P, T))).shape[1] if noise else 0
    extra = -(-count // T)

    def constraint(Z: np.ndarray) -> np.ndarray:
        xi = Z[:, P:].reshape(len(Z), extra * T)[:, :count]
        return forward(Z[:, :P]) + np.sqrt(noise) * xi if noise else forward(Z)

    def states(truth: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
        start = np.concatenate([truth, rng.standard_normal((len(truth), extra, T))], axis=1)
        both = level_set_steps(constraint, np.concatenate([start, start]), walk.steps, rng, walk.step_size)
        return (state[:, :P] for state in both)

    return _rate(states, seen.shape, seen.rows, walk)


def likelihood_rate(seen: Seen, walk: Walk) -> Walked:
    """The same under noise by moves of the fields alone; f may be discontinuous.

    Moves sqrt(1 - b^2) Z + b xi keep the Gaussian law of the fields and are accepted by the likelihood (Cotter et al.
    2013); b runs over two decades, and two of three moves turn the fields of one token or of one row alone.
    """
    forward, noise, (P, T) = seen.forward, seen.noise, seen.shape

    def states(truth: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
        y = forward(truth)
        y = np.tile(y + np.sqrt(noise) * rng.standard_normal(y.shape), (2, 1))
        state = np.concatenate([truth, truth])
        log = _likelihood(forward(state), y, noise)
        for step in range(walk.steps):
            size = 2.0 ** -rng.uniform(0, 6, (len(state), 1, 1))
            if step % 3 == 1:
                size = size * (rng.integers(P, size=(len(state), 1, 1)) == np.arange(P)[:, None])
            elif step % 3 == 2:
                size = size * (rng.integers(T, size=(len(state), 1, 1)) == np.arange(T))
            proposed = np.sqrt(1 - size**2) * state + size * rng.standard_normal(state.shape)
            there = _likelihood(forward(proposed), y, noise)
            accept = np.log(rng.random(len(state))) < there - log
            state[accept], log[accept] = proposed[accept], there[accept]
            yield state

    return _rate(states, seen.shape, seen.rows, walk)


def _likelihood(f: np.ndarray, y: np.ndarray, noise: float) -> np.ndarray:
    return -0.5 * ((f - y) ** 2).sum(axis=1) / noise


def _rate(
    states: Callable[[np.ndarray, np.random.Generator], Iterator[np.ndarray]],
    shape: tuple[int, int],
    rows: np.ndarray,
    walk: Walk,
) -> Walked:
    """The rate from walks that come in pairs: the first half of the states are those of one walk from each truth."""
    truths, windows = [], []
    group = np.array([np.kron(g, np.eye(shape[1])) for g in rows])
    for block, start in enumerate(range(0, walk.samples, 500)):
        rng = np.random.default_rng([walk.seed, block])
        truth = rng.standard_normal((min(500, walk.samples - start), *shape))
        second = _second_moments(states(truth, rng), walk.steps, group)
        truths.append(truth)
        windows.append(second.reshape(2, 2, len(truth), *second.shape[2:]))
    both = np.concatenate(windows, axis=2)
    return walked_rate(np.concatenate(truths), both[:, 0], both[:, 1], rows)


def _second_moments(states: Iterable[np.ndarray], steps: int, group: np.ndarray, burn: float = 0.25) -> np.ndarray:
    """Means of z z^T over two windows of a walk, (2, n, d, d), d = P T, with all images under the group (G, d, d)."""
    sums: list[np.ndarray | int] = [0, 0]
    start = int(burn * steps)
    middle = start + (steps - start) // 2
    for step, state in enumerate(states):
        if step >= start:
            z = state.reshape(len(state), -1)
            sums[int(step >= middle)] = sums[int(step >= middle)] + z[:, :, None] * z[:, None, :]
    means = np.stack([sums[0] / (middle - start), sums[1] / (steps - middle)])
    return np.asarray(sum(g @ means @ g.T for g in group) / len(group))


def walked_rate(Z: np.ndarray, one: np.ndarray, two: np.ndarray, rows: np.ndarray) -> Walked:
    """Largest eigenvalue of F from the truths Z (n, P, T) and the windows (2, n, d, d) of two walks from each.

    rows (G, P, P): maps of the rows of Z that leave the output unchanged; the leading matrix commutes with them, as F
    keeps the cone of positive matrices.  The leading direction of one half of the samples is measured on the other.
    """
    n, P, T = Z.shape
    basis = _commuting(rows, P)
    z = Z.reshape(n, P * T)
    truth = _tables(z[:, :, None] * z[:, None, :], z[:, :, None] * z[:, None, :], basis, P, T)
    early = _tables(one[0], two[0], basis, P, T)
    late = _tables(one[1], two[1], basis, P, T)
    whole = 0.25 * (early + late + _tables(one[0], two[1], basis, P, T) + _tables(one[1], two[0], basis, P, T))
    values, drifts = np.empty(n), np.empty(n)
    for test in (np.arange(n) % 2 == 0, np.arange(n) % 2 == 1):
        m = np.linalg.eigh(whole[~test].mean(axis=0))[1][:, -1]
        M = np.einsum("k,kpq->pq", m, basis)
        known = T**2 * np.trace(M) ** 2 + T * np.sum(M * M)
        controls = np.einsum("i,nij,j->n", m, truth[test], m) - known
        for target, table in ((values, whole), (drifts, early - late)):
            target[test] = _without(np.einsum("i,nij,j->n", m, table[test], m), controls)
    return Walked(*_mean(values), *_mean(drifts))


def _without(values: np.ndarray, control: np.ndarray) -> np.ndarray:
    """Values less what a control of known mean explains of them."""
    cov = np.cov(values, control)
    return np.asarray(values - cov[0, 1] / cov[1, 1] * control)


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _tables(one: np.ndarray, two: np.ndarray, basis: np.ndarray, P: int, T: int) -> np.ndarray:
    """tr(A F_s(B)) of every sample s for A, B in the basis, symmetric, (n, k, k)."""
    eye = np.eye(P * T)
    shape = (-1, P, T, P, T)
    G, H = (one - eye).reshape(shape), (two - eye).reshape(shape)
    k, total = len(basis), np.empty((len(one), len(basis), len(basis)))
    for i in range(k):
        left = np.einsum("pq,nptas->nqtas", basis[i], G)
        for j in range(k):
            right = np.einsum("ab,nqtbs->nqtas", basis[j], H)
            total[:, i, j] = (left * right).sum(axis=(1, 2, 3, 4))
    return np.asarray(0.5 * (total + total.swapaxes(1, 2)))


def _commuting(rows: np.ndarray, P: int) -> np.ndarray:
    """Orthonormal basis (k, P, P) of the symmetric matrices that commute with all of ``rows`` (orthogonal ones)."""
    found = []
    for i in range(P):
        for j in range(i, P):
            B = np.zeros((P, P))
            B[i, j] = B[j, i] = 1.0
            found.append(np.mean([g @ B @ g.T for g in rows], axis=0).ravel())
    left, singular, _ = np.linalg.svd(np.array(found).T)
    return np.asarray(left[:, : (singular > 1e-9).sum()].T.reshape(-1, P, P))


def invariances(forward: Forward, candidates: list[np.ndarray], tokens: int) -> np.ndarray:
    """The finite group (G, P, P) generated by those of the orthogonal candidates (P, P) that leave f unchanged."""
    P = len(candidates[0])
    Z = np.random.default_rng(0).standard_normal((8, P, tokens))
    kept = [g for g in candidates if abs(forward(g @ Z) - forward(Z)).max() < 1e-9]
    group = [np.eye(P)]
    for element in group:  # the list grows on the way
        for generator in kept:
            product = generator @ element
            if min(abs(product - known).max() for known in group) > 1e-9:
                group.append(product)
        if len(group) > 256:
            raise ValueError("the maps must generate a small group")
    return np.array(group)
