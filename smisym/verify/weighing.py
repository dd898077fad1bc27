"""Posteriors without any formula: draws of the cavity, weighed by how near their outputs are to y.

With a kernel k_h of width h around y, E[k_h(f(Z) - y) (Z - m)] is the density of y times what the mean m is off by, up
to even powers of h; (8/3) k_h - 2 k_{sqrt(2) h} + (1/3) k_{2h}, each over h^K, leaves h^6.  That is a mean of
independent numbers: it should vanish, and so for second moments and for ratios of Zout.  What the width may do is
allowed: what k_h itself, of order h^2, and 2 k_h - k_{sqrt(2) h}, of order h^4, differ by, that one and the first, and
what a kernel says whose widths are those of the fields: of outputs 40 and 0.008, cubes of scores, one width is any for
the smaller.
Declared noise is a kernel itself, and outputs that repeat need none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.verify.chance import Verdict, groups, in_two_stages, means_vanish
from smisym.verify.exact import outputs_per_sample
from smisym.verify.posteriors import _COVARIANCES, _MEANS, _posterior
from smisym.verify.properties import Property, Subject, Tried, left_out, lines

# Cavities, draws of each; draws within reach that a case takes, of which the width follows, and the largest width in
# standard deviations of the outputs near it.
_CASES, _DRAWS, _NEAR, _WIDEST = 6, 2**17, 3000, 0.35
# Relative change of the density of y over a width beyond which it is not smooth there, as near an edge of what outputs
# can be, and how often the width is halved for it.
_EVEN, _HALVED = 0.05, 4
# Overlaps of the cavities, and the step to another one in standard deviations of the fields.
_LOW, _HIGH, _STEP = 0.2, 0.8, 0.4
# Step of the fields over which slopes of outputs are told, and slopes beside the largest that are none.
_AROUND, _FLAT = 1e-5, 1e-5
# Stated errors above which posteriors tell nothing.
_KNOWN = 0.02
# A part of the posterior of mass q stays unseen by n draws with a chance of exp(-q n): -log of the chance that is
# taken, and how far from the cavity's mean fields are looked for, in its standard deviations.
_UNSEEN, _FAR = 15.0, 4.0


@dataclass(frozen=True)
class Weighed:
    """values (n, k): numbers of independent draws whose means vanish; allowed (k,): up to so much."""

    values: np.ndarray
    allowed: np.ndarray


def kernels(gaps: np.ndarray, outputs: float, noise: float) -> tuple[np.ndarray, ...] | None:
    """(n,) thrice: weights of draws whose outputs are off y by gaps (n, M), of order six, four and two in the width;
    None where too few are near, not finite is never near.  outputs: K, how many numbers one output has."""
    # In a unit, a power of two, in which squares of outputs of any scale are numbers, and have all their digits.
    gaps = np.where(np.isfinite(gaps), gaps, np.inf)
    size = np.median(np.abs(gaps).max(axis=1))
    unit = float(np.exp2(np.round(np.log2(size)))) if 0 < size < np.inf else 1.0
    gaps = gaps / unit
    square = np.einsum("nm,nm->n", gaps, gaps)
    if not np.isfinite(square.min()):
        return None
    if noise:
        weights = np.exp(-(square - square.min()) * (unit / np.sqrt(noise)) ** 2 / 2)
        return (weights,) * 3 if weights.sum() > _NEAR / 4 else None
    same = square == 0
    if same.sum() > _NEAR / 4:
        return (same.astype(float),) * 3
    nearest = np.partition(square, _NEAR)
    width = np.sqrt(nearest[_NEAR] / max(outputs, 1.0)) / 2
    if not 0 < width < _WIDEST * np.sqrt(np.median(square) / max(outputs, 1.0)):
        return None
    for halved in range(_HALVED):
        h = width / 2**halved
        each = [np.exp(-square / (2 * s * h**2)) / s ** (outputs / 2) for s in (1, 2, 4)]
        first, second = float(each[0].sum()), float(each[1].sum())
        if abs(second - first) < _EVEN * first:
            return (8 * each[0] - 6 * each[1] + each[2]) / 3, 2 * each[0] - each[1], each[0]
    return None


def in_fields(link: Any, Z: np.ndarray, root: np.ndarray) -> np.ndarray:
    """(M, M) that makes of a small change of the M outputs the change of the fields, in units of V^{1/2}, that makes
    it at Z (P, T): outputs one of which changes a thousand times as fast as another, as powers of scores do, have one
    width then.  What no field changes at first order counts as what is changed least."""
    steps = np.eye(Z.size).reshape(-1, *Z.shape) * _AROUND
    up, down = (link(Z + sign * (root @ steps)).reshape(Z.size, -1) for sign in (1.0, -1.0))
    slopes = (up - down) / (2 * _AROUND)
    eye = np.eye(slopes.shape[1])
    if not np.isfinite(slopes).all():
        return eye
    _, sizes, axes = np.linalg.svd(slopes)
    counted = sizes[sizes > _FLAT * sizes[:1]]
    if not counted.size:
        return eye
    scale = np.full(len(axes), counted[-1])
    scale[: counted.size] = counted
    return np.asarray(axes.T / scale)


# Many parameters: a posterior and the draws.
def weighed(
    model: Any, Z: np.ndarray, omega: np.ndarray, V: np.ndarray, outputs: float, count: int, seed: int
) -> Weighed | None:
    """The posterior of the output at Z (P, T), by the channel, against ``count`` draws of the cavity; in units of
    V^{1/2}.  None where it is not known well, or too few draws are near."""
    rng = np.random.default_rng(seed)
    y = model.channel.sample(Z[None], rng)
    root = np.linalg.cholesky(V)
    step = root @ rng.standard_normal(Z.shape)
    step *= _STEP / np.linalg.norm(np.linalg.solve(root, step))
    subject = Subject(model)
    here, there = (_posterior(subject, y, o[None], V, cov=True) for o in (omega, omega + step))
    error = float(here.bound[0] + there.bound[0])
    if not error < _KNOWN or here.cov is None:
        return None
    with np.errstate(all="ignore"):
        u = rng.standard_normal((count, *Z.shape))
        gaps = model.link(omega + root @ u).reshape(count, -1) - y.y.reshape(1, -1)
        found = kernels(gaps, outputs, model.noise)
        other = found if model.noise else kernels(gaps @ in_fields(model.link, Z, root), outputs, 0.0)
    if found is None or other is None:
        return None
    inverse = np.linalg.inv(root)
    mean = (inverse @ (here.mean[0] - omega)).ravel()
    cov = np.einsum("ap,ptqu,bq->atbu", inverse, here.cov[0], inverse).reshape(mean.size, mean.size)
    off = u.reshape(count, -1) - mean
    upper = np.triu_indices(mean.size)
    second = off[:, upper[0]] * off[:, upper[1]] - cov[upper]
    along = (inverse @ step).ravel()
    ratio = np.exp(u.reshape(count, -1) @ along - 0.5 * along @ along)
    odds = ratio - float(np.exp(there.log_partition[0] - here.log_partition[0]))
    every = np.column_stack([off, second, odds])
    fine, coarse, plain = (w[:, None] * every / w.sum() for w in found)
    times = np.concatenate([np.full(mean.size, _MEANS), np.full(second.shape[1], _COVARIANCES), [_MEANS]])
    width = np.abs((fine - coarse).sum(axis=0)) + np.abs((coarse - plain).sum(axis=0))
    # What depends on the unit in which near is told is width as well.
    width += np.abs((fine - other[0][:, None] * every / other[0].sum()).sum(axis=0))
    return Weighed(count * fine, width + times * error + _unseen(found[0], mean, cov, float(np.linalg.norm(along))))


def _unseen(weights: np.ndarray, mean: np.ndarray, cov: np.ndarray, step: float) -> np.ndarray:
    """(k,) what a part of the posterior that no draw has met may add to means, second moments and the ratio: no more
    than the channel's own variances hold."""
    mass = _UNSEEN * float((weights**2).sum()) / float(np.abs(weights).sum()) ** 2
    far, variance = _FAR + np.abs(mean), np.diag(cov)
    first = np.minimum(mass * far, np.sqrt(mass * variance))
    share = np.minimum(np.sqrt(mass) * far, np.sqrt(variance))
    upper = np.triu_indices(len(mean))
    ratio = mass * np.exp(step * (_FAR + float(np.linalg.norm(mean))))
    return np.concatenate([first, share[upper[0]] * share[upper[1]], [ratio]])


def _cavity(subject: Subject, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(Z, omega, V) of a random overlap, not diagonal where rows may be learned together."""
    model, rng = subject.model, subject.rng("weighed", k)
    turn = np.linalg.qr(np.eye(model.fields) + 0.4 * rng.standard_normal((model.fields,) * 2))[0]
    Q = model.prior.together() * (turn @ np.diag(rng.uniform(_LOW, _HIGH, model.fields)) @ turn.T)
    A, B = model.prior.roots((Q + Q.T) / 2)
    omega = A @ rng.standard_normal((model.fields, model.tokens))
    return omega + B @ rng.standard_normal(omega.shape), omega, model.prior.law((Q + Q.T) / 2).V


def _posteriors_are_weighed_draws(subject: Subject, level: float) -> Tried:
    model = subject.model
    outputs = 0.0 if model.noise else float(outputs_per_sample(model, 0).mean())
    tried: list[tuple[int, int]] = []

    def test(stage: int, times: int) -> Verdict:
        every: list[Weighed] = []
        tried.clear()
        for k in range(subject.many(_CASES)):
            found = weighed(model, *_cavity(subject, k), outputs, times * _DRAWS, subject.number("draws", k, stage))
            if found is not None:
                every.append(found)
                tried.extend([(k, stage)] * found.values.shape[1])
        if not every:
            return Verdict(0.0, 1.0, 0, 0, 0.0, 1)
        values = np.concatenate([groups(one.values) for one in every], axis=1)
        found_ = means_vanish(values, np.concatenate([one.allowed for one in every]))
        return Verdict(found_.t, found_.p, found_.which, len(every), found_.error, stage + 1)

    found = in_two_stages(test)
    if not found.number:
        return left_out("no posterior is known well enough, or too few draws come near an output")
    holds, shown = found.p >= level, ""
    if not holds:
        k, stage = tried[found.which]
        Z, omega, V = _cavity(subject, k)
        count, seed = (4 if stage else 1) * _DRAWS, subject.number("draws", k, stage)
        body = (
            "from smisym.verify.weighing import weighed\n\n"
            f"found = weighed(model, Z, omega, V, {outputs}, {count}, {seed})\n"
            "means = found.values.mean(axis=0)  # of the mean, second moments and a ratio of Zout, less the channel's\n"
            "print(means / (found.values.std(axis=0) / len(found.values) ** 0.5))  # in standard errors\n"
            "print(means, found.allowed)"
        )
        shown = lines(subject, body, Z=Z, omega=omega, V=V)
    return Tried(found.number, "posteriors", found.t, found.p, holds, counterexample=shown)


PROPERTIES = (
    Property(
        "moments",
        "Means, covariances of all fields and ratios of Zout are those of cavity draws, weighed by their outputs.",
        "no chart, no weight, no integrator",
        "seconds",
        True,
        _posteriors_are_weighed_draws,
    ),
)
