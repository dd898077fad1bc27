"""One scramble's estimates at one overlap: points drawn, posteriors integrated, three estimators combined."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import helmert
from scipy.special import ndtr

from smisym.base.matrices import square_root, units
from smisym.base.remembered import Remembered
from smisym.base.sobol import Normals
from smisym.base.solution import Result
from smisym.link.linking import Observation
from smisym.model.compiled import Model
from smisym.model.moments import Moments
from smisym.posterior.level_set import OnLevelSet
from smisym.prior import Law
from smisym.theory.at_points import squares
from smisym.theory.controls import NUMBERS, beside, rates_of
from smisym.theory.estimate import Estimate
from smisym.theory.folded import Slope, folds, slope
from smisym.theory.narrower import meeting, narrowed
from smisym.theory.surrogate import Surrogate, worth

# Multiple of its squared error above which what a posterior adds to a rate of growth is no error.
_BEYOND = 10.0
# Negative eigenvalue of E, beside its largest, that is rounding.
_ROUNDING = 1e-10
# Numbers that an estimate keeps of what its slope shares with each control, at most.
_SHARES = 4096
# Samples whose estimates are made at a time.
_BLOCK = 4096
# Standard error of the derivatives of a posterior that is sampled, beside that of its mean, in whitened units: sqrt(2)
# of normal fields.  At Q = 0, over 32 scrambles: sign(z1^2 - z2^2) 0.7, sign of a tied score on two tokens 2.0,
# sign(z1 (z1 + z2)) of two tokens 1.9.
_SQUARES = 2.0
# Size, beside that of the overlap, of what rounding moves of it.
_SAME = 1e-12
# Key of the draws that tell means of a stand-in, beside those of the points.
_KNOWN = 1


class _Outputs(NamedTuple):
    """n outputs, their omega (n, P, T), what the fields are off these (n, P, T), weights (n,) of them, and those of the
    points that are drawn as if nothing were rare (:func:`smisym.theory.narrower.narrowed`)."""

    observed: Observation
    omega: np.ndarray
    off: np.ndarray
    weights: np.ndarray
    rest: np.ndarray


class Estimator:
    """Estimates at ``points`` Sobol points a scramble; rtol is that of the inner integrals."""

    def __init__(self, model: Model, points: int, seed: int, rtol: float) -> None:
        self.model, self.points, self.seed, self.rtol = model, points, seed, rtol
        self._points = Remembered[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        self._cavities = Remembered[np.ndarray]()
        self._surrogate = Remembered[Surrogate]()
        self._meeting = _meeting(model)

    @property
    def settings(self) -> tuple[int, int, float]:
        """Points, seed, rtol: what makes another one of the same model."""
        return self.points, self.seed, self.rtol

    def prepare(self) -> None:
        """Make what all evaluations need, whatever is imported for it."""
        self._normals(0)

    def _normals(self, scramble: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Standard normals of one scramble: (n, 2, P, T) for the fields and the part of omega independent of them,
        then (n, K) for the noise; and (n, 0 or 1) that say which fields are drawn close to where solutions meet."""
        return self._points.get(scramble, lambda: self._drawn(scramble))

    def _drawn(self, scramble: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        P, T, K = self.model.fields, self.model.tokens, self.model.channel.noise_dimensions
        all_of_them = self._sobol(scramble, 2 * P * T + K + bool(len(self._meeting)))
        normals, noise, kinds = np.split(all_of_them, [2 * P * T, 2 * P * T + K], axis=1)
        return _best_first(normals.reshape(-1, 2, P, T)), noise, kinds

    def _sobol(self, scramble: int, dim: int) -> np.ndarray:
        seed = np.random.SeedSequence(self.seed, spawn_key=(scramble,))
        return Normals(dim, seed, fine=True).draw(self.points)

    def _all_outputs(self, scramble: int, law: Law, outputs: np.ndarray) -> tuple[Observation, np.ndarray]:
        """Every output of every omega, drawn by itself: half as many coordinates are better spread."""
        P, T = self.model.fields, self.model.tokens
        normals = self._cavities.get(scramble, lambda: _best_first(self._sobol(scramble, P * T).reshape(-1, P, T)))
        known = law.gain @ law.scale
        omega = square_root(known @ known.T + law.noise @ law.noise.T) @ normals
        return _every_output(outputs, self.model.link(omega[:1]).shape[1:], omega)

    def _drawn_outputs(self, scramble: int, law: Law, Q: np.ndarray) -> _Outputs:
        """Outputs of fields that are drawn wider, or close to where solutions meet, so that rare ones are among
        them."""
        normals, noise, kinds = self._normals(scramble)
        fields, points, weights, rest = narrowed(normals[:, 0], ndtr(kinds.ravel()), Q, self._meeting)
        Z = law.scale @ fields
        omega = law.gain @ Z + law.noise @ normals[points, 1]
        observed = self.model.channel.draw(Z, noise[points])
        return _Outputs(observed, omega, Z - omega, weights, rest)

    def __call__(self, scramble: int, Q: np.ndarray) -> Estimate:
        """The estimates of one scramble at Q (P, P), of which only what the symmetries allow is given."""
        law = self.model.prior.law(Q)
        outputs = self.model.channel.posterior.outputs if Q.any() else None
        if outputs is None:
            observed, omega, off, weights, rest = self._drawn_outputs(scramble, law, Q)
        else:
            observed, omega = self._all_outputs(scramble, law, outputs)
        moments = self.model.channel.moments(
            observed, omega, law.V, cov=True, rtol=self.rtol, seed=self.seed * 1009 + scramble, averaged=True
        )
        assert moments.dg is not None, "the channel returned no covariance"
        if outputs is not None:
            off, weights = law.V @ moments.g, len(outputs) * np.exp(moments.log_partition)
            rest = weights
        # A posterior that was not found tells nothing; its infinite error makes that of the estimate infinite.
        absent = ~np.isfinite(moments.g).all(axis=(1, 2)) | ~np.isfinite(moments.dg).all(axis=(1, 2, 3, 4))
        still = self._still(Q)
        # What flips that leave omega alone change the sign of is zero; integrated numerically it is only small.
        unknown = np.asarray((still < 0).any(axis=0))
        alike = np.asarray(np.logical_and.reduce(still[:, :, None] == still[:, None, :], axis=0))
        there = ~absent[:, None, None]
        g, dg = _averaged(moments.g, moments.dg, self._turns(Q))
        g, dg, star, products = _whitened(law, g, dg, off, there & ~unknown[:, None], there & alike)
        multiplicity = self.model.prior.multiplicity
        products *= multiplicity * weights[:, None, None]
        size, error = np.einsum("npt,npt->n", g, g), np.where(absent, np.inf, moments.error)
        gaps = self.model.symmetry.coordinates(products[:1] - products[1:])
        weighted = np.sqrt(weights)[:, None, None, None, None] * dg
        with np.errstate(invalid="ignore"):
            inner = np.where(absent, np.inf, weights * (2 * np.sqrt(size) * error + error**2)).mean()
        white, gains = self._combine(products, weights)
        shared = _shared(moments, weights)
        first = self.model.symmetry.coordinates(products[0])
        sloped, shares = _sloped(weighted, gaps[0], first, unknown, multiplicity * shared)
        return Estimate(
            Q,
            white,
            self.model.symmetry.project(products.mean(axis=1)),
            multiplicity * sloped.value,
            multiplicity * sloped.raw,
            multiplicity * shares,
            gains,
            self._unclear(weighted, np.sqrt(weights) * moments.error),
            self._log_partition(moments.log_partition, size + np.einsum("nptpt->n", dg), rest, absent),
            float(inner) * multiplicity,
            moments.result is not Result.INTEGRATION and not absent.any(),
            gaps.mean(axis=1),
            np.hypot(gaps.std(axis=1, ddof=1) / math.sqrt(len(g)), multiplicity * shared),
            self._beside(Q, scramble, dg, star, observed, shared),
        )

    def _log_partition(self, log: np.ndarray, gap: np.ndarray, weights: np.ndarray, absent: np.ndarray) -> float:
        """E log Zout from log (n,) and gap (n,), |g|^2 + tr dg in units of what is left; NaN where no point has one."""
        if absent.all():
            return math.nan
        if self.model.channel.posterior.alike:
            # log Zout = constant - |g|^2 / 2 of a Gaussian posterior of one covariance: Nishimori says the mean of it.
            log = log + 0.5 * gap
        return float(np.average(log[~absent], weights=weights[~absent]))

    def _beside(
        self, Q: np.ndarray, scramble: int, dg: np.ndarray, star: np.ndarray, observed: Observation, shared: float
    ) -> np.ndarray:
        """:attr:`Estimate.beside`; shared: :func:`_shared`."""
        unit, made = units(self.model.symmetry.basis), None
        if Q.any() or not self.model.prior.centred():
            return np.zeros((len(unit), len(unit), NUMBERS, NUMBERS + 1))
        if worth(self.model, len(dg)):
            surrogate = self._surrogate.get((), lambda: Surrogate.of(self.model))
            draws = np.random.SeedSequence(self.seed, spawn_key=(scramble, _KNOWN))
            made = surrogate.at(self.model, observed, draws)
        return self.model.prior.multiplicity * beside(unit, dg, star, made, squares(self.model, observed, unit), shared)

    def _unclear(self, dg: np.ndarray, error: np.ndarray) -> np.ndarray:
        """:attr:`Estimate.unclear` from dg (n, P, T, P, T) and errors (n,) of posteriors; one without a bound is told
        by the infinite error of the estimate instead."""
        unit = units(self.model.symmetry.basis)
        most = np.where(np.isfinite(error), _BEYOND * error**2, 0.0)[:, None, None]
        unclear = np.zeros((len(unit), len(unit)))
        for begin in range(0, len(dg), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            unclear += np.minimum(np.abs(rates_of(unit, dg[part])), most[part]).sum(axis=0)
        unclear *= self.model.prior.multiplicity / len(dg)
        return np.asarray(0.5 * (unclear + unclear.T))

    def _still(self, Q: np.ndarray) -> np.ndarray:
        """The flips (G, P) of rows that leave the link and every omega in the range of Q unchanged."""
        signs = self.model.symmetry.signs
        learned = np.abs(Q).max(axis=1) > 0
        return np.asarray(signs[(signs[:, learned] > 0).all(axis=1)])

    def _turns(self, Q: np.ndarray) -> np.ndarray:
        """The elements (G, P, P) of the group that leave every omega in the range of Q where it is; none where they are
        flips alone, which say more simply what is zero."""
        elements = self.model.symmetry.elements
        here = elements[np.abs(elements @ Q - Q).max(axis=(1, 2)) <= _SAME * np.abs(Q).max()]
        return here if (here != here * np.eye(len(Q))).any() else here[:0]

    def _combine(self, products: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """V^{1/2} E V^{1/2}, and what it takes of both differences (2, k).

        The mean of E[g g^T], with the two differences of Nishimori, which vanish on average, as control variates, and,
        where points have weights, these less one: where one estimator is almost exact, so is the mean then.

        Each fold of the points takes its coefficients from the others: fitted to the points that they are
        applied to, they would bias the mean (by 1e-3 near perfect recovery, where one estimator is almost exact).
        """
        symmetry = self.model.symmetry
        first, second, third = symmetry.coordinates(products)  # (n, k) each
        fold = folds(len(first))
        best, gains = np.empty(first.shape[1]), np.zeros((2, first.shape[1]))
        for k in range(first.shape[1]):
            differences = [first[:, k] - second[:, k], first[:, k] - third[:, k]]
            controls = np.stack(differences + [weights - 1] * bool(np.ptp(weights)), axis=1)
            corrected = np.empty(len(first))
            for f in range(fold[-1] + 1):
                mine, others = fold == f, fold != f
                centred = controls[others] - controls[others].mean(axis=0)
                values = first[others, k] - first[others, k].mean()
                coefficient = np.linalg.lstsq(centred, values, rcond=None)[0]
                corrected[mine] = first[mine, k] - controls[mine] @ coefficient
                gains[:, k] += mine.mean() * coefficient[:2]
            best[k] = corrected.mean()
        combined = symmetry.matrix(best)
        values = np.linalg.eigvalsh(combined)
        if values[0] < -_ROUNDING * values[-1]:
            # E is positive semi-definite, and so is its first estimate; the combination is only on average.
            return symmetry.matrix(first.mean(axis=0)), np.zeros_like(gains)
        return combined, gains


def _meeting(model: Model) -> np.ndarray:
    """Projectors (J, P, P) on what is small where solutions of an output meet; none where fields are left on more than
    points, whose volume makes most of the noise, nor where others meet than symmetries make of one."""
    posterior, elements = model.channel.posterior, model.symmetry.elements
    solved = isinstance(posterior, OnLevelSet) and not posterior.dim and posterior.level_set.branches == len(elements)
    return meeting(elements[: len(elements) if solved else 0], model.tokens)


def _best_first(normals: np.ndarray) -> np.ndarray:
    """The first Sobol coordinates are the best: they go to the last rows of (n, ..., P, T), which the output shows most
    directly, and to how tokens differ, of which attention is made."""
    return np.asarray(normals[..., ::-1, :] @ helmert(normals.shape[-1], full=True)[::-1])


def _every_output(outputs: np.ndarray, shape: tuple[int, ...], omega: np.ndarray) -> tuple[Observation, np.ndarray]:
    """Every output (m, M), each of this shape, of every omega (n, P, T), (n m, ...) each: means over outputs are sums
    then, and what is left to chance is omega, of which E is a smooth function."""
    y = np.tile(outputs, (len(omega), 1)).reshape(-1, *shape)
    return Observation(y, None), np.repeat(omega, len(outputs), axis=0)


def _shared(moments: Moments, weights: np.ndarray) -> float:
    """Standard error that integrals leave in a mean of derivatives which several points share.

    Where outputs repeat, as discrete ones do, and nothing else is known, one integral serves all points of a kind
    (:meth:`smisym.model.channel.Channel.moments`): its error is one draw however many points there are, and these
    hide it from their spread.
    """
    log, error = moments.log_partition, moments.error
    kinds, kind, count = np.unique(np.stack([log, error], axis=1), axis=0, return_inverse=True, return_counts=True)
    share = np.bincount(kind.reshape(-1), weights=weights) / len(weights)
    several = (count > 1) & np.isfinite(kinds).all(axis=1)
    return _SQUARES * float(np.linalg.norm(np.where(several, share * np.where(several, kinds[:, 1], 0.0), 0.0)))


def _sloped(
    dg: np.ndarray, gaps: np.ndarray, first: np.ndarray, rows: np.ndarray, unsure: float
) -> tuple[Slope, np.ndarray]:
    """The slope of dg (n, P, T, P, T) with gaps (n, k) from the first estimate (n, k) as controls, and what it shares
    with each gap (k, P, P, P, P), or nothing (0, P, P, P, P) where that would be many numbers.  unsure: what shared
    integrals leave of the means of the gaps."""
    # What omega tells nothing of: E is zero there, so that the second estimate has mean zero as well.
    idle = np.asarray(~first.any(axis=0))
    found = slope(dg, gaps[:, idle], rows, unsure)
    shape = found.raw.shape
    if len(idle) * found.raw.size > _SHARES:
        return found, np.zeros((0, *shape))
    shares = np.zeros((len(idle), *shape))
    shares[idle] = found.shares
    return found, shares


def _average(values: np.ndarray, weights: np.ndarray) -> float:
    """Of values that have a weight; NaN where none has."""
    there = weights > 0
    return float(np.average(values[there], weights=weights[there])) if there.any() else math.nan


def _averaged(g: np.ndarray, dg: np.ndarray, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """g (n, P, T) and dg (n, P, T, P, T) as a group (G, P, P) that leaves link and omega where they are has them:
    unchanged by it.  Numerical integrals are so up to their errors, which would look like something that is learned."""
    if not len(turns):
        return g, dg
    both = np.einsum("gpa,gqb->paqb", turns, turns) / len(turns)
    return turns.mean(axis=0) @ g, np.einsum("paqb,natbs->nptqs", both, dg, optimize=True)


# Many parameters: what is turned, and which of it is there.
def _whitened(
    law: Law, g: np.ndarray, dg: np.ndarray, off: np.ndarray, shown: np.ndarray, heard: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """g (n, P, T), dg (n, P, T, P, T) and V^{-1} off in units of what is left to learn, of order one however small V
    is, and their products (3, n, P, P).  shown (n, P, 1), heard (n, P, P): what is not zero."""
    found = np.empty_like(g), np.empty_like(dg), np.empty_like(g), np.empty((3, len(g), g.shape[1], g.shape[1]))
    # Block by block: what a whole scramble's temporaries take from memory takes longer than to compute with them.
    for begin in range(0, len(g), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        turned = law.units @ np.where(shown[part], g[part], 0.0)
        among = np.where(heard[part][:, :, None, :, None], dg[part], 0.0)
        both = np.einsum("pi,nitjs,jq->nptqs", law.units, among, law.back, optimize=True)
        star = law.units @ np.linalg.solve(law.V, off[part])
        found[0][part], found[1][part], found[2][part] = turned, both, star
        found[3][:, part] = _products(turned, both, star)
    return found


def _products(g: np.ndarray, dg: np.ndarray, star: np.ndarray) -> np.ndarray:
    """(3, n, P, P): g g^T, -dg and g star^T, summed over tokens."""
    return np.stack(
        [
            np.einsum("npt,nqt->npq", g, g),
            -_symmetric(np.einsum("nptqt->npq", dg)),
            _symmetric(np.einsum("npt,nqt->npq", g, star)),
        ]
    )


def _symmetric(products: np.ndarray) -> np.ndarray:
    return 0.5 * (products + np.swapaxes(products, -1, -2))
