"""Fixed points of state evolution where symmetries leave two overlaps, from rates by a quadrature of a test's own."""

from collections.abc import Callable

import numpy as np
from scipy import optimize


def fixed_point(
    rates: Callable[[float, float], tuple[float, float]], q_v: float, low: float, high: float
) -> tuple[float, float]:
    """(alpha, q_u), q_u between ``low`` and ``high``, with that q_v > 0: both equations q / (1 - q) = alpha E."""

    def both(q_u: float) -> tuple[float, float]:
        e_u, e_v = rates(q_u, q_v)
        return q_u / (1 - q_u) / e_u, q_v / (1 - q_v) / e_v

    q_u = optimize.brentq(lambda q: np.subtract(*both(q)), low, high, xtol=1e-6)
    return both(q_u)[0], q_u
