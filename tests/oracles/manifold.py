"""Oracle of posteriors on level sets: a random walk on {Z : c(Z) = c(Z0)} that solves no equation and has no chart.

Nothing here imports the package under test.  The walk is the constrained Metropolis sampler of Zappa, Holmes-Cerf and
Goodman (2018): a Gaussian step in the tangent space, a Newton projection back along the normals, the Metropolis ratio,
and the check that the reverse move exists.  The conditional law of Z ~ N(omega, V) given c(Z) has, with respect to the
surface measure, the density N(Z; omega, V) / sqrt(pdet J J^T), J = dc/dZ, pdet the product of the nonzero eigenvalues.

Components of the level set are joined by ``flips``: maps of the fields that leave c unchanged, keep lengths and
generate a finite group.  A point and its images under the group have probabilities that go with N(Z; omega, V): moments
are summed over them, and the walk goes on from one of them drawn by these probabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

Constraint = Callable[[np.ndarray], np.ndarray]
"""(S, P, T), real or complex -> (S, n), analytic; entries may depend on one another."""

Flip = Callable[[np.ndarray], np.ndarray]

ON_SURFACE = 1e-10
"""Largest |c(Z) - c(Z0)| of a point that counts as being on the level set."""

ITERATIONS = 12
"""Newton steps of one projection."""

FAR = 1e3
"""Size of the fields beyond which a projection has failed."""


@dataclass(frozen=True)
class WalkMoments:
    """Moments of zeta = L^-1 (Z - omega), V = L L^T, chain by chain; C chains for each of S samples.

    first (C, S, P, T); second (C, S, P T, P T), about omega; accepted (S,): fraction of tangent moves accepted.
    """

    first: np.ndarray
    second: np.ndarray
    accepted: np.ndarray

    @property
    def values(self) -> np.ndarray:
        """First moments and the upper triangle of the second ones, (C, S, n)."""
        chains, samples, size, _ = self.second.shape
        upper = self.second[:, :, *np.triu_indices(size)]
        return np.concatenate([self.first.reshape(chains, samples, size), upper], axis=2)

    @property
    def mean(self) -> np.ndarray:
        """Mean of :attr:`values` over the chains, (S, n)."""
        return self.values.mean(axis=0)

    @property
    def error(self) -> np.ndarray:
        """Standard error of :attr:`mean`, (S, n), from the spread of the chains."""
        return self.values.std(axis=0, ddof=1) / np.sqrt(len(self.first))


def sample_level_set(
    c: Constraint,
    Z0: np.ndarray,
    omega: np.ndarray,
    V: np.ndarray,
    steps: int,
    rng: np.random.Generator,
    step_size: float,
    flips: Sequence[Flip] = (),
    *,
    chains: int = 8,
    burn: float = 0.2,
) -> WalkMoments:
    """Posterior moments given c(Z) = c(Z0); Z0, omega (S, P, T), V (S, P, P), each sample with its own output.

    Z0 is a posterior sample where omega and V are those that it was drawn with.  Chains start at it and at its images
    in turn, likely or not, walk within their components for half of the fraction ``burn`` of the steps, and only then
    flip: chains that flips fail to bring together are seen in their spread.  Tangent steps are Gaussian, of a length
    drawn between ``step_size`` / 8 and ``step_size``.
    """
    samples, size, skipped = len(Z0), Z0[0].size, int(burn * steps)
    group = _group(flips, Z0)
    images = _orbit(Z0, group)
    start = np.concatenate([images[chain % len(images)] for chain in range(chains)])
    surface = _Surface.through(c, np.tile(Z0, (chains, 1, 1)))
    surface.check(start)
    inverse = np.linalg.inv(np.linalg.cholesky(V))
    density = _Cavity(np.tile(omega, (chains, 1, 1)), np.tile(inverse, (chains, 1, 1)))
    state = surface.state(start)
    first, second, accepted = np.zeros((len(start), size)), np.zeros((len(start), size, size)), np.zeros(len(start))
    for step in range(steps):
        accepted += _walk(surface, density, state, step_size, rng)
        images = _orbit(state.Z, group)
        zeta, weight = density.share(images)
        if step >= skipped:
            first += np.einsum("gn,gni->ni", weight, zeta)
            second += np.einsum("gn,gni,gnj->nij", weight, zeta, zeta, optimize=True)
        if flips and step >= skipped // 2:
            chosen = (weight.cumsum(axis=0)[:-1] < rng.random(len(start))).sum(axis=0)
            state = surface.state(images[chosen, np.arange(len(start))])
    kept = steps - skipped
    return WalkMoments(
        (first / kept).reshape(chains, *Z0.shape),
        (second / kept).reshape(chains, samples, size, size),
        accepted.reshape(chains, samples).mean(axis=0) / steps,
    )


def level_set_steps(
    c: Constraint, Z0: np.ndarray, steps: int, rng: np.random.Generator, step_size: float
) -> Iterator[np.ndarray]:
    """States (n, P, T) of walks from Z0 that leave the law of standard normal fields given c unchanged, no flips."""
    surface = _Surface.through(c, Z0)
    density = _Cavity(np.zeros_like(Z0), np.broadcast_to(np.eye(Z0.shape[1]), (len(Z0), *[Z0.shape[1]] * 2)))
    state = surface.state(Z0)
    for _ in range(steps):
        _walk(surface, density, state, step_size, rng)
        yield state.Z


def _group(flips: Sequence[Flip], Z: np.ndarray) -> list[tuple[int, Flip]]:
    """All products of flips but the identity, each as a flip after an earlier product (0 is the identity)."""
    images, products = [Z], []
    for parent, image in enumerate(images):  # the list grows on the way
        for flip in flips:
            other = flip(image)
            if min(abs(other - known).max() for known in images) > ON_SURFACE:
                images.append(other)
                products.append((parent, flip))
        if len(images) > 64:
            raise ValueError("flips must generate a small group")
    return products


def _orbit(Z: np.ndarray, group: Sequence[tuple[int, Flip]]) -> np.ndarray:
    """Z (N, P, T) and its images, (G, N, P, T)."""
    images = [Z]
    for parent, flip in group:
        images.append(flip(images[parent]))
    return np.stack(images)


@dataclass(frozen=True)
class _Cavity:
    """N(Z; omega, V) for every chain; inverse (N, P, P) of the factor of V."""

    omega: np.ndarray
    inverse: np.ndarray

    def whiten(self, Z: np.ndarray) -> np.ndarray:
        return self.inverse @ (Z - self.omega)

    def log(self, Z: np.ndarray) -> np.ndarray:
        return -0.5 * (self.whiten(Z) ** 2).sum(axis=(1, 2))

    def share(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whitened images (G, N, P T), and their probabilities within each orbit, (G, N)."""
        zeta = self.whiten(images).reshape(*images.shape[:2], -1)
        log = -0.5 * (zeta**2).sum(axis=2)
        weight = np.exp(log - log.max(axis=0))
        return zeta, weight / weight.sum(axis=0)


@dataclass
class _State:
    """Points of the level sets (N, P, T) and the Jacobian there, (N, K, P T), of the combinations of c that count."""

    Z: np.ndarray
    J: np.ndarray

    def put(self, where: np.ndarray, Z: np.ndarray, J: np.ndarray) -> None:
        self.Z[where], self.J[where] = Z, J


@dataclass(frozen=True)
class _Surface:
    """The level set of every chain: c(Z) = value (N, n).

    rows (N, K, n) is an orthonormal basis of the image of J: the tangent space of {all values of c}, the same along a
    level set, so that det(rows J J^T rows^T) is pdet(J J^T).
    """

    c: Constraint
    value: np.ndarray
    rows: np.ndarray

    @classmethod
    def through(cls, c: Constraint, Z0: np.ndarray) -> _Surface:
        value, J = jacobian(c, Z0)
        left, singular, _ = np.linalg.svd(J, full_matrices=False)
        ranks = (singular > 1e-9 * singular[:, :1]).sum(axis=1)
        if len(set(ranks)) > 1:
            raise ArithmeticError(f"the rank of dc/dZ differs between samples: {set(ranks)}")
        return cls(c, value, left[:, :, : ranks[0]].swapaxes(1, 2))

    def check(self, Z: np.ndarray) -> None:
        if abs(self.c(Z) - self.value).max() > ON_SURFACE:
            raise ValueError("flips must leave c unchanged")

    def state(self, Z: np.ndarray) -> _State:
        return _State(Z.copy(), self.rows @ jacobian(self.c, Z)[1])

    def project(self, which: np.ndarray, start: np.ndarray, J: np.ndarray) -> tuple[_State, np.ndarray]:
        """From start (m, P, T), along the rows of J (m, K, d), onto the level sets of chains ``which``.

        Returns the points, with their Jacobians, and which of them are on the level set.
        """
        Z, found, ok = start.copy(), np.empty_like(J), np.zeros(len(start), bool)
        active = np.arange(len(start))
        for _ in range(ITERATIONS):
            value, full = jacobian(self.c, Z[active])
            gap = value - self.value[which[active]]
            rows = self.rows[which[active]]
            reduced = (rows @ gap[:, :, None])[:, :, 0]
            slope = rows @ full
            found[active] = slope
            ok[active] = abs(gap).max(axis=1) < ON_SURFACE
            near = abs(reduced).max(axis=1) < ON_SURFACE
            keep = ~near & (abs(Z[active]).max(axis=(1, 2)) < FAR)  # False for NaN too
            active, slope, reduced = active[keep], slope[keep], reduced[keep]
            if not active.size:
                break
            normals = J[active].swapaxes(1, 2)
            square = slope @ normals
            regular = np.linalg.slogdet(square)[0] != 0  # an exactly singular step has failed
            active, normals, square, reduced = active[regular], normals[regular], square[regular], reduced[regular]
            Z[active] -= (normals @ np.linalg.solve(square, reduced[:, :, None])).reshape(Z[active].shape)
        return _State(Z, found), ok


def jacobian(c: Constraint, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """c (N, n) and dc/dZ (N, n, P T) by complex steps."""
    count, P, T = Z.shape
    moved = Z[:, None] + 1e-40j * np.eye(P * T).reshape(P * T, P, T)
    value = c(moved.reshape(-1, P, T)).reshape(count, P * T, -1)
    return value[:, 0].real, value.imag.swapaxes(1, 2) / 1e-40


def _tangent(J: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The part of vectors (N, d) that is orthogonal to the rows of J (N, K, d)."""
    along = np.linalg.solve(J @ J.swapaxes(1, 2), J @ vector[:, :, None])
    return vector - (J.swapaxes(1, 2) @ along)[:, :, 0]


def _log_volume(J: np.ndarray) -> np.ndarray:
    return 0.5 * np.linalg.slogdet(J @ J.swapaxes(1, 2))[1]


def _walk(surface: _Surface, density: _Cavity, state: _State, step_size: float, rng: np.random.Generator) -> np.ndarray:
    """One tangent move of every chain, in place; returns which ones were accepted, (N,)."""
    Z, J = state.Z, state.J
    count = len(Z)
    length = step_size * 0.125 ** rng.random((count, 1))
    forth = _tangent(J, length * rng.standard_normal((count, Z[0].size)))
    proposed, ok = surface.project(np.arange(count), Z + forth.reshape(Z.shape), J)
    threshold = np.log(rng.random(count))
    tried = np.flatnonzero(ok)
    there, slope = proposed.Z[tried], proposed.J[tried]
    back = _tangent(slope, (Z[tried] - there).reshape(len(tried), -1))
    ratio = 0.5 * ((forth[tried] ** 2).sum(axis=1) - (back**2).sum(axis=1)) / length[tried, 0] ** 2
    ratio += (density.log(proposed.Z) - density.log(Z))[tried] - _log_volume(slope) + _log_volume(J[tried])
    chosen = ratio > threshold[tried]
    tried, there, slope, back = tried[chosen], there[chosen], slope[chosen], back[chosen]
    returned, home = surface.project(tried, there + back.reshape(there.shape), slope)
    home &= abs(returned.Z - Z[tried]).max(axis=(1, 2)) < 1e-6
    state.put(tried[home], there[home], slope[home])
    accepted = np.zeros(count, bool)
    accepted[tried[home]] = True
    return accepted
