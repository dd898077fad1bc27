"""Eigenvalues of a matrix of given spectrum in noise: S + sqrt(Delta) GOE, S with eigenvalues x_k in shares w_k.

The Stieltjes transform g of what is seen is that of S at another point, z = omega + Delta g(omega) (subordination).
On the real line of z that point runs along a curve omega = u + i v over all real u (Biane, Indiana Univ. Math. J. 46,
705, 1997):

    v(u) = 0 or sum_k w_k / ((u - x_k)^2 + v^2) = 1 / Delta,
    z(u) = u + Delta sum_k w_k (u - x_k) / ((u - x_k)^2 + v^2)

and z grows with u.  The density of z is v / (pi Delta), and

    pi_k = Delta w_k / ((u - x_k)^2 + v^2)

are numbers that add up to one: what an eigenvalue z says of that of S.  Its mean under them is the eigenvalue after
denoising, z - 2 Delta Re g; the variance under them, averaged over z, is the error F(Delta), and the variance of that
mean 1 - F: sums of positive numbers, which lose no digits however weak or strong the noise is.  (Overlaps of
eigenvectors: Ledoit and Peche, arXiv 0911.3010; written so here.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Nodes of Gauss's rule on a piece; pieces are halved until the mass on one changes by less than this, or so often.
_NODES, _SETTLED, _HALVINGS = np.polynomial.legendre.leggauss(16), 1e-13, 40
# Bisections that give an edge, or a place on the curve, all its digits; steps of Newton's method for v^2.
_BISECTIONS, _STEPS = 200, 80


@dataclass(frozen=True)
class Curve:
    """Places on the curve, omega - x_k (n, K), with weights (n,): sums over them are means over what is seen.

    squared: v^2.  mean, spread: of the eigenvalue of S, given what is seen.  more: derivative of the weight in Delta at
    fixed u.  moved, grown: those of mean and spread.
    """

    omega: np.ndarray
    squared: np.ndarray
    weight: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    more: np.ndarray
    moved: np.ndarray
    grown: np.ndarray


@dataclass(frozen=True, eq=False)
class NoisyAtoms:
    """x (K,): eigenvalues, increasing, of mean zero and variance one in shares w (K,), which add up to one.  noise > 0:
    Delta, the variance of off-diagonal entries of the noise times d."""

    x: np.ndarray
    w: np.ndarray
    noise: float

    # ---- the curve

    def _squared(self, off: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """v^2 (n,), and off^2 + v^2 (n, K), from off, u - x_k (n, K)."""
        square = off**2
        with np.errstate(divide="ignore"):
            inside = (self.w / square).sum(axis=1) * self.noise > 1
        # The sum falls with v^2 and is convex in it: from a lower bound Newton's method comes up to the root.
        low = np.maximum((self.noise * self.w - square).max(axis=1), 0.0)
        squared = np.where(inside, np.maximum(low, np.finfo(float).tiny), 0.0)
        for _ in range(_STEPS):
            D = square + squared[:, None]
            with np.errstate(all="ignore"):
                part = self.w / D
                step = (part.sum(axis=1) - 1 / self.noise) / (part / D).sum(axis=1)
            step = np.where(inside & np.isfinite(step), step, 0.0)
            squared = np.where(inside, np.maximum(squared + step, low), 0.0)
            if (np.abs(step) <= 4e-16 * squared).all():
                break
        return squared, square + squared[:, None]

    def seen(self, u: np.ndarray) -> np.ndarray:
        """z (n,) at places u (n,)."""
        off = u[:, None] - self.x
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(u + self.noise * (self.w * off / self._squared(off)[1]).sum(axis=1))

    @cached_property
    def intervals(self) -> list[tuple[float, float, float]]:
        """Where v > 0, increasing: an atom there, and where it begins and ends, from the atom on.

        Ends are much closer to an atom than that is to zero where there is little noise.
        """
        reach = np.sqrt(self.noise)
        a, b = self.x[:-1], self.x[1:]
        low, high = a, b
        for _ in range(_BISECTIONS):  # the least of a convex function in each gap: it falls below it
            middle = 0.5 * (low + high)
            if ((middle <= low) | (middle >= high)).all():
                break
            with np.errstate(divide="ignore", invalid="ignore"):
                falls = (self.w / (middle[:, None] - self.x) ** 3).sum(axis=1) > 0
            low, high = np.where(falls, middle, low), np.where(falls, high, middle)
        least = 0.5 * (low + high)
        open_ = (a < least) & (least < b) & self._beyond(least[:, None] - self.x)
        begins = np.concatenate([self.x[:1], b[open_]]), np.concatenate([[-reach], (least - b)[open_]])
        ends = np.concatenate([a[open_], self.x[-1:]]), np.concatenate([(least - a)[open_], [reach]])
        low, high = self._edges(*begins), self._edges(*ends)
        return [
            (float(atom), float(low_), float(high_ + (other - atom)))
            for atom, low_, other, high_ in zip(begins[0], low, ends[0], high, strict=True)
        ]

    def _edges(self, atoms: np.ndarray, beyond: np.ndarray) -> np.ndarray:
        """How far (n,) from these atoms v ends, on the side of places beyond."""
        inside, apart = np.zeros_like(beyond), atoms[:, None] - self.x
        for _ in range(_BISECTIONS):
            middle = 0.5 * (inside + beyond)
            if ((middle == inside) | (middle == beyond)).all():
                break
            out = self._beyond(apart + middle[:, None])
            inside, beyond = np.where(out, inside, middle), np.where(out, middle, beyond)
        return beyond

    def _beyond(self, off: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.asarray((self.w / off**2).sum(axis=1) * self.noise <= 1)

    @property
    def edges(self) -> np.ndarray:
        """Where the support of what is seen begins and ends, increasing."""
        return self.seen(np.array([atom + end for atom, *ends in self.intervals for end in ends]))

    @cached_property
    def curve(self) -> Curve:
        """Nodes on all intervals, on pieces that are halved until the mass on each is settled."""
        made = [self._placed(*interval) for interval in self.intervals]
        return self._at(np.concatenate([off for off, _ in made]), np.concatenate([weight for _, weight in made]))

    def _placed(self, atom: float, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
        """u - x_k (n, K) at nodes of an interval, and weights of du (n,), by u = middle - half cos(theta)."""
        half, apart = 0.5 * (high - low), atom - self.x

        def nodes(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            x, w = _NODES
            theta = 0.5 * (begin + end)[:, None] + 0.5 * (end - begin)[:, None] * x
            # From the end that is nearer: v vanishes there.
            from_low, from_high = low + 2 * half * np.sin(theta / 2) ** 2, high - 2 * half * np.cos(theta / 2) ** 2
            u = np.where(theta < 0.5 * np.pi, from_low, from_high)
            weight = 0.5 * (end - begin)[:, None] * w * half * np.sin(theta)
            found = self._at(apart + u.reshape(-1, 1), weight.ravel())
            return u, weight, found.weight.reshape(u.shape).sum(axis=1)

        begin, end = np.array([0.0]), np.array([np.pi])
        u, weight, mass = nodes(begin, end)
        kept_u, kept_weight = [], []
        for _ in range(_HALVINGS):
            half_way = 0.5 * (begin + end)
            finer = nodes(np.stack([begin, half_way], 1).ravel(), np.stack([half_way, end], 1).ravel())
            done = np.abs(finer[2].reshape(-1, 2).sum(axis=1) - mass) <= _SETTLED
            kept_u.append(u[done].ravel())
            kept_weight.append(weight[done].ravel())
            again = np.repeat(~done, 2)
            if not again.any():
                break
            begin, end = (np.stack(pair, 1).ravel()[again] for pair in ((begin, half_way), (half_way, end)))
            u, weight, mass = (values[again] for values in finer)
        else:
            kept_u.append(u.ravel())
            kept_weight.append(weight.ravel())
        return apart + np.concatenate(kept_u)[:, None], np.concatenate(kept_weight)

    def _at(self, off: np.ndarray, du: np.ndarray) -> Curve:
        squared, D = self._squared(off)
        v = np.sqrt(squared)
        A0, A1 = ((self.w * off**j / D**2).sum(axis=1) for j in (0, 1))
        B0, B1 = ((self.w * off**j / D**3).sum(axis=1) for j in (0, 1))
        share = self.noise * self.w / D
        mean = share @ self.x
        apart = (self.x - mean[:, None]) ** 2
        # At fixed u: of v^2, of the shares, and of dz/du = 2 Delta (v^2 A0 + A1^2 / A0).
        dq = 1 / (self.noise**2 * A0)
        dshare = self.w / D - self.noise * self.w * dq[:, None] / D**2
        stretch = 2 * self.noise * (squared * A0 + A1**2 / A0)
        dA0, dA1 = -2 * dq * B0, -2 * dq * B1
        dstretch = stretch / self.noise + 2 * self.noise * (
            dq * A0 + squared * dA0 + 2 * A1 * dA1 / A0 - A1**2 * dA0 / A0**2
        )
        to_mass = du / (np.pi * self.noise)
        more = to_mass * (dq / (2 * v) * stretch + v * dstretch - v * stretch / self.noise)
        return Curve(
            off + 1j * v[:, None], squared, to_mass * v * stretch, mean, (share * apart).sum(axis=1), more,
            dshare @ self.x, (dshare * apart).sum(axis=1),
        )  # fmt: skip

    # ---- what is said of the matrix

    @property
    def mass(self) -> float:
        """One, but for the error of the quadrature."""
        return float(self.curve.weight.sum())

    @property
    def left(self) -> float:
        """F(Delta)."""
        return float(self.curve.weight @ self.curve.spread)

    @property
    def known(self) -> float:
        """1 - F(Delta), with all its digits where that is little."""
        return float(self.curve.weight @ self.curve.mean**2)

    @property
    def slope(self) -> float:
        """dF / dDelta, of what is left where that is little, and else of what is known."""
        c = self.curve
        if self.known < self.left:
            return -float(c.more @ c.mean**2 + 2 * c.weight @ (c.mean * c.moved))
        return float(c.more @ c.spread + c.weight @ c.grown)

    @property
    def logarithm(self) -> float:
        """The mean of log |x - y| over two eigenvalues of what is seen: the potential of one is a function of omega."""
        c = self.curve
        g = (self.w / c.omega).sum(axis=1)
        return float(c.weight @ (np.log(np.abs(c.omega)) @ self.w + 0.5 * self.noise * (g**2).real))

    def shrunk(self, z: np.ndarray) -> np.ndarray:
        """(n,): what eigenvalues z are after denoising; also outside of the support."""
        z = np.asarray(z, dtype=float)
        # z is at most Delta / distance from u beyond all atoms.
        reach = np.sqrt(self.noise)
        low, high = np.minimum(z, self.x[0]) - 2 * reach, np.maximum(z, self.x[-1]) + 2 * reach
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if ((middle <= low) | (middle >= high)).all():
                break
            under = self.seen(middle) < z
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray(2 * middle - z)
