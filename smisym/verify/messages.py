"""GAMP on finite data: its overlaps follow state evolution, step by step, as D grows.

Deviations are of order 1/D on average and 1/sqrt(D) in one run.  Runs at two D, one four times the other, leave
(4 d(4D) - d(D)) / 3, of which the mean vanishes up to 1/D^2: one value for each pair of runs, and all a t test.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from smisym.finite.samples import generate
from smisym.verify.averages import lines_of_map
from smisym.verify.chance import Verdict, in_two_stages, means_vanish
from smisym.verify.properties import SCRAMBLES, Property, Subject, Tried, left_out

# Overlap at the start, steps, and the smaller D (for each slice of the embedding); samples of the map.
_START, _STEPS, _DIM, _SAMPLES = 0.3, 3, 48, 4096
# Pairs of runs at least.
_FEWEST = 4
# Posteriors that are so many times dearer than cheap ones make runs too long.
_TOO_DEAR = 64
# alpha is where one step from the start makes Q_hat = I on average, between these.
_LEAST, _MOST = 0.1, 4.0


def predicted(estimates: Any, alpha: float) -> np.ndarray:
    """(P, P): one step of state evolution, Q_hat (I + Q_hat)^{-1} with Q_hat = alpha E."""
    one = np.eye(len(estimates.E))
    return np.asarray(one - np.linalg.inv(one + alpha * estimates.E))


def evolved(omap: Any, alpha: float) -> np.ndarray:
    """(R, steps, P, P): overlaps of state evolution, scramble by scramble."""
    found = []
    for r in range(omap.scrambles):
        Q, along = _START * np.eye(omap.model.fields), []
        for _ in range(_STEPS):
            Q = predicted(omap.at(r, Q), alpha)
            along.append(Q)
        found.append(along)
    return np.array(found)


def run(model: Any, algorithm: Any, dim: int, alpha: float, seed: int) -> np.ndarray:
    """(2, steps, P, P): overlaps of one run with the truth and with itself, from a start that is a posterior mean."""
    rng = np.random.default_rng([seed, dim])
    data = generate(model, dim, alpha, rng, normalised=True)
    noise = model.prior.draw(dim, rng)
    start = _START * data.W + np.sqrt(_START * (1 - _START)) * noise
    found = algorithm(model, data.X, data.y, W=data.W, initial=start, max_steps=_STEPS, tol=1e-12)
    last = [record for record in found.history if record["step"]]
    # A run that stopped early rests where it is.
    last += [last[-1]] * (_STEPS - len(last))
    return np.array([[record[name] for record in last[:_STEPS]] for name in ("overlap", "Q")])


# Many parameters: a run, its sizes and where it should go.
def deviations(
    model: Any, algorithm: Any, dims: tuple[int, int], alpha: float, theory: np.ndarray, seed: int
) -> np.ndarray:
    """(R, k): of each pair of runs the overlaps extrapolated in 1/D, less those of state evolution, in invariant
    coordinates."""
    found = []
    for r, along in enumerate(theory):
        few, many = (run(model, algorithm, dim, alpha, seed + r) for dim in dims)
        gaps = (dims[1] * many - dims[0] * few) / (dims[1] - dims[0]) - along
        both = (gaps + np.swapaxes(gaps, -1, -2)) / 2
        found.append(np.concatenate([model.symmetry.coordinates(gap) for step in both for gap in step]))
    return np.array(found)


def _follows(subject: Subject, level: float) -> Tried:
    model = subject.model
    if model.channel.plan.dearer >= _TOO_DEAR:
        return left_out("posteriors are too dear for runs on data")
    if model.prior.finite_size:
        return left_out(model.prior.finite_size)
    first = subject.overlap_map(_SAMPLES, "gamp").evaluate(_START * np.eye(model.fields))
    told = float(np.trace(np.mean([e.E for e in first], axis=0))) / model.fields
    if not told > 1e-6:
        return left_out("nothing is learned")
    alpha = float(np.clip(round(1 / told, 2), _LEAST, _MOST))
    dims = (_DIM * model.prior.multiplicity, 4 * _DIM * model.prior.multiplicity)
    shown: list[str] = []

    def test(stage: int, times: int) -> Verdict:
        count, number = max(_FEWEST, int(times * SCRAMBLES * subject.effort)), subject.number("runs", stage) % 2**31
        omap = subject.overlap_map(times * _SAMPLES, "evolved", stage, scrambles=count)
        gaps = deviations(model, subject.algorithm, dims, alpha, evolved(omap, alpha), number)
        found = means_vanish(gaps, 4 * max(e.inner_error for e in first) + 1e-9)
        body = (
            "from smisym.verify.messages import deviations, evolved\n\n"
            f"gaps = deviations(model, smisym.gamp, {dims}, {alpha}, evolved(omap, {alpha}), {number})\n"
            "print(gaps.mean(axis=0) / (gaps.std(axis=0) / len(gaps) ** 0.5))  # in standard errors: up to 4 is chance"
        )
        shown[:] = [lines_of_map(subject, omap, body)]
        return Verdict(found.t, found.p, found.which, 2 * count, found.error, stage + 1)

    found = in_two_stages(test)
    holds = found.p >= level
    said = f"at alpha = {alpha:.4g}, D = {dims[0]} and {dims[1]}"
    return Tried(found.number, "runs", found.t, found.p, holds, said, "" if holds else shown[0])


PROPERTIES = (
    Property(
        "gamp",
        "Overlaps of GAMP on data follow state evolution step by step, extrapolated in 1/D from two D.",
        "arXiv 2502.00901, appendix B",
        "seconds",
        True,
        _follows,
    ),
)
