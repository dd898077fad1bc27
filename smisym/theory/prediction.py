"""Errors of predicting the output of a new sample, at a given overlap with the truth.

At overlap Q the fields of a new sample are ``Z = omega + B u`` with ``omega = A xi``
(:meth:`smisym.prior.Prior.roots`: the roots of Q and of what is left of it), xi, u (P, T) standard normal: omega is
what the estimate sees, u what it does not.  Three errors are in use, and differ (``f`` the link; squared Frobenius
norms):

    Bayes     E||f(Z) - E[f(Z) | omega]||^2     the best possible
    Gibbs     E||f(Z) - f(Z')||^2               predicting by one sample Z' of the posterior: twice Bayes
    plug-in   E||f(Z) - f(omega)||^2            predicting by the link at the mean fields

They are expectations over fields alone: no channel and no inner integral.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from smisym.base.edge import check_count, check_model, check_number, check_overlap, check_seed
from smisym.base.errors import InputError
from smisym.base.sobol import Normals
from smisym.base.solution import Result, Solution, mean_and_error
from smisym.prior import Prior

BLOCK = 4096  # points per call of the link: keeps memory flat; a power of two, as Sobol points want


class PredictionModel(Protocol):
    """All that prediction errors read of a model."""

    @property
    def fields(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    @property
    def prior(self) -> Prior: ...

    def link(self, Z: np.ndarray) -> np.ndarray: ...


def prediction_errors(
    model: PredictionModel,
    Q: np.ndarray,
    *,
    samples: int = 32768,
    scrambles: int = 8,
    inner: int = 2,
    rtol: float = 0.01,
    seed: int = 0,
) -> dict[str, Solution]:
    """Bayes, Gibbs and plug-in errors of predicting the noiseless output ``f(Z)`` at overlap Q.

    Q (P, P)
        Overlap of the estimate with the truth, symmetric, 0 <= Q <= I; exact at both ends.
    samples
        Points omega in all, over ``scrambles`` independent scrambles of a Sobol sequence, which give the error bar;
        samples / scrambles must be a power of two.
    inner >= 2
        Fields Z drawn independently given each omega.  The Bayes error is the mean over omega of the *sample variance*
        of their outputs, which has no bias at any ``inner``.
    rtol
        A statistical error above rtol times the value gives the result NOISY.
    seed
        The scrambles draw from ``SeedSequence(seed).spawn(scrambles)``.

    Returns {"bayes", "gibbs", "plug_in"} to Solution: value a float, statistical_error from the scrambles, history one
    record with the value of each scramble.  Additive noise of variance Delta in the output, if any, adds K Delta to the
    Bayes and the plug-in error and 2 K Delta to the Gibbs error, K the number of outputs.

    Raises InputError for a Q that is not such a matrix, and for bad numbers of points.
    """
    check_model(model)
    root_Q, root_V = model.prior.roots(check_overlap(Q, model.fields))
    points = _check_points(samples, scrambles, inner, rtol)
    seeds = np.random.SeedSequence(check_seed(seed)).spawn(scrambles)
    means = np.array([_one_scramble(model, root_Q, root_V, points, inner, child) for child in seeds])
    settings = {
        "Q": np.asarray(Q, dtype=float), "samples": samples, "scrambles": scrambles, "inner": inner, "rtol": rtol,
        "seed": seed,
    }  # fmt: skip
    bayes, plug_in = means.T
    values = {"bayes": bayes, "gibbs": 2 * bayes, "plug_in": plug_in}
    return {name: _solution(name, value, rtol, settings) for name, value in values.items()}


def _solution(name: str, values: np.ndarray, rtol: float, settings: dict[str, object]) -> Solution:
    mean, error = mean_and_error(values)
    return Solution(
        float(mean),
        Result.SUCCESS if error <= rtol * mean else Result.NOISY,
        statistical_error=float(error),
        degrees_of_freedom=len(values) - 1,
        history=({"kind": name, "scrambles": values},),
        settings=settings,
    )


def _one_scramble(
    model: PredictionModel,
    root_Q: np.ndarray,
    root_V: np.ndarray,
    points: int,
    inner: int,
    seed: np.random.SeedSequence,
) -> tuple[float, float]:
    """Bayes and plug-in error from one scrambled Sobol sequence."""
    P, T = model.fields, model.tokens
    normals = Normals((1 + inner) * P * T, seed, fine=True)
    block = min(points, BLOCK)
    bayes = plug_in = 0.0
    for _ in range(points // block):
        normal = normals.draw(block).reshape(block, 1 + inner, P, T)
        omega = root_Q @ normal[:, 0]
        Z = omega[:, None] + root_V @ normal[:, 1:]
        outputs = model.link(Z.reshape(-1, P, T)).reshape(block, inner, -1)
        guess = model.link(omega).reshape(block, 1, -1)
        # Two passes: near Q = I the outputs of one omega agree to many digits, and sums of squares would cancel.
        spread = outputs - outputs.mean(axis=1, keepdims=True)
        bayes += float(np.sum(spread**2)) / (inner - 1)
        plug_in += float(np.sum((outputs - guess) ** 2)) / inner
    return bayes / points, plug_in / points


def _check_points(samples: int, scrambles: int, inner: int, rtol: float) -> int:
    for name, value, least in (("samples", samples, 1), ("scrambles", scrambles, 2), ("inner", inner, 2)):
        check_count(name, value, least)
    points, left = divmod(samples, scrambles)
    if left or points < 2 or points & (points - 1):
        power = 2 ** max(1, round(math.log2(max(2.0, samples / scrambles))))
        raise InputError(
            "samples",
            f"{samples} over {scrambles} scrambles",
            "samples / scrambles a power of two, at least 2",
            f"use samples = {power * scrambles}",
        )
    if not 0 < check_number("rtol", rtol, "0 < rtol < 1", "leave it out for the default") < 1:
        raise InputError("rtol", rtol, "0 < rtol < 1", "leave it out for the default")
    return points
