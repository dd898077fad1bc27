"""An integrand at one point as a straight-line program, for backends that compile whole loops over points."""

from __future__ import annotations

from dataclasses import dataclass

from smisym.kernels.straight_line import StraightLine


@dataclass(frozen=True)
class PointProgram:
    """What an integrand is at one point of one sample.

    program
        Arguments: ``dim`` coordinates, then the numbers of the sample.  Outputs: ``residuals`` numbers sheet by sheet,
        ``branches`` sheets; log-weights, one or one a sheet (``weights``); ``directions`` vectors of ``residuals``
        numbers, sheet by sheet.
    """

    program: StraightLine
    dim: int
    branches: int
    residuals: int
    weights: int
    directions: int

    @property
    def parameters(self) -> int:
        """How many numbers a sample has."""
        return len(self.program.arguments) - self.dim
