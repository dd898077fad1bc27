"""Singular values of a product of two Gaussian matrices seen through noise: Y = S + sqrt(R) Z, S = U V / sqrt(r).

U (d, r), V (r, L) and Z (d, L) have independent standard normal entries, L / d = beta >= 1 and r / d = rho.  Of x, a
squared singular value of Y over d, and with the Stieltjes transform g of its law, n = x g - 1 is a rational function of
y = (1 + n) (beta + n) / x:

    n = R y + rho y / (rho - y),   x = (1 + n) (beta + n) / y.

(That noise adds R y is the rectangular R-transform of F. Benaych-Georges, arXiv math/0512080; the term of S is from
S-transforms of two Wishart matrices.)  So dx/dy = 0 at the edges is a quintic.  The posterior mean multiplies a
singular value with kappa / (kappa + R), kappa = rho^2 / |rho - y|^2.  On the support y is complex; that x is real says

    |y|^2 = rho C / kappa,  Re y = (tau + C) / (2 kappa),  tau = rho (kappa - 1),
    rho (kappa + R)^2 C = kappa (1 - C) (beta - C),  0 < C < 1,
    Re n = (kappa + R) Re y - C,  Im n = (kappa + R) Im y,  x = (kappa + R) (1 + beta + 2 Re n),

so that everything is a function of one real number, kappa, and of one square root.  What is left of S after denoising,
and what is known, are integrals of positive numbers,

    F(R) = int mu(dx) x R kappa / (kappa + R)^2 / beta,   1 - F = int mu(dx) x kappa^2 / (kappa + R)^2 / beta,

which lose no digits however weak or strong the noise is; the published form (arXiv 2410.18858) is a difference.  As rho
grows kappa goes to one and tau stays: F = R / (1 + R), that of independent entries.  (Derived here.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from smisym.prior.spectrum import graded

# Steps of Newton's method that give roots all their digits; imaginary part of a root, relative, that is rounding.
_POLISHED, _REAL = 6, 1e-10
# An arc on which kappa changes by less than this factor is integrated over the angle of rho - y, in pieces as if
# something were singular so far from the real angles.
_NARROW, _SMOOTH = 1.3, 0.5j
# What is so near to an end of an arc, beside its width, is the end.
_END = 1e-9
# Of complex steps.
_TINY = 1e-100


@dataclass(frozen=True)
class Points:
    """Of points of an arc: y = a + i b, C, x, and kappa with tau = rho (kappa - 1), each to all its digits."""

    kappa: np.ndarray
    tau: np.ndarray
    a: np.ndarray
    b: np.ndarray
    C: np.ndarray
    x: np.ndarray


@dataclass(frozen=True)
class Arc:
    """One interval of the support, in nodes, and derivatives along its parameter (``on``) and in the noise (``by``).

    weight (n,): of the parameter, which is kappa or the angle of rho - y.
    """

    at: Points
    on: Points
    by: Points
    weight: np.ndarray


@dataclass(frozen=True)
class NoisyProduct:
    """rho > 0: rank over d.  beta >= 1: L over d.  noise > 0: R, the variance of the entries of the noise."""

    rho: float
    beta: float
    noise: float

    # ---- edges

    @cached_property
    def _ends(self) -> tuple[np.ndarray, np.ndarray]:
        """(y, rho - y), (5,) each, complex, where dx/dy = 0; of real ones the imaginary part is 0."""
        rho, beta, R = self.rho, self.beta, self.noise
        e = 1 / rho
        scale = math.sqrt(beta) / (1 + R)
        quintic = np.array([
            -(R**2) * e**3, 3 * R**2 * e**2, -3 * R**2 * e - 2 * R * e + e - (1 + beta) * e**2 + beta * e**3,
            (1 + R) ** 2 + (1 + beta) * e - 3 * beta * e**2, 3 * beta * e, -beta,
        ])  # fmt: skip
        y = np.roots(quintic * scale ** np.arange(5, -1, -1.0)).astype(complex) * scale
        # As a function of the smaller one of y and rho - y, which has its own digits.
        near = np.abs(rho - y) < np.abs(y)
        own = np.where(near, rho - y, y)
        for _ in range(_POLISHED):
            y, q = np.where(near, rho - own, own), np.where(near, own, rho - own)
            value, slope = self._condition(y, q)
            with np.errstate(all="ignore"):
                step = value / np.where(near, -slope, slope)
            own = own - np.where(np.isfinite(step), step, 0.0)
        own = np.where(np.abs(own.imag) <= _REAL * np.abs(own), own.real, own)
        return np.where(near, rho - own, own), np.where(near, own, rho - own)

    def _condition(self, y: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """y^2 (rho^2 + R q^2)^2 - (q^2 - rho y^2) (beta q^2 - rho y^2) over q = rho - y, and its slope in y."""
        rho, beta, R = self.rho, self.beta, self.noise
        grown, one, two = rho**2 + R * q**2, q**2 - rho * y**2, beta * q**2 - rho * y**2
        value = (y * grown) ** 2 - one * two
        slope = 2 * y * grown**2 - 4 * y**2 * grown * R * q
        slope += 2 * (q + rho * y) * two + 2 * (beta * q + rho * y) * one
        return value / q, slope / q + value / q**2

    @cached_property
    def _spans(self) -> tuple[tuple[tuple[float, float], tuple[float, float]], ...]:
        """(y, rho - y) at both ends of each interval of the support."""
        y, q = self._ends
        real = y.imag == 0
        pairs = sorted((float(u.real), float(v.real)) for u, v in zip(y[real], q[real], strict=True))
        left = [pair for pair in pairs if pair[0] < 0][-1]
        right = next(pair for pair in pairs if pair[0] > 0)
        beyond = [pair for pair in pairs if pair[1] < 0]
        return ((left, beyond[2]), (beyond[1], right)) if len(beyond) == 3 else ((left, right),)

    @property
    def edges(self) -> np.ndarray:
        """(2,) or (4,): where the support of x begins and ends, increasing."""
        return np.array([max(0.0, self._x(*end)) for span in self._spans for end in span])

    def _x(self, y: float, q: float) -> float:
        n = self.noise * y + self.rho * y / q
        return (1 + n) * (self.beta + n) / y

    @cached_property
    def _zeros(self) -> np.ndarray:
        """(4,) complex: y where x = 0."""
        rho, R = self.rho, self.noise
        found = []
        for level in (1.0, self.beta):
            middle = rho * (1 + R) - level
            far = middle + math.copysign(math.sqrt(middle**2 + 4 * R * level * rho), middle)
            found += [far / (2 * R), -2 * level * rho / far]
        return np.array(found, dtype=complex)

    # ---- points

    def _along(self, kappa: np.ndarray, tau: np.ndarray, R: complex) -> Points:
        """Points of given kappa, by the square root."""
        rho, beta = self.rho, self.beta
        half = rho * (kappa + R) ** 2 / (2 * kappa)
        root = np.sqrt((half + 0.5 * (1 + math.sqrt(beta)) ** 2) * (half + 0.5 * (1 - math.sqrt(beta)) ** 2))
        C = beta / (half + 0.5 * (1 + beta) + root)
        wide = 2 * np.sqrt(rho * C)
        # rho kappa less the square of the difference of the roots of rho and C: the other factor of (Im y)^2.
        hidden = beta - 1 + 2 * half
        hidden = 4 * half / (hidden + np.sqrt(hidden**2 + 8 * half))  # 1 - C
        apart = (rho - 1 + hidden) / (math.sqrt(rho) + np.sqrt(C))
        inner = (np.sqrt(rho * kappa) - apart) * (np.sqrt(rho * kappa) + apart)
        inner = np.where(kappa.real < 0.1, inner, wide + tau - C)
        squared = inner * (wide - tau + C)
        b = np.sqrt(np.where(squared.real > 0, squared, 0.0)) / (2 * kappa)
        return self._points(kappa, tau, (tau + C) / (2 * kappa), b, C, R)

    def _around(self, psi: np.ndarray, start: np.ndarray | float, R: complex) -> Points:
        """Points where rho - y = rho exp(-i psi) / k, k = sqrt(kappa), by Newton's method in log k."""
        rho, beta, cos, at = self.rho, self.beta, np.cos(psi), np.log(start) + 0 * psi
        for _ in range(_POLISHED):
            k = np.exp(at)
            apart, slope = 1 + k**2 - 2 * k * cos, 2 * k * (k - cos)
            C = rho * apart
            value = at + 0.5 * np.log((1 - C) * (beta - C) / apart) - np.log(rho * (k**2 + R))
            turn = 1 - 0.5 * slope * (rho / (1 - C) + rho / (beta - C) + 1 / apart) - 2 * k**2 / (k**2 + R)
            at = at - value / turn
        k = np.exp(at)
        C = rho * (1 + k**2 - 2 * k * cos)
        return self._points(k**2, rho * (k**2 - 1), rho * (1 - cos / k), rho * np.sin(psi) / k, C, R)

    # Many parameters: what points have, and the noise.
    def _points(
        self, kappa: np.ndarray, tau: np.ndarray, a: np.ndarray, b: np.ndarray, C: np.ndarray, R: complex
    ) -> Points:
        return Points(kappa, tau, a, b, C, (kappa + R) * (1 + self.beta - 2 * C + 2 * (kappa + R) * a))

    @cached_property
    def arcs(self) -> tuple[Arc, ...]:
        return tuple(self._arc(*span) for span in self._spans)

    def _arc(self, first: tuple[float, float], last: tuple[float, float]) -> Arc:
        rho, R = self.rho, self.noise
        low, high = ((rho / q) ** 2 for _, q in (first, last))
        if len(self._spans) == 2 and high < _NARROW * low and first[0] < 0:
            zeros = self._zeros
            ratios = [(rho - u) / (rho - v) for u in zeros for v in zeros if u != v]
            psi, weight = graded(np.array([_SMOOTH, *(0.5j * np.log(ratio) for ratio in ratios)]))
            at = self._around(psi, math.sqrt(math.sqrt(low * high)), R)
            start = np.sqrt(at.kappa)
            on, by = self._around(psi + 1j * _TINY, start, R), self._around(psi + 0j, start, R + 1j * _TINY)
            return Arc(at, _slopes(on), _slopes(by), weight)
        from_tau, to_tau = (rho * y * (rho + q) / q**2 for y, q in (first, last))
        width = high - low if high > 1.5 * low else (to_tau - from_tau) / rho
        theta, weight = graded(self._singular(from_tau, width, (first[0], last[0])))
        part = np.sin(0.5 * theta) ** 2

        def placed(step: complex) -> tuple[np.ndarray, np.ndarray]:
            return low + width * part + step, from_tau + rho * width * part + rho * step

        kappa, tau = placed(0.0)
        # From whichever end is nearer in tau, from the lower one in kappa.
        tau = np.where(theta > 0.5 * np.pi, to_tau - rho * width * np.cos(0.5 * theta) ** 2, tau)
        at, step = self._along(kappa, tau, R), 1j * _TINY
        on = self._along(kappa + step, tau + rho * step, R)
        by = self._along(kappa + 0j, tau + 0j, R + step)
        return Arc(at, _slopes(on), _slopes(by), weight * 0.5 * width * np.sin(theta))

    def _singular(self, from_tau: float, width: float, ends: tuple[float, float]) -> np.ndarray:
        """Where functions of tau = from_tau + rho width sin^2(theta / 2) are not analytic, in theta: complex."""
        rho, beta, R = self.rho, self.beta, self.noise
        # At other edges; where x = 0; where the square root is that of 0; where kappa or kappa + R is 0.
        y, q = (part[~np.isin(self._ends[0], ends)] for part in self._ends)
        u, v = (part.ravel() for part in np.meshgrid(self._zeros, self._zeros))
        at_zero = (rho * (u + v) - u * v) / ((rho - u) * (rho - v))
        gaps = (2 * R * rho + (1 + s * math.sqrt(beta)) ** 2 for s in (1, -1))
        roots = [np.roots([rho, gap, rho * R**2]).astype(complex) - 1 for gap in gaps]
        if beta == 1:  # x = 0 is an end
            at_zero = at_zero[np.abs(rho * at_zero - from_tau) > _END * rho * width]
        places = rho * np.concatenate([y * (rho + q) / q**2, at_zero, *roots, [-1.0, -1.0 - R]])
        off = (places - from_tau) / (rho * width)
        # What seems to be between the ends is of another root.
        off = off[(np.abs(off.imag) > _REAL * np.abs(off)) | (off.real < 0) | (off.real > 1)]
        return np.asarray(2 * np.arcsin(np.sqrt(off)))

    # ---- integrals

    def mean(self, values: list[np.ndarray]) -> float:
        """Of a function of x, at the nodes of each arc."""
        return float(sum(np.sum(a.weight * self._mass(a) * v) for a, v in zip(self.arcs, values, strict=True)))

    def _mass(self, arc: Arc) -> np.ndarray:
        """mu(dx): Im n / (pi x) dx."""
        return np.asarray((arc.at.kappa + self.noise) * arc.at.b / (np.pi * arc.at.x) * np.abs(arc.on.x))

    @property
    def mass(self) -> float:
        """One, but for the error of the quadrature."""
        return self.mean([np.ones_like(a.weight) for a in self.arcs])

    def _moved(self, power: int) -> tuple[float, float]:
        """int kappa^power b / (kappa + R) dx / (pi beta), and its derivative in R.

        It vanishes at ends that move, so that d (h dx) is h_R x_p - h_p x_R, p the parameter.
        """
        whole, moved, R = 0.0, 0.0, self.noise
        for arc in self.arcs:
            k, b = arc.at.kappa, arc.at.b
            h = k**power * b / (k + R)
            on = h * (power * arc.on.kappa / k - arc.on.kappa / (k + R)) + k**power * arc.on.b / (k + R)
            by = h * (power * arc.by.kappa / k - (1 + arc.by.kappa) / (k + R)) + k**power * arc.by.b / (k + R)
            sign = np.sign(arc.on.x)
            whole += float(np.sum(arc.weight * sign * h * arc.on.x))
            moved += float(np.sum(arc.weight * sign * (by * arc.on.x - on * arc.by.x)))
        return whole / (np.pi * self.beta), moved / (np.pi * self.beta)

    @property
    def left(self) -> float:
        """F(R): the error of denoising, 1 where the noise is infinite."""
        return self.noise * self._moved(1)[0]

    @property
    def known(self) -> float:
        """1 - F(R), with all its digits where that is little."""
        return self._moved(2)[0]

    @property
    def slope(self) -> float:
        """dF / dR, from what is left where the noise is weak and from what is known where it is strong."""
        if self.noise > 1:
            return -self._moved(2)[1]
        whole, moved = self._moved(1)
        return whole + self.noise * moved

    @property
    def logarithm(self) -> float:
        """Of the volume of all matrices with the singular values of Y, a number, for each of their d L entries:

        int int log |x - x'| / (2 beta) + (beta - 1) / (2 beta) int log x.  The potential of one x is a function of y:
        its derivative in x is g, and x is rational in y.
        """
        rho, beta, R = self.rho, self.beta, self.noise
        values = []
        for arc in self.arcs:
            y = arc.at.a + 1j * arc.at.b
            n = (arc.at.kappa + R) * y - arc.at.C
            size = 0.5 * (math.log(rho) + np.log(arc.at.C / arc.at.kappa))
            potential = 2 * n.real + (1 - beta) * np.log(np.abs(1 + n / beta)) - size - R * y.real
            grown = np.where(arc.at.kappa < 0.5, np.log(arc.at.kappa), np.log1p(np.maximum(arc.at.tau / rho, -0.5)))
            values.append(potential - 0.5 * rho * grown + math.log(beta))
        whole = self.mean(values) / (2 * beta)
        if beta == 1:
            return whole
        root = float(self._zeros[:2].real.min())  # where n = -1, at x = 0
        at_zero = -2 + (1 - beta) * math.log1p(-1 / beta) - math.log(-root) - R * root
        at_zero += rho * math.log1p(-root / rho) + math.log(beta)
        return whole + (beta - 1) / (2 * beta) * at_zero

    @property
    def told(self) -> float:
        """Mutual information of S and Y, for each of the d L entries."""
        return self.logarithm - 0.5 * math.log(self.noise) - pure_noise(self.beta)

    # ---- one matrix

    def shrunk(self, x: np.ndarray) -> np.ndarray:
        """(n,): by what singular values whose squares over d are x are multiplied; also outside of the support, where
        those that are too small are taken as the smallest."""
        y, R, edges = self.transform(x), self.noise, self.edges
        n = (R * y + self.rho * y / (self.rho - y)).real
        small = x <= edges[0]
        inside = small | ((x >= edges[:-1:2, None]) & (x <= edges[1::2, None])).any(axis=0)
        kappa = (self.rho / np.where(small, self._spans[0][0][1], np.abs(self.rho - y))) ** 2
        # The first is exact on the support; the second is the same there, and right for what lies beyond.
        return np.where(inside, kappa / (kappa + R), 1 - R * (1 + self.beta + 2 * n) / np.where(inside, 1.0, x))

    def transform(self, x: np.ndarray) -> np.ndarray:
        """y (n,) at real x - i0: complex on the support, and outside of it the real root that falls with x."""
        e, beta, R, x = 1 / self.rho, self.beta, self.noise, np.asarray(x, dtype=float)
        # (p + R p y + y) (beta p + R p y + y) = x y p^2, p = 1 - e y: of 1 / y, which no coefficient makes infinite.
        one, two = np.array([-e * R, 1 + R - e, 1.0]), np.array([-e * R, 1 + R - beta * e, beta])
        lowest_last = np.polymul(one, two) - np.multiply.outer(x, [0.0, e**2, -2 * e, 1.0, 0.0])
        companion = np.zeros((len(x), 4, 4))
        companion[:, 0] = -lowest_last[:, 3::-1] / beta
        companion[:, [1, 2, 3], [0, 1, 2]] = 1.0
        roots = 1 / np.linalg.eigvals(companion).astype(complex)
        edges, inside, ends = self.edges, np.zeros(len(x), dtype=bool), [y for span in self._spans for y, _ in span]
        gaps = zip((-np.inf, *edges[1::2]), (*edges[::2], np.inf), (0.0, *ends[1::2]), (*ends[::2], 0.0), strict=True)
        off = np.full(roots.shape, np.inf)
        for low, high, most, least in gaps:
            here = (x >= low) & (x <= high)
            apart = np.maximum(np.maximum(roots.real - most, least - roots.real), 0.0) + np.abs(roots.imag)
            off = np.where(here[:, None], apart, off)
            inside |= here
        rank = np.where(inside[:, None], off, -roots.imag)
        return np.asarray(roots[np.arange(len(x)), rank.argmin(axis=1)])


def _slopes(stepped: Points) -> Points:
    return Points(*(np.imag(getattr(stepped, name)) / _TINY for name in ("kappa", "tau", "a", "b", "C", "x")))


def pure_noise(beta: float) -> float:
    """The logarithm of :class:`NoisyProduct` for independent standard normal entries alone."""
    square = (beta - 1) ** 2 * math.log(beta - 1) if beta > 1 else 0.0
    return (-beta + beta**2 * math.log(beta) - square) / (4 * beta)
