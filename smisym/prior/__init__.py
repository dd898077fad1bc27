"""The law of the weights and its scaling: all that the solvers know of W.

Overlaps are counted in units of the prior: Q = 0 where nothing is known, Q = I where everything is.
"""

from __future__ import annotations

from smisym.prior.base import Law, Prior, Response, remaining
from smisym.prior.extensive import ExtensiveRank
from smisym.prior.extensive_rows import ExtensiveRows
from smisym.prior.gaussian import GaussianPrior, GaussianRows, SlicedRows
from smisym.prior.matrices import PerSquare, Symmetric
from smisym.prior.own_spectrum import OwnSpectrum
from smisym.prior.rectangular import RectangularRank
from smisym.prior.small_width import SmallWidth
from smisym.prior.untied import UntiedRank

__all__ = [
    "ExtensiveRank", "ExtensiveRows", "GaussianPrior", "GaussianRows", "Law", "OwnSpectrum", "PerSquare", "Prior",
    "RectangularRank", "Response", "SlicedRows", "SmallWidth", "Symmetric", "UntiedRank", "remaining",
]  # fmt: skip
