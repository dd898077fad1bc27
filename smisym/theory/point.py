"""Where one scramble's solve ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from smisym.base.solution import Result
from smisym.theory.linearised import Local


@dataclass
class Point:
    """Where one scramble's solve ended.

    Q (P, P): the overlap, with ones where it is perfect.  known (P, P): projector on these directions.
    at: the linearisation at the last evaluation (at perfect recovery, where that was clear).
    left (P, P): Newton's step that is still to make, in the unit of Q: the residual.  result: MAX_STEPS, DIVERGED,
    INTEGRATION, RESIDUAL (unstable) or SUCCESS; whether ``left`` is small is for those to say who know the spread.
    history: records of the iterations.  correction (k, k): what the derivative of R proved to be beside its estimate.
    died (P, P): a kick along a direction that is unstable by its derivative, and came back; None where there was none.
    """

    Q: np.ndarray
    known: np.ndarray
    at: Local | None
    left: np.ndarray
    result: Result
    history: list[dict[str, Any]]
    alpha: float
    side_information: float = 0.0
    correction: np.ndarray | None = None
    died: np.ndarray | None = None

    @property
    def perfect(self) -> bool:
        """Whether everything is."""
        return bool(np.trace(self.known) > len(self.known) - 0.5)

    @property
    def potential(self) -> float:
        """E log Zout, infinite and therefore NaN where anything is perfect."""
        return math.nan if self.at is None or self.known.any() else self.at.estimate.log_partition

    @property
    def stable(self) -> bool:
        return self.perfect or self.at is None or self.at.stable

    @property
    def E(self) -> np.ndarray:
        return np.full_like(self.Q, math.nan) if self.at is None else self.at.estimate.E
