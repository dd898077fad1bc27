"""The text of compiled lattices in balls while it is written (:mod:`smisym.integrate.ball_loops`)."""

from __future__ import annotations

from smisym.integrate.loops import names_of, sums_of
from smisym.kernels.points import PointProgram

# Blocks of one tile, which are those of one vector instruction, or two.
LANES = 8


class BallText:
    """The text of the loops while it is written, and the rows of their scratch array by name."""

    def __init__(self, point: PointProgram, cov: bool) -> None:
        self.point, self.nodes = point, 2**point.dim
        self.size = LANES * self.nodes
        self.lines: list[str] = []
        self._starts: dict[str, int] = {}
        self.r, self.w, self.v = names_of(point)
        each = [b if point.weights > 1 else 0 for b in range(point.branches)]
        self.own, self.factor = [f"lw{b}" for b in each], [f"f{b}" for b in each]
        self.f = [f"f{b}" for b in range(point.weights)]
        self.factors = False
        self.sums = sums_of(point.dim, point.branches, point.residuals, point.directions, cov, False)[1:]

    def add(self, depth: int, *lines: str) -> None:
        self.lines.extend("    " * depth + line for line in lines)

    def start(self, name: str) -> int:
        return self._starts.setdefault(name, len(self._starts) * self.size)

    def row(self, name: str) -> str:
        return f"s[{self.start(name)} + k]"

    def row_at(self, name: str, k: int) -> str:
        return f"s[{self.start(name) + k}]"

    def at(self, name: str, position: int) -> str:
        return f"s[{self.start(name) + position * LANES} + k]"

    def extreme(self, which: str, name: str) -> str:
        return f"{which}(s, {self.start(name)}, {self.size})"
