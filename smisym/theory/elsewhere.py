"""The estimator of an overlap map as other processes have it."""

from __future__ import annotations

import time

import numpy as np

from smisym.base import patience
from smisym.base.errors import OutOfTime
from smisym.theory.estimate import Estimate
from smisym.theory.estimating import Estimator


class Elsewhere:
    """It travels without its points: they are drawn there."""

    def __init__(self, estimator: Estimator) -> None:
        model, points, seed, rtol = estimator.model, estimator.points, estimator.seed, estimator.rtol
        self.estimator = Estimator(model, points, seed, rtol)

    def __call__(self, scramble: int, Q: np.ndarray, seconds: float | None) -> Estimate:
        """The estimates of one scramble at Q (P, P); OutOfTime after ``seconds``."""
        begun = time.perf_counter()

        def check() -> None:
            if seconds is not None and time.perf_counter() - begun > seconds:
                raise OutOfTime("in another process")

        with patience.asking(check):
            return self.estimator(scramble, Q)
