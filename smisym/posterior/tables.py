"""A deep network on two tokens as a chain of tables: what passes from layer to layer are two numbers.

Behind its first layers a network sees the product C of their mixings alone (:mod:`smisym.link.reduction`).  Where the
rows of C sum to a constant s and none of its entries is negative, it is, on two tokens, two numbers,

    C = s [[1 - q, q], [p, 1 - p]],   x = p / delta,  y = q / delta,  delta = 1 - p - q.

The first layers are integrated one after the other,

    beta_k(C) = int dh N(h) beta_{k+1}(A(h C^T) C),    p(y) = beta_1(I),

the last of them against the level set of the network behind, which is a few points U, one a sheet:

    beta(C) = sum_U N(U C^{-T}; omega, V) / |det C|^n,    n late rows.

x and y are entries of the inverse of C, so that the exponent there is quadratic in them, and they grow by factors from
layer to layer: log beta is smooth in their logarithms, and a polynomial on a grid of some eight nodes a side, for each
sign of delta (:mod:`smisym.kernels.chains`).  The cost of a level is linear in the number of layers.  The cavity must
not couple layers.

Of a row of which a mixing sees the difference of both tokens alone, as softmax does of keys, the sum of both is
integrated in closed form.

Where all layers, more than two of them, are single rows, tables are meshes in log(1 + x) and log(1 + y), in boxes of
any direction around the states that lead to the output, and what stands between their nodes follows from six times six
of them: an evaluation then costs the same however fine a table has to be (:mod:`smisym.kernels.meshes`).  Polynomials
take over what these miss.
"""

from __future__ import annotations

import numpy as np

from smisym.base import patience
from smisym.base.counting import counted
from smisym.charts import LevelSet
from smisym.charts.base import Coordinates
from smisym.integrate.averages import Average
from smisym.integrate.modes import Values
from smisym.kernels.chains import Levels, compiled_levels, levels_source, mixed_source
from smisym.kernels.meshes import Meshes, compiled_meshes, meshes_source
from smisym.kernels.straight_line import StraightLine
from smisym.link.linking import Observation
from smisym.link.reduction import Layer, Reduction, creases
from smisym.posterior.base import Block, Cavity, Kind, log_whitening
from smisym.posterior.level_chain import Chain, scouted
from smisym.posterior.level_in_numpy import levels_in_numpy
from smisym.posterior.levels import Refinement
from smisym.posterior.mesh_in_numpy import meshes_in_numpy
from smisym.posterior.meshing import Meshing

# Rows of one layer at most: its dimensions are integrated by the trapezoid rule.
WIDEST = 2
# First layers up to which polynomials are tried before meshes, and points of a level up to which they are: in networks
# of four layers they take a third to nine tenths of the time where they converge, and ten times that in one of ten.
FEW, LITTLE = 3, 8 * 10**4


class OnTables(Kind):
    """A noiseless output of two tokens, by tables of what passes from layer to layer.

    layers: the first ones, in order, each with a program; the rows of the mixings of all but the last sum to a
    constant.  level_set: of the network behind them, a finite set of points, with neither latent coordinates nor
    directions.
    """

    smooth, tabled = True, True
    coupled: str | None = "the cavity couples layers"

    def __init__(self, layers: tuple[Layer, ...], reduction: Reduction, level_set: LevelSet, tokens: int) -> None:
        self.layers, self.reduction, self.level_set, self.tokens = layers, reduction, level_set, tokens
        self.order = (*(row for layer in layers for row in layer.rows), *reduction.late)
        self.dim = self.summed = len(reduction.early) * tokens
        self.flips = [layer.flips(tokens) for layer in layers]
        self.apart = [layer.apart(tokens) for layer in layers]
        self.programs = list(dict.fromkeys(self._program(layer) for layer in layers))
        self.kinds = np.array([self.programs.index(self._program(layer)) for layer in layers])
        self.mixings = [program.compile() for program in self.programs]
        self.creases = [creases(self._program(layer)) for layer in layers]
        self.row_sums = np.array([layer.row_sum or np.nan for layer in layers])
        # Of layers of one row each, whose sign no mixing sees, tables are meshes.
        self.single = len(layers) > 2 and all(own.shape == (2, 1) for own in self.flips)
        # Whether polynomials are tried, or tried first.
        self.polynomials = not self.single or len(layers) <= FEW

    @staticmethod
    def _program(layer: Layer) -> StraightLine:
        assert layer.program is not None, "a mixing that is more than arithmetic has no tables"
        return layer.program

    def levels(self) -> Levels:
        """What carries levels out: compiled loops or numpy."""
        run = compiled_levels(self.programs)
        if run is not None:
            return run
        return lambda given, found, room, look, cov: levels_in_numpy(self.mixings, given, found, look=look, cov=cov)

    def meshes(self) -> Meshes:
        """What carries levels of meshes out: compiled loops or numpy."""
        run = compiled_meshes(self.programs)
        if run is not None:
            return run
        return lambda mesh, seen, cov: meshes_in_numpy(self.mixings, mesh, seen, cov=cov)

    def read(self, observation: Observation) -> Coordinates:
        return self.level_set.coordinates(observation).checked()

    def at(self, observed: Coordinates, omega: np.ndarray, V: np.ndarray) -> Tabulated:
        return Tabulated(self, observed.values, Cavity.of(omega, V, self.order))

    def points(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The level set behind the layers: mixed late fields (S, B, n, T) and log-weights (S, B)."""
        S, n, T = len(u), len(self.reduction.late), self.tokens
        sheets = self.level_set.solve([], [], list(u.T))
        fields = np.empty((S, len(sheets.solved), n, T))
        for b, solved in enumerate(sheets.solved):
            for k, value in enumerate(solved):
                fields[:, b, self.level_set.solved_rows[k // T], k % T] = value
        weight = np.stack([np.broadcast_to(one, S) for one in sheets.log_weight], axis=1)
        return fields, np.ascontiguousarray(np.broadcast_to(weight, fields.shape[:2]))

    def couples(self, V: np.ndarray) -> np.ndarray:
        """Whether covariances (S, P, P) couple one of the layers with another, or with the network behind, (S,)."""
        apart = np.ones(V.shape[1:], dtype=bool)
        for rows in (*(list(layer.rows) for layer in self.layers), list(self.reduction.late)):
            apart[np.ix_(rows, rows)] = False
        return np.asarray((V[:, apart] != 0.0).any(axis=1))

    def describe(self) -> tuple[str, str]:
        layers = counted(len(self.layers), "layer")
        where = f"the posterior lives on {counted(self.dim, 'dimension')}, those of the first {layers}"
        polynomials = "polynomials through the nodes of a Chebyshev grid"
        if self.single:
            return where, (
                "Gauss's rules between creases, layer by layer, between which two numbers pass; logarithms of "
                f"functions of these are known on meshes; or {polynomials}, where meshes miss the error"
            )
        return where, (
            "trapezoid rules, layer by layer, between which two numbers pass; logarithms of functions of these are "
            + polynomials
        )


class Tabulated(Block):
    """The posteriors of one block of samples, which integrate themselves."""

    branches = 1

    def __init__(self, kind: OnTables, u: np.ndarray, cavity: Cavity) -> None:
        super().__init__(cavity)
        self.kind, self.u = kind, u
        self.dim, self.residuals = 0, len(kind.order) * kind.tokens

    def take(self, index: np.ndarray) -> Tabulated:
        return Tabulated(self.kind, self.u[index], self.cavity.take(index))  # type: ignore[arg-type]

    @property
    def whitened(self) -> np.ndarray:
        return np.arange(self.residuals)

    def log_density(self) -> np.ndarray:
        return log_whitening(self.factor, len(self.kind.reduction.early), self.kind.tokens)

    def evaluate(self, index: np.ndarray, x: np.ndarray) -> Values:
        raise TypeError("tables integrate by themselves")

    def sources(self) -> list[str]:
        loops = [levels_source()] * self.kind.polynomials + [meshes_source()] * self.kind.single
        return [mixed_source(self.kind.programs), *loops]

    def integral(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        """By meshes where all layers are single rows, and by polynomials what these miss, and all else; of few layers
        by polynomials first what costs little so."""
        patience.check()
        kind = self.kind
        if not kind.single:
            return self.by_polynomials(rtol, cov, max_nodes, averaged)
        if not kind.polynomials:
            found = self.by_meshes(rtol, cov, max_nodes)
            # In deeper chains polynomials miss what meshes do, at ten times the cost.
            return self._otherwise(found, np.isinf(found.error), "by_polynomials", rtol, max_nodes)
        found = self.by_polynomials(rtol, cov, min(max_nodes or LITTLE, LITTLE))
        for way in ("by_meshes", "by_polynomials"):
            if averaged and found.error.mean() <= rtol:
                # The few that are left hardly move an average, and are the dearest.
                found.converged |= np.isfinite(found.error)
                break
            found = self._otherwise(found, ~found.converged, way, rtol, max_nodes)
        return found

    def _otherwise(self, found: Average, left: np.ndarray, way: str, rtol: float, most: int | None) -> Average:
        """The same, what is left (S,) in another way where that errs less."""
        rest = np.flatnonzero(left)
        if rest.size:
            other = getattr(self.take(rest), way)(rtol, found.cov is not None, most)
            found.replace(rest, other, rtol)
        return found

    def by_meshes(self, rtol: float, cov: bool, max_nodes: int | None) -> Average:
        return Meshing(self.chain(), self.kind.meshes(), self.kind.mixings, rtol, cov, max_nodes).run()

    def by_polynomials(self, rtol: float, cov: bool, max_nodes: int | None, averaged: bool = False) -> Average:
        chain = self.chain()
        spans = scouted(chain, self.kind.mixings)
        return Refinement(chain, self.kind.levels(), spans, rtol, cov, max_nodes).run(averaged)

    def chain(self) -> Chain:
        """The posteriors, whatever their level."""
        kind, omega = self.kind, self.omega[:, list(self.kind.order)]
        points, weight = kind.points(self.u)
        return Chain.of(
            kind.kinds, kind.row_sums, kind.flips, kind.apart, kind.creases, omega=omega, factor=self.factor,
            points=points, weight=weight,
        )  # fmt: skip
