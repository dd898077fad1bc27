"""A noiseless output with a chart: the posterior lives on the level set.

    p(y) = int dx sum_sheets w(x) N(Z(x, y); omega, V)

x the free fields and the latent coordinates of the chart, Z the fields there, w the weight of the chart.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any, final

import numpy as np

from smisym.base.counting import counted
from smisym.base.remembered import Remembered
from smisym.charts import LevelSet
from smisym.charts.base import FLAT, LINE, Arrays, Coordinates, Sheets
from smisym.charts.programs import Counts, Solve, sheets_function
from smisym.integrate.modes import Values
from smisym.kernels.expanding import NotWrittenOut, carried_out
from smisym.kernels.points import PointProgram
from smisym.kernels.straight_line import StraightLine
from smisym.kernels.tracing import Entries, Traced, trace
from smisym.link.linking import Observation
from smisym.posterior.base import METHODS, SAMPLED, Block, Cavity, Kind, Whitening, log_whitening


class OnLevelSet(Kind):
    """A noiseless output with a chart."""

    def __init__(self, level_set: LevelSet, tokens: int) -> None:
        self.level_set, self.tokens = level_set, tokens
        self.smooth, self.along, self.broken = level_set.smooth, level_set.directions, level_set.kinked
        self.order = rows_of(level_set)
        self.dim = len(level_set.free_rows) * tokens + len(level_set.latents)

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> OnSheets:
        return OnSheets(self.level_set, self.tokens, observed.values, Cavity.of(omega, V, self.order))

    def describe(self) -> tuple[str, str]:
        return lives_on_level_set(self.dim, self.level_set)


def lives_on_level_set(dim: int, level_set: LevelSet) -> tuple[str, str]:
    """Where such a posterior lives, and how it is integrated, in words."""
    size = f"{counted(dim, 'free dimension')} and {counted(level_set.branches, 'sheet')}"
    return f"the posterior lives on the level set: {size}", METHODS.get(dim, SAMPLED)


def rows_of(level_set: LevelSet) -> tuple[int, ...]:
    """Order in which the rows are whitened on a level set: the free ones first."""
    return (*level_set.free_rows, *level_set.solved_rows)


class Whitened(Block):
    """The posterior of one block of samples over zeta = (x, r): an integrand for :mod:`smisym.integrate.quadrature`.

    x are the whitened free fields, then the latent coordinates of the chart, each as a function of a variable that the
    integrator takes for standard normal; r are the whitened solved fields.
    """

    def __init__(self, level_set: LevelSet, tokens: int, u: np.ndarray, cavity: Whitening) -> None:
        super().__init__(cavity)
        self.level_set, self.tokens, self.u = level_set, tokens, u
        self.n_free, self.n_solved = len(level_set.free_rows), len(level_set.solved_rows)
        self.n_white = self._white()
        self.dim = self.n_white + len(level_set.latents)
        self.residuals = self.n_solved * tokens
        self.branches = level_set.branches
        self.bordered, self.broken, self.ended = level_set.bordered, level_set.kinked, level_set.ended
        self.tailed, self.latents = FLAT in level_set.latents, len(level_set.latents)
        # Which entries of the factor below the diagonal are used at all: most V are diagonal.
        self._linked = np.any(self.factor != 0.0, axis=0)

    def _white(self) -> int:
        """How many of the coordinates x are whitened numbers."""
        return self.n_free * self.tokens

    def take(self, index: np.ndarray) -> Whitened:
        """The same for some of the samples."""
        return Whitened(self.level_set, self.tokens, self.u[index], self.cavity.take(index))

    @property
    def whitened(self) -> np.ndarray:
        return np.r_[: self.n_white, self.dim : self.dim + self.residuals]

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, self.n_free, self.tokens)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        """Residuals (branches, m, n, C), log-weight (branches or 1, n, C) and spread at x (d, n, C)."""
        return self.on_sheets(index, x, list(self.u[index].T))

    def on_sheets(self, index: np.ndarray, x: np.ndarray, u: Arrays) -> Values:
        """The same on the level set at coordinates u, one array each, that broadcast with x."""
        r, log_weight, along = self._sheets(x, self.omega[index], self.factor[index], u)
        shape = x.shape[1:]
        stacked = np.empty((len(r), self.residuals, *shape))
        for b, sheet in enumerate(r):
            for j, value in enumerate(sheet):
                stacked[b, j] = value
        weights = np.stack([np.broadcast_to(w, shape) for w in log_weight])
        if not self.level_set.directions:
            return Values(stacked, weights)
        vectors = np.empty((len(r), self.level_set.directions, self.residuals, *shape))
        for b, own in enumerate(along):
            for i, vector in enumerate(own):
                for j, value in enumerate(vector):
                    vectors[b, i, j] = value
        return Values(stacked, weights, vectors)

    def _sheets(
        self, x: Any, omega: Any, L: Any, u: Arrays, solve: Solve | None = None
    ) -> tuple[list[Arrays], Arrays, list[list[Arrays]]]:
        """Residuals of each sheet, log-weights and directions, of arrays or of traced scalars."""
        latent, log_measure = self._latent(x)
        sheets = (solve or self.level_set.solve)(self._free(x, omega, L), latent, u)
        shift = self._shift(x, omega, L)
        r = [self._whiten(solved, shift, L) for solved in sheets.solved]
        log_weight = sheets.log_weight
        if log_measure is not None:
            log_weight = [w + log_measure for w in log_weight]
        if not self.level_set.directions:
            return r, log_weight, []
        return self._integrate_directions(sheets, L, r, log_weight)

    def _latent(self, x: Any) -> tuple[Arrays, Any]:
        """Latent coordinates at x, and the log of their measure relative to a standard normal."""
        latent, total = [], None
        for k, kind in enumerate(self.level_set.latents):
            value = x[self.n_white + k]
            # Far beyond any scale of the fields at both ends, so that no mass is cut off.
            measure = 0.5 * value * value
            if kind == LINE:
                latent.append(np.sinh(value))
                measure = np.log(np.cosh(value)) + measure
            elif kind == FLAT:
                latent.append(value)
            else:
                latent.append(np.exp(value))
                measure = value + measure
            total = measure if total is None else total + measure
        return latent, total

    def _shift(self, x: Any, omega: Any, L: Any) -> Arrays:
        """What the means and the free fields take off the whitened solved fields, entry by entry."""
        T, F = self.tokens, self.n_free
        shifts = []
        for s, row in enumerate(self.level_set.solved_rows):
            scale = 1.0 / L[:, F + s, F + s]
            for t in range(T):
                shift = omega[:, row, t] * scale
                for q in np.flatnonzero(self._linked[F + s, :F]):
                    shift = shift + x[q * T + t] * (L[:, F + s, q] * scale)
                shifts.append(shift)
        return shifts

    def _whiten(self, solved: Arrays, shift: Arrays | None, L: Any) -> Arrays:
        """Forward substitution with the factor of V, entry by entry; ``shift`` None for directions."""
        T, F = self.tokens, self.n_free
        out: Arrays = []
        for s in range(self.n_solved):
            scale = 1.0 / L[:, F + s, F + s]
            for t in range(T):
                target = solved[s * T + t] * scale
                if shift is not None:
                    target = target - shift[s * T + t]
                for q in np.flatnonzero(self._linked[F + s, F : F + s]):
                    target = target - out[q * T + t] * (L[:, F + s, F + q] * scale)
                out.append(target)
        return out

    def _integrate_directions(
        self, sheets: Sheets, L: Any, r: list[Arrays], log_weight: Arrays
    ) -> tuple[list[Arrays], Arrays, list[list[Arrays]]]:
        """Gaussian integral along the directions: orthonormalised one after the other and taken out of r."""
        each = self.level_set.branches // len(log_weight)
        constant = 0.5 * self.level_set.directions * np.log(2 * np.pi)
        weights, along = [], []
        for b, vectors in enumerate(sheets.directions):
            weight, residuals, known = log_weight[b // each], r[b], list[Arrays]()
            for vector in vectors:
                own = self._whiten(vector, None, L)
                for other in known:
                    own = _without(own, other)
                norm = np.sqrt(_dot(own, own))
                own = [value / norm for value in own]
                weight = weight - np.log(norm)
                residuals = _without(residuals, own)
                known.append(own)
            r[b] = residuals
            weights.append(weight + constant)
            along.append(known)
        return r, weights, along

    def _free(self, x: Any, omega: Any, L: Any) -> Arrays:
        """The free fields at x, row by row and token by token."""
        T = self.tokens
        free = []
        for p, row in enumerate(self.level_set.free_rows):
            for t in range(T):
                value = x[p * T + t] * L[:, p, p]
                for q in np.flatnonzero(self._linked[p, :p]):
                    value = value + x[q * T + t] * L[:, p, q]
                value = value + omega[:, row, t]
                free.append(value)
        return free


@final
class OnSheets(Whitened):
    """The same where all that it does at a point is one program, which backends compile."""

    def take(self, index: np.ndarray) -> OnSheets:
        return OnSheets(self.level_set, self.tokens, self.u[index], self.cavity.take(index))

    def points(self) -> tuple[PointProgram, np.ndarray] | None:
        """The integrand as a program and the numbers (S, k) of each sample: omega, the entries of the factor that are
        used, coordinates of y; None for a chart that is no program, or calls what is not written out."""
        return self._points

    @cached_property
    def _points(self) -> tuple[PointProgram, np.ndarray] | None:
        chart = self.level_set.program
        if chart is None:
            return None
        P = self.omega.shape[1]
        used = [(p, q) for p in range(P) for q in range(p + 1) if self._linked[p, q]]
        key = (id(chart), self._linked.tobytes(), self.u.shape[1])
        try:
            program = _PROGRAMS.get(key, lambda: (chart, self._program(chart, used)))[1]
        except NotWrittenOut:
            return None
        entries = [self.factor[:, p, q] for p, q in used]
        return program, np.column_stack([self.omega.reshape(self.samples, -1), *entries, self.u])

    def _program(self, chart: StraightLine, used: list[tuple[int, int]]) -> PointProgram:
        P, T = self.omega.shape[1:]
        names = [
            *(("x", (k,)) for k in range(self.dim)),
            *(("w", at) for at in itertools.product(range(P), range(T))),
            *(("L", at) for at in used),
            *(("u", (k,)) for k in range(self.u.shape[1])),
        ]

        def flat(*values: Traced) -> Arrays:
            own: dict[str, dict[Any, Any]] = {letter: {} for letter in "xwLu"}
            for (letter, at), value in zip(names, values, strict=True):
                own[letter][at] = value
            x: list[Any] = list(own["x"].values())
            u: list[Any] = list(own["u"].values())
            r, log_weight, along = self._sheets(x, Entries(own["w"]), Entries(own["L"]), u, self._traced(chart))
            directions = (value for sheet in along for vector in sheet for value in vector)
            return [*(value for sheet in r for value in sheet), *log_weight, *directions]

        program = trace(flat, [f"{letter}{'_'.join(str(i + 1) for i in at)}" for letter, at in names])
        level_set = self.level_set
        weights = len(program.outputs) - self.branches * self.residuals * (1 + level_set.directions)
        return PointProgram(program, self.dim, self.branches, self.residuals, weights, level_set.directions)

    def _traced(self, chart: StraightLine) -> Solve:
        chart_of, T = self.level_set, self.tokens
        free, solved = len(chart_of.free_rows) * T, len(chart_of.solved_rows) * T
        counts = Counts(free, len(chart_of.latents), self.u.shape[1], self.branches, solved, chart_of.directions)
        return sheets_function(lambda *values: carried_out(chart, values), len(chart.outputs), counts)


# Programs of points, with the charts that they are of: an id alone may be taken again by another chart.
_PROGRAMS: Remembered[tuple[StraightLine, PointProgram]] = Remembered(64)


def _dot(a: Arrays, b: Arrays) -> Any:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _without(a: Arrays, b: Arrays) -> Arrays:
    """a less its part along the unit vector b."""
    part = _dot(b, a)
    return [x - y * part for x, y in zip(a, b, strict=True)]
