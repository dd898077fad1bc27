"""A little noise: posteriors under noise of a variance that vanishes tend to the noiseless ones, and how fast.

Where the output has a density in its coordinates, moments at the same y move by Delta to first order: what two
variances, one a tenth of the other, extrapolate to is the noiseless moment, but for a part of what they differ by.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from smisym.base.errors import SmisymError
from smisym.model.compiled import Model, compile
from smisym.verify.exact import outputs_per_sample
from smisym.verify.posteriors import _COVARIANCES, _MEANS
from smisym.verify.properties import Property, Subject, Tried, left_out, lines
from smisym.verify.searching import search
from smisym.verify.strategies import Cavity, cavities

# Variances, share of their difference that second order may be, and moments that differ by more tell nothing.
_DELTAS, _SHARE, _TELLING = (1e-4, 1e-5), 0.3, 0.1
# The noise must be small beside what the output tells: least variance of the cavity, least singular value of df/dZ at
# the true fields among those of a typical output, and the step of its differences.
_VARIANCE, _SLOPE, _STEP = 0.1, 0.3, 1e-5
# Stated errors beyond which nothing is told; rounding of an output, of which a float has lost the log-ratios.
_KNOWN, _ROUNDING = 0.02, 1e-6
# Cavities at least: three of two layers did not show a wrong Jacobian.
_FEWEST = 5

_BODY = """import dataclasses

y = model.link(Z[None])
for noise in (1e-4, 1e-5, 0):  # towards zero, ten times as near each time
    noisy = smisym.compile(dataclasses.replace(model.architecture, noise=noise))
    m = noisy.channel.moments(y, omega[None], V, cov=True)
    print(noise, m.mean[0].ravel(), m.error)"""


def whitened(model: Model, y: np.ndarray, cavity: Cavity) -> tuple[np.ndarray, np.ndarray, float]:
    """((P, T) mean less omega, (P, T, P, T) covariance, in units of V^{1/2}, and the error of the mean)."""
    with np.errstate(all="ignore"):
        m = model.channel.moments(y, cavity.omega[None], cavity.V, cov=True, rtol=1e-3, max_nodes=200_000)
    inverse = np.linalg.inv(np.linalg.cholesky(cavity.V))
    assert m.cov is not None
    cov = np.einsum("ap,ptqu,bq->atbu", inverse, m.cov[0], inverse)
    return inverse @ (m.mean[0] - cavity.omega), cov, float(m.bound[0])


def steep(model: Model, Z: np.ndarray, outputs: int) -> bool:
    """Whether all numbers that an output has move with the fields at Z (P, T), which is then no singular point."""
    steps = _STEP * np.eye(Z.size).reshape(Z.size, *Z.shape)
    with np.errstate(all="ignore"):
        columns = (model.link(Z + steps) - model.link(Z - steps)).reshape(Z.size, -1) / (2 * _STEP)
    if not np.isfinite(columns).all():
        return False
    return bool(np.linalg.svd(columns, compute_uv=False)[outputs - 1] >= _SLOPE)


def _misfit(model: Model, noisy: list[Model], outputs: int, cavity: Cavity) -> float | None:
    if np.linalg.eigvalsh(cavity.V)[0] < _VARIANCE or not steep(model, cavity.Z, outputs):
        return None
    with np.errstate(all="ignore"):
        y = model.link(cavity.Z[None])
    if not np.isfinite(y).all():
        return None
    try:
        every = [whitened(one, y, cavity) for one in (*noisy, model)]
    except SmisymError:
        # An output that a float has rounded off the image.
        return None
    error = sum(e for *_, e in every)
    if not error < _KNOWN:
        return None
    worst = 0.0
    for kind, times in ((0, _MEANS), (1, _COVARIANCES)):
        more, less, none = (one[kind] for one in every)
        moved = float(np.abs(more - less).max())
        if not moved < _TELLING:
            return None
        limit = less + (less - more) / (_DELTAS[0] / _DELTAS[1] - 1)
        worst = max(worst, float(np.abs(limit - none).max()) / (_SHARE * moved + times * error + _ROUNDING))
    return worst


def _noise_vanishes(subject: Subject, level: float) -> Tried:
    model, declared = subject.model, subject.model.architecture
    if model.noise or declared is None:
        return left_out("noise is declared" if model.noise else "a bare program has no noise")
    if model.level_set is None or not model.level_set.density:
        return left_out("the chart gives no density of outputs, to which those under noise could tend")
    noisy: list[Model] = [compile(dataclasses.replace(declared, noise=delta)) for delta in _DELTAS]
    if noisy[-1].channel.plan.dearer > 16:
        return left_out("posteriors under noise are too dear")
    outputs = int(outputs_per_sample(model, 0).max())
    count = subject.many(max(_FEWEST, 12 // noisy[-1].channel.plan.dearer))

    def misfit(cavity: Any) -> float | None:
        return _misfit(model, noisy, outputs, cavity)

    found = search(cavities(model), misfit, count, subject.number("weak noise"))
    if found.holds is None:
        return left_out("no posterior under noise was known well enough to tell")
    case, shown = found.failing, ""
    if case is not None:
        shown = lines(subject, _BODY, Z=case.Z, omega=case.omega, V=case.V)
    return Tried(found.number, "cavities", found.worst, None, found.holds, counterexample=shown)


PROPERTIES = (
    Property(
        "small-noise",
        "Posteriors under noise that vanishes tend to the noiseless ones, to first order in its variance.",
        "noiseless limit of the channel under noise",
        "seconds",
        False,
        _noise_vanishes,
    ),
)
