"""The posterior of one tied head of rank two to four: moments of an orthogonal matrix.

The output leaves a frame unknown, Z^T = C F + 1 d^T (:class:`smisym.charts.base.Frame`): rows of an orthogonal matrix,
and a shift d orthogonal to them.  Where all rows are known equally well, V = v I, nothing in the exponent is quadratic
in F but what is constant,

    -|Z - omega|^2 / (2 v) = tr(F^T C^T omega^T) / v + T (d . mean_t omega - |d|^2 / 2) / v + constant,

so that averages over F are those of :mod:`smisym.integrate.rotations_of_two`, :mod:`smisym.integrate.rotations` and
:mod:`smisym.integrate.rotations_of_four`.
Where there is a shift, of k dimensions, it is a multiple of one more row f of the same orthogonal matrix,
d = sqrt(v / T) tau f: the integral over tau is one of tau^(k - 1) times a mixture of Gaussians of variance one, even
for odd k.  A trapezoid rule of step h misses 2 exp(-2 pi^2 / h^2) of it; for even k Gauss's rule is taken on pieces.

Elsewhere, without a shift, what is left of the quadratic form of three rows is summed over products of nodes
(:mod:`smisym.integrate.near_rotations`); with one, or of other rows, it is left to others, as is a shift beside one
row of two, which they integrate in less time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smisym.base import patience
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates, Frame
from smisym.integrate.averages import Average
from smisym.integrate.modes import Values
from smisym.integrate.near_rotations import nearly_turned
from smisym.integrate.rotations import Turned, turned
from smisym.integrate.rotations_of_four import turned_four
from smisym.integrate.rotations_of_two import turned_two
from smisym.kernels.turns import turns_source
from smisym.link.linking import Observation
from smisym.posterior.base import Block, Cavity, Kind, log_whitening

# The orthogonal matrices whose moments are known, by their rows; those of which a form that is quadratic is summed.
TURNED: dict[int, Callable[[np.ndarray, float], Turned]] = {2: turned_two, 3: turned, 4: turned_four}
QUADRATIC = 3
INTEGRALS = {
    2: "Bessel functions",
    3: "one integral over Bessel functions",
    4: "a double integral over Bessel functions",
}


@dataclass(frozen=True)
class _Rule:
    """Sums over tau: steps, how far beyond the largest mean they go, nodes of Gauss's rule on a piece of four steps,
    what is missed of a Gaussian of variance one times tau^2, at most, and the tolerance from which on it serves."""

    step: float
    beyond: float
    on_piece: int
    missed: float
    serves: float


_RULES = (_Rule(1.05, 6.5, 8, 3e-6, 3e-5), _Rule(0.75, 8.5, 10, 3e-12, 0.0))
# Steps of a piece, and how many there may be: more are left to others.
_PIECE, _MOST = 4, 512
# The largest mean at which exponents, as large as its square, have any digits left.
_FARTHEST = 1e7
# Nodes from which on those with mass are looked for, how far below the largest bound their exponents may be, and parts
# that an interval of nodes is cut into until it is short.
_MANY, _DEPTH, _PARTS = 32, 70.0, 8
# Standard deviations that posteriors usually have, together: what is missed of a sum is multiplied with them.
_SPREAD = 4.0
# Nodes of all samples at once.
_MEMORY = 4096
# Relative differences of deviations that count as none: what they do to exponents is stated.  Of these, and of second
# moments, what rounding leaves: both are as large as squares of the fields in standard deviations, and so are numbers
# that cancel in them.
_EQUAL = 1e-11
_ROUNDED = 8 * np.finfo(float).eps
_TINY = np.finfo(float).tiny


class OnFrame(Kind):
    """A noiseless output that leaves a frame unknown."""

    smooth, framed = True, True

    def __init__(self, level_set: LevelSet, frame: Frame, tokens: int) -> None:
        self.level_set, self.frame, self.tokens = level_set, frame, tokens
        self.dim, self.along = len(level_set.latents), frame.shifts
        self.order = level_set.solved_rows
        self.summed_over_nodes = frame.rank == QUADRATIC and not frame.shifts
        self.coupled = None if self.summed_over_nodes else "rows are not known equally well"

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Framed:
        return Framed(self, observed.values, Cavity.of(omega, V, self.order))

    def couples(self, V: np.ndarray) -> np.ndarray:
        """Whether rows are not known equally well under V (S, P, P) where nothing else is known, (S,)."""
        if self.summed_over_nodes:
            return np.zeros(len(V), dtype=bool)
        equal = np.einsum("sii->s", V)[:, None, None] / V.shape[1] * np.eye(V.shape[1])
        return np.asarray((np.abs(V - equal) > _EQUAL * np.abs(V).max(axis=(1, 2), keepdims=True)).any(axis=(1, 2)))

    def describe(self) -> tuple[str, str]:
        shift = ", and a sum over nodes for the shift of all tokens" if self.frame.shifts else ""
        where = f"the posterior lives on the orthogonal matrices of {self.frame.rank} rows"
        how = f"moments of these by {INTEGRALS[self.frame.rank]}{shift}"
        nodes = "; where rows are not known equally well, sums over products of nodes"
        return where, how + (nodes if self.summed_over_nodes else "")


def framed(level_set: LevelSet, tokens: int) -> OnFrame | None:
    """How a level set is integrated whose frame has as many rows as are known, None for others."""
    frame = level_set.frame
    if frame is None or frame.rank not in TURNED or level_set.registered or (frame.rank == 2 and frame.shifts):
        return None
    return OnFrame(level_set, frame, tokens)


class Framed(Block):
    """The posteriors of one block of samples, which integrate themselves."""

    branches = 1

    def __init__(self, kind: OnFrame, u: np.ndarray, cavity: Cavity) -> None:
        super().__init__(cavity)
        self.kind, self.u = kind, u
        self.rank = kind.frame.rank
        self.dim, self.residuals = 0, self.rank * kind.tokens

    def take(self, index: np.ndarray) -> Framed:
        return Framed(self.kind, self.u[index], self.cavity.take(index))  # type: ignore[arg-type]

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, 0, self.kind.tokens)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        raise TypeError("frames are integrated by themselves")

    def sources(self) -> list[str]:
        return [turns_source()] if self.kind.summed_over_nodes else []

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        """All samples: nodes of the shift, weighed against one another, and the moments of matrices at each."""
        S, F, frame = self.samples, self.residuals, self.kind.frame
        found = Average(
            np.full(S, -np.inf), np.zeros((S, F)), np.zeros((S, F, F)) if cov else None,
            np.full(S, np.inf), np.zeros(S), np.zeros(S, dtype=bool),
        )  # fmt: skip
        unequal = self._unequal()
        alike = unequal <= _EQUAL
        if alike.any():
            self._equally(found, np.flatnonzero(alike), unequal[alike], rtol)
        # Where nodes are no way nothing is told of the others, and their error is infinite.
        if not alike.all() and self.kind.summed_over_nodes:
            self._unequally(found, np.flatnonzero(~alike), rtol)
        found.log_norm += math.log(frame.sheets / 2) + frame.log_mass
        found.converged = found.error <= rtol
        return found

    def _unequal(self) -> np.ndarray:
        """(S,) how much better some rows are known than others, relative to the first."""
        first = self.factor[:, :1, :1]
        return np.asarray((np.abs(self.factor - first * np.eye(self.rank)) / first).max(axis=(1, 2)))

    def _centre(self, which: np.ndarray) -> np.ndarray:
        """omega of some samples, tokens first, (n, T, r)."""
        return np.swapaxes(self.omega[which][:, list(self.kind.order)], 1, 2)

    def _equally(self, found: Average, which: np.ndarray, unequal: np.ndarray, rtol: float) -> None:
        """Samples all of whose rows are known equally well, but for shares ``unequal`` of their deviations."""
        T, frame, spread = self.kind.tokens, self.kind.frame, self.factor[which, 0, 0]
        # Tokens times rows of the frame, and of the fields, in standard deviations.
        known = self.u[which].reshape(-1, T, frame.vectors) / spread[:, None, None]
        centre = self._centre(which) / spread[:, None, None]
        with np.errstate(invalid="ignore", over="ignore"):
            constant = -0.5 * (np.einsum("stm,stm->s", known, known) + np.einsum("sti,sti->s", centre, centre))
        rule = next(rule for rule in _RULES if rule.serves <= rtol)
        begin, count = self._nodes(known, centre, np.isfinite(constant), rule)
        serves = count > 0
        for K in np.unique(count[serves]):
            own = np.flatnonzero(serves & (count == K))
            per = max(1, _MEMORY // int(K))
            for i in range(0, len(own), per):
                patience.check()
                part = own[i : i + per]
                nodes = _of_shift(begin[part], int(K), frame.shifts, rule)
                _put(found, which[part], known[part], centre[part], nodes, rtol)
        found.log_norm[which] += constant
        # Exponents change by twice these shares of their squares, at most.
        found.error[which] += np.where(unequal > 0, -2 * unequal * constant, 0.0)
        if frame.shifts:
            found.log_norm[which] += frame.shifts * np.log(spread / math.sqrt(T))
            found.error[which[serves]] += rule.missed

    def _unequally(self, found: Average, which: np.ndarray, rtol: float) -> None:
        """Samples whose rows are not, without a shift."""
        m, known = self.kind.frame.vectors, self.u[which].reshape(len(which), self.kind.tokens, -1)
        centre, inverse = self._centre(which), np.linalg.inv(self.factor[which])
        W = np.swapaxes(inverse, 1, 2) @ inverse
        A, S = np.zeros((2, len(which), self.rank, self.rank))
        A[:, :m], S[:, :m, :m] = np.swapaxes(known, 1, 2) @ centre @ W, np.swapaxes(known, 1, 2) @ known
        serves = np.isfinite(A).all(axis=(1, 2)) & np.isfinite(S).all(axis=(1, 2))
        which, known, centre, inverse, A, S, W = (
            each[serves] for each in (which, known, centre, inverse, A, S, W)
        )  # fmt: skip
        at = nearly_turned(A, S, W, rtol / _SPREAD)
        found.nodes[which] = at.nodes
        seen = np.isfinite(at.missed)
        which, known, centre, inverse, W = (each[seen] for each in (which, known, centre, inverse, W))
        mean, second, n = at.mean[seen], at.second[seen], int(seen.sum())
        fields = (known @ mean[:, :m] - centre) @ np.swapaxes(inverse, 1, 2)
        second = second - np.einsum("nai,nbj->naibj", mean, mean)
        second = np.einsum("ski,saibj,slj->sakbl", inverse, second[:, :m, :, :m], inverse, optimize=True)
        spread = np.einsum("sta,sakbl,sub->sktlu", known, second, known, optimize=True)
        spread = spread.reshape(n, self.residuals, self.residuals)
        found.log_norm[which] = at.log_norm[seen] - 0.5 * np.einsum("sti,sij,stj->s", centre, W, centre)
        found.mean[which] = np.swapaxes(fields, 1, 2).reshape(n, self.residuals)
        if found.cov is not None:
            found.cov[which] = spread
        # A sum over nodes that is off by a share of itself moves a mean by as much of what it sums over.
        square = (np.sum(known**2, axis=(1, 2)) + np.sum(centre**2, axis=(1, 2))) * np.sum(inverse**2, axis=(1, 2))
        missed = at.missed[seen] * (1 + np.sqrt(np.trace(spread, axis1=1, axis2=2)))
        found.error[which] = missed + _ROUNDED * square

    def _nodes(
        self, known: np.ndarray, centre: np.ndarray, finite: np.ndarray, rule: _Rule
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first node of the shift of each sample, and how many it has, zero where they would be too many or numbers
        are not finite (n,); one node where there is no shift."""
        S, T = len(known), self.kind.tokens
        begin, count = np.zeros(S, dtype=int), np.ones(S, dtype=int)
        if not self.kind.frame.shifts:
            return begin, np.where(finite, count, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            farthest = np.linalg.norm(centre.mean(axis=1), axis=1) * math.sqrt(T)
            most = np.where(finite & (farthest < _FARTHEST), (farthest + rule.beyond) / rule.step, np.inf)
        count[:] = np.ceil(np.minimum(most, _MANY))
        far = np.flatnonzero(np.isfinite(most) & (most > _MANY))
        if far.size:
            low, high = _massive(known[far], centre[far], most[far] * rule.step, rule.step)
            begin[far] = np.floor(np.minimum(low, high) / rule.step)
            count[far] = np.where(low <= high, np.minimum(np.ceil(high / rule.step) - begin[far], _MOST + 1), _MOST + 1)
        count[~np.isfinite(most)] = _MOST + 1
        # In steps, so that samples are taken together.
        return begin, np.where(count > _MOST, 0, -(-count // _PIECE) * _PIECE)


def _of_shift(begin: np.ndarray, steps: int, shifts: int, rule: _Rule) -> tuple[np.ndarray, np.ndarray]:
    """Nodes tau (n, K) from ``begin`` steps on, and logs of their weights: those of a vector of so many dimensions and
    of length tau."""
    if not shifts:
        return np.zeros((len(begin), 1)), np.zeros((len(begin), 1))
    if shifts % 2:
        at, weight = np.arange(steps) + 0.5, np.ones(steps)
    else:
        x, weight = np.polynomial.legendre.leggauss(rule.on_piece)
        at = (_PIECE * (np.arange(steps // _PIECE)[:, None] + 0.5 * (x + 1))).ravel()
        weight = np.tile(0.5 * _PIECE * weight, steps // _PIECE)
    tau = (begin[:, None] + at) * rule.step
    sphere = math.log(2) + 0.5 * shifts * math.log(math.pi) - math.lgamma(0.5 * shifts)
    return tau, sphere + np.log(rule.step * weight) + (shifts - 1) * np.log(tau)


def _massive(known: np.ndarray, centre: np.ndarray, most: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Between which shifts tau (n,) each, of zero to ``most``, all the mass is.

    The exponent at tau is at most ||A(tau)||_* - tau^2 / 2, the first of which is convex: between two places it lies
    below the line through them.  Intervals are cut until that tells them off, or they are short.
    """

    def norm(which: np.ndarray, tau: np.ndarray) -> np.ndarray:
        A = _exponents(known[which], centre[which], tau[:, None])[:, 0]
        return np.asarray(np.linalg.svd(A, compute_uv=False).sum(axis=1))

    n = len(most)
    which, low, high = np.arange(n), np.zeros(n), most.copy()
    at_low, at_high = norm(which, low), norm(which, high)
    best = np.full(n, -np.inf)
    while True:
        np.maximum.at(best, which, np.maximum(at_low - 0.5 * low**2, at_high - 0.5 * high**2))
        slope = (at_high - at_low) / (high - low)
        top = np.clip(slope, low, high)
        kept = at_low + slope * (top - low) - 0.5 * top**2 >= best[which] - _DEPTH
        which, low, high, at_low, at_high = which[kept], low[kept], high[kept], at_low[kept], at_high[kept]
        # None are left where rounding of the norms is more than what is looked for.
        if not len(which) or (high - low).max() <= _PARTS * step:
            break
        cut = low[:, None] + (high - low)[:, None] * np.arange(_PARTS + 1) / _PARTS
        inner = norm(np.repeat(which, _PARTS - 1), cut[:, 1:-1].ravel()).reshape(-1, _PARTS - 1)
        at = np.concatenate([at_low[:, None], inner, at_high[:, None]], axis=1)
        which = np.repeat(which, _PARTS)
        low, high, at_low, at_high = (part.ravel() for part in (cut[:, :-1], cut[:, 1:], at[:, :-1], at[:, 1:]))
    ends = np.full(n, np.inf), np.zeros(n)
    np.minimum.at(ends[0], which, low)
    np.maximum.at(ends[1], which, high)
    return ends


def _exponents(known: np.ndarray, centre: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """A (n, K, r, r) of exp(tr(A^T O)) at nodes of the shift tau (n, K), r rows of the fields."""
    (n, T, m), K, r = known.shape, tau.shape[1], centre.shape[2]
    A = np.zeros((n, K, r, r))
    A[:, :, :m] = np.einsum("stm,sti->smi", known, centre)[:, None]
    if m < r:
        A[:, :, m] = tau[:, :, None] * math.sqrt(T) * centre.mean(axis=1)[:, None]
    return A


def _moments(A: np.ndarray, rtol: float) -> Turned:
    """Those of the function for so many rows; where nothing is known all matrices are alike."""
    moments = TURNED[A.shape[-1]]
    if A.any():
        return moments(A, rtol)
    one = moments(A[:1], rtol)
    return Turned(*(np.broadcast_to(values, (len(A), *values.shape[1:])) for values in vars(one).values()))


# Many parameters: where to put what is found of which samples, and of what.
def _put(
    found: Average,
    part: np.ndarray,
    known: np.ndarray,
    centre: np.ndarray,
    nodes: tuple[np.ndarray, np.ndarray],
    rtol: float,
) -> None:
    """Some samples: known (n, T, m) and centre (n, T, r) in standard deviations, nodes of the shift tau (n, K), zero
    where there is none, and logs of their weights (:func:`_of_shift`)."""
    (n, T, m), r, (tau, log_node) = known.shape, centre.shape[2], nodes
    K = tau.shape[1]
    # What rounding and errors of the matrices are multiplied with, in standard deviations of the fields.
    size = np.linalg.norm(known.reshape(n, -1), axis=1) + tau[:, -1]
    at = _moments(_exponents(known, centre, tau).reshape(n * K, r, r), 0.5 * rtol / max(float(size.max()), _TINY))
    log_weight = at.log_norm.reshape(n, K) - 0.5 * tau**2 + log_node
    top = log_weight.max(axis=1)
    weight = np.exp(log_weight - top[:, None])
    total = weight.sum(axis=1)
    weight /= total[:, None]
    found.log_norm[part] = top + np.log(total)
    missed = np.einsum("sk,sk->s", weight, at.missed.reshape(n, K)) * size
    square = np.sum(known**2, axis=(1, 2)) + np.sum(centre**2, axis=(1, 2))
    found.error[part], found.nodes[part] = missed + _ROUNDED * square, K
    # Tokens times rows of the orthogonal matrix: the shift is tau / sqrt(T) for each token.
    scale = np.zeros((n, K, r))
    scale[:, :, :m], scale[:, :, m : m + 1] = 1.0, tau[:, :, None] / math.sqrt(T)
    rows = np.concatenate([known, np.ones((n, T, r - m))], axis=2)
    mean = np.einsum("sk,ska,skai->sai", weight, scale, at.mean.reshape(n, K, r, r))
    fields = np.einsum("sta,sai->sit", rows, mean) - np.swapaxes(centre, 1, 2)
    found.mean[part] = fields.reshape(n, -1)
    if found.cov is not None:
        second = at.second.reshape(n, K, *(r,) * 4)
        second = np.einsum("sk,ska,skb,skaibj->saibj", weight, scale, scale, second, optimize=True)
        second -= np.einsum("sai,sbj->saibj", mean, mean)
        spread = np.einsum("sta,saibj,sub->sitju", rows, second, rows, optimize=True)
        found.cov[part] = spread.reshape(n, r * T, r * T)
