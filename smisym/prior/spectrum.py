"""Eigenvalues of a Wishart matrix seen through noise: S + sqrt(Delta) GOE, S = W W^T / sqrt(r d), rho = r / d.

With e = 1 / sqrt(rho), the Stieltjes transform g of the law, less the mean sqrt(rho) of S, solves a cubic,

    z = Delta g + 1 / g + g / (1 - e g).

On the support g is complex, and the imaginary part of this says 1 / |g|^2 = Delta + 1 / |1 - e g|^2.  So everything is
a rational function of one real number: of m = sqrt(rho) / |1 - e g|^2, which is the eigenvalue that is left after
denoising, z + sqrt(rho) - 2 Delta Re g:

    |g|^2 = sqrt(rho) / n,   Re g = sqrt(rho) (m - sqrt(rho)) / (2 m) + 1 / (2 n),   n = m + Delta sqrt(rho)
    z = m - sqrt(rho) + 2 Delta Re g,   (Im g)^2 = -rho prod_j (m - m_j) / (2 m n)^2

with m_j at the edges, where dz/dg = 0: a quartic.  No cubic is solved, and no density is cut off.  Given an eigenvalue
of the noisy matrix what is left of that of S has variance Delta m / n: its mean is the error of denoising,

    F(Delta) = int mu(dz) Delta m / n = Delta - (4 pi^2 / 3) Delta^2 int mu^3,

a sum of positive numbers, as 1 - F = int mu(dz) (m - sqrt(rho))^2 is: neither loses digits, however weak or strong the
noise is.  (arXiv 2506.01582, the cubic; arXiv 2408.03733, the denoiser; the uniformisation is derived here.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Nodes of Gauss's rule on each piece of an arc, and how long a piece may be beside the distance to what is singular:
# then a term of the expansion is 3.7 times smaller than the one before it, and these nodes leave 1e-13.
_NODES, _LONG = np.polynomial.legendre.leggauss(16), 2.0
# Pieces of an arc at most, and steps of Newton's method that give the roots all their digits.
_PIECES, _POLISHED = 400, 4
# Imaginary part of a root, relative, that is rounding.
_REAL = 1e-12


@dataclass(frozen=True)
class Arc:
    """One interval of the support, in nodes: z, density, weights of dz, and what is left after denoising, D.

    All of them centred: less the mean sqrt(rho) of S.  m: D + sqrt(rho), without loss of digits.
    """

    z: np.ndarray
    density: np.ndarray
    weight: np.ndarray
    D: np.ndarray
    m: np.ndarray
    g: np.ndarray
    more: np.ndarray  # derivative of density * dz in Delta at fixed m, times the weight


@dataclass(frozen=True)
class NoisyWishart:
    """rho > 0: rank over dimension.  noise > 0: Delta, the variance of off-diagonal entries of the noise times d."""

    rho: float
    noise: float

    @cached_property
    def _roots(self) -> np.ndarray:
        """(4,) g where dz/dg = 0, scaled with sqrt(1 + Delta), complex; of real ones the imaginary part is 0."""
        share, eta = self.noise / (1 + self.noise), 1 / math.sqrt(self.rho * (1 + self.noise))
        quartic = np.array([share * eta**2, -2 * share * eta, 1 - eta**2, 2 * eta, -1.0])
        slope = np.polyder(quartic)
        roots = np.roots(quartic).astype(complex)
        for _ in range(_POLISHED):
            with np.errstate(all="ignore"):
                step = np.polyval(quartic, roots) / np.polyval(slope, roots)
            roots = roots - np.where(np.isfinite(step), step, 0.0)
        real = np.abs(roots.imag) <= _REAL * np.abs(roots)
        return np.where(real, roots.real, roots)

    @cached_property
    def _branch(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """g, D and m (4,) at the branch points, in the order of m where they are real, then the others."""
        scale = math.sqrt(1 + self.noise)
        g = self._roots / scale
        y = 1 - g / math.sqrt(self.rho)
        m, D = math.sqrt(self.rho) / y**2, g * (1 + y) / y**2
        order = np.lexsort((m.real, g.imag != 0))
        return g[order], D[order], m[order]

    @property
    def edges(self) -> np.ndarray:
        """(2,) or (4,): where the support begins and ends, increasing."""
        g = self._branch[0]
        g = g[g.imag == 0].real
        root = math.sqrt(self.rho)
        y = 1 - g / root
        return np.sort(self.noise * g + 1 / g + g / y)

    @cached_property
    def arcs(self) -> tuple[Arc, ...]:
        g, _, _ = self._branch
        return tuple(self._arc(2 * k) for k in range(int((g.imag == 0).sum()) // 2))

    def _arc(self, first: int) -> Arc:
        """Between two real branch points: m = middle + half cos(theta), at the nodes of Gauss's rule on pieces."""
        _, D_at, m_at = self._branch
        ends, others = [first, first + 1], [k for k in range(4) if k not in (first, first + 1)]
        from_m, from_D = (float((x[ends[1]] - x[ends[0]]).real) for x in (m_at, D_at))
        middle, centre = float(m_at[ends].real.mean()), float(D_at[ends].real.mean())
        half = 0.5 * (from_m if middle < abs(centre) else from_D)
        root, noise = math.sqrt(self.rho), self.noise
        singular = np.array([*m_at[others], 0.0, -noise * root])
        theta, weight = graded(np.arccos(((singular - middle) / half).astype(complex)))
        along = half * np.cos(theta)
        m, D = middle + along, centre + along
        n = m + noise * root
        left = (m - m_at[others[0]]) * (m - m_at[others[1]])
        v = root * half * np.sin(theta) * np.sqrt(np.abs(left)) / (2 * m * n)
        u = root * D / (2 * m) + 0.5 / n
        stretch = 1 + noise * (self.rho / m**2 - 1 / n**2)
        # At fixed m: of Re g, of (Im g)^2 = |g|^2 - (Re g)^2, and of dz/dm.
        du = -0.5 * root / n**2
        dv = (-0.5 * self.rho / n**2 - u * du) / v
        more = dv * stretch + v * (self.rho / m**2 - 1 / n**2 + 2 * noise * root / n**3)
        weight = weight * half * np.sin(theta)
        return Arc(D + 2 * noise * u, v / np.pi, weight * stretch, D, m, u + 1j * v, weight * more / np.pi)

    def mean(self, values: list[np.ndarray]) -> float:
        """Of a function of eigenvalues, at the nodes of each arc."""
        return float(sum(np.sum(a.weight * a.density * x) for a, x in zip(self.arcs, values, strict=True)))

    @property
    def mass(self) -> float:
        """One, but for the error of the quadrature."""
        return self.mean([np.ones_like(a.m) for a in self.arcs])

    @property
    def _spread(self) -> list[np.ndarray]:
        """Of each arc what is left of an eigenvalue, its variance over the noise."""
        return [a.m / (a.m + self.noise * math.sqrt(self.rho)) for a in self.arcs]

    @property
    def left(self) -> float:
        """F(Delta): the error of denoising, 1 where the noise is infinite."""
        return self.noise * self.mean(self._spread)

    @property
    def known(self) -> float:
        """1 - F(Delta), with all its digits where that is little."""
        return self.mean([a.D**2 for a in self.arcs])

    @property
    def cubed(self) -> float:
        """The integral of the cube of the density."""
        return self.mean([a.density**2 for a in self.arcs])

    @property
    def slope(self) -> float:
        """dF / dDelta: from what is known where the noise is strong, and else from the integral of the cube, whose
        derivative is that of Burgers' equation, dg/dDelta = -g dg/dz."""
        if self.noise > 1:
            return -float(sum(np.sum(a.more * a.D**2) for a in self.arcs))
        e = 1 / math.sqrt(self.rho)
        moved = [(1 / (self.noise - 1 / a.g**2 + 1 / (1 - e * a.g) ** 2)).real * a.density**2 for a in self.arcs]
        return 1 - 8 * np.pi**2 / 3 * self.noise * (self.cubed - self.noise * self.mean(moved))

    @property
    def logarithm(self) -> float:
        """The mean of log |x - y| over two eigenvalues.

        The potential of one is a function of g: its derivative in z is g, and z is rational in g.
        """
        root = math.sqrt(self.rho)
        values = []
        for a in self.arcs:
            y = 1 - a.g / root
            values.append((0.5 * self.noise * a.g**2 + root * a.g / y - np.log(a.g) + self.rho * np.log(y)).real)
        return self.mean(values)

    def shrunk(self, z: np.ndarray) -> np.ndarray:
        """(n,): what eigenvalues z, less the mean of S, are after denoising, less that mean; also outside of the
        support."""
        g = self.transform(z)
        return np.asarray(z - 2 * self.noise * g.real)

    def transform(self, z: np.ndarray) -> np.ndarray:
        """g (n,) at real z - i0: complex on the support, and outside of it the real root at which g falls with z."""
        e, noise, z = 1 / math.sqrt(self.rho), self.noise, np.asarray(z, dtype=float)
        # e noise g^3 - (1 + noise + e z) g^2 + (z + e) g - 1 = 0, of 1 / g so that no leading coefficient vanishes.
        companion = np.zeros((len(z), 3, 3))
        companion[:, 0, 0], companion[:, 0, 1], companion[:, 0, 2] = z + e, -(1 + noise + e * z), e * noise
        companion[:, 1, 0] = companion[:, 2, 1] = 1.0
        roots = 1 / np.linalg.eigvals(companion).astype(complex)
        slope = (noise - 1 / roots**2 + 1 / (1 - e * roots) ** 2).real
        complex_ones = np.abs(roots.imag) > 1e-9 * np.abs(roots)
        rank = np.where(complex_ones & (roots.imag > 0), -np.inf, np.where(complex_ones, np.inf, slope))
        return np.asarray(roots[np.arange(len(z)), rank.argmin(axis=1)])


def graded(singular: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [0, pi], in pieces no longer than twice their distance to what is singular (complex)."""
    around = np.concatenate([singular, -singular, 2 * np.pi - singular])
    todo, pieces = [(0.0, np.pi)], list[tuple[float, float]]()
    while todo:
        low, high = todo.pop()
        off = np.maximum(np.maximum(low - around.real, around.real - high), 0.0)
        if len(pieces) + len(todo) < _PIECES and high - low > _LONG * np.hypot(off, around.imag).min():
            todo += [(low, 0.5 * (low + high)), (0.5 * (low + high), high)]
        else:
            pieces.append((low, high))
    ends, (x, w) = np.array(sorted(pieces)), _NODES
    half = 0.5 * (ends[:, 1:] - ends[:, :1])
    return (ends.mean(axis=1, keepdims=True) + half * x).ravel(), (half * w).ravel()
