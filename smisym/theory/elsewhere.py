"""The estimators of a model's overlap maps as other processes have them."""

from __future__ import annotations

import time

import numpy as np

from smisym.base import patience
from smisym.base.errors import OutOfTime
from smisym.base.remembered import Remembered
from smisym.model.compiled import Model
from smisym.theory.estimate import Estimate
from smisym.theory.estimating import Estimator

# Estimators of which a process remembers the points.
_KEPT = 8


class Elsewhere:
    """It travels once for all maps of a model, however many points they have, which are drawn there."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._estimators = Remembered[Estimator](_KEPT)

    def __call__(self, settings: tuple[int, int, float], scramble: int, Q: np.ndarray, left: float | None) -> Estimate:
        """The estimates of one scramble at Q (P, P); settings: those of :class:`Estimator`.

        Raises OutOfTime after ``left`` seconds.
        """
        begun = time.perf_counter()

        def check() -> None:
            if left is not None and time.perf_counter() - begun > left:
                raise OutOfTime("in another process")

        estimator = self._estimators.get(settings, lambda: Estimator(self.model, *settings))
        with patience.asking(check):
            return estimator(scramble, Q)
