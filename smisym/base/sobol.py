"""Scrambled Sobol points as standard normals: the only maker of quasi-random fields in the house."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

# A coordinate can be exactly 0, whose normal quantile is -inf: it is moved to the middle of its cell.
_LEAST = 2.0**-54


class Normals:
    """One scramble of a Sobol sequence in ``dim`` dimensions, drawn on and on as standard normals.

    seed: an int, a SeedSequence or anything else that numpy makes a Generator of.  fine: 53 bits a coordinate in place
    of 30, for as many points as there may be.
    """

    def __init__(self, dim: int, seed: int | np.random.SeedSequence, *, fine: bool = False) -> None:
        # Half a second to import, which the first posterior does not take.
        from scipy.stats import qmc

        self._engine = qmc.Sobol(dim, scramble=True, bits=53 if fine else None, rng=np.random.default_rng(seed))

    def draw(self, count: int) -> np.ndarray:
        """The next points, (count, dim); counts are best powers of two, or rounds of one."""
        return np.asarray(ndtri(np.maximum(self._engine.random(count), _LEAST)))
