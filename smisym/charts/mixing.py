"""Products of mixing matrices on two tokens: the sequence output of several layers, noiseless.

y = F_L ... F_1, each F = c I + o softmax(scores) with constant row sums.  On two tokens attention matrices of rank-one
scores fill an open set of the row-stochastic ones, so that any one layer can be solved for, given the scores of
the others.  The weight of one such choice is singular where that layer's attention turns stationary (u_1 = u_2); all L
choices share the level set in proportion to the squares of their Jacobians, and every weight stays bounded.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import sympy as sp

from smisym.base.derivation import Formula, Step
from smisym.charts.base import FLAT, Arrays, Coordinates, LevelSet, Refusal, Sheets
from smisym.charts.matching import linear_in_one_field, resolve, square_factors
from smisym.charts.programs import Counts, programmed
from smisym.charts.reading import EntryReading
from smisym.charts.two_mixings import Factor, borderless, sheets_without_border
from smisym.kernels.straight_line import StraightLine
from smisym.link.core import core_of
from smisym.link.linking import LinkFunction, Observation
from smisym.link.program import Program, product_factor, split_constant

# Largest score in units of the integrator's variable, where the mixing before it is the identity.
_REACH = 1.3
SOURCE = "derived here; one choice of layer alone: arXiv 2502.00901, appendix A"

Scores = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class _Two:
    """Matrices ((s - p, p), (q, s - q)): all row sums are s, and s - p - q is the other eigenvalue."""

    s: float
    p: np.ndarray
    q: np.ndarray

    @property
    def other(self) -> np.ndarray:
        return self.s - self.p - self.q

    def __matmul__(self, right: _Two) -> _Two:
        return _Two(self.s * right.s, self.s * right.p + self.p * right.other, self.s * right.q + self.q * right.other)

    def inverse(self) -> _Two:
        det = self.s * self.other
        return _Two(1 / self.s, -self.p / det, -self.q / det)

    def apply(self, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (self.s - self.p) * first + self.p * second, self.q * first + (self.s - self.q) * second

    def log_det(self) -> np.ndarray:
        return np.log(np.abs(self.s * self.other))


@dataclass(frozen=True)
class _Layer:
    """F = skip I + readout softmax(coefficient U V^T + constant); shift: what the constant adds to the log-ratios."""

    skip: float
    readout: float
    coefficient: float
    shift: tuple[float, float]
    fields: tuple[sp.MatrixSymbol, ...]

    @property
    def tied(self) -> bool:
        return len(self.fields) == 1

    @property
    def sum(self) -> float:
        return self.skip + self.readout

    def scores(self, u: Scores) -> tuple[np.ndarray, np.ndarray]:
        """The two log-ratios; u is (u_1, u_2), or (q_1, q_2, k_2 - k_1)."""
        k = self.coefficient
        if self.tied:
            return k * u[0] * (u[1] - u[0]) + self.shift[0], k * u[1] * (u[0] - u[1]) + self.shift[1]
        return k * u[0] * u[2] + self.shift[0], -k * u[1] * u[2] + self.shift[1]

    def mix(self, u: Scores) -> _Two:
        first, second = self.scores(u)
        return _Two(self.sum, self.readout / (1 + np.exp(-first)), self.readout / (1 + np.exp(-second)))

    def invert(self, F: _Two, kappa: np.ndarray | None) -> list[tuple[Scores, np.ndarray]]:
        """All scores with this mixing matrix, and where they exist; untied layers are told k_2 - k_1."""
        a, b = F.p / self.readout, F.q / self.readout
        inside = (a > 0) & (a < 1) & (b > 0) & (b < 1)
        a, b = np.where(inside, a, 0.5), np.where(inside, b, 0.5)
        first = (np.log(a) - np.log1p(-a) - self.shift[0]) / self.coefficient
        second = (np.log(b) - np.log1p(-b) - self.shift[1]) / self.coefficient
        if kappa is not None:
            return [((first / kappa, -second / kappa, kappa), inside)]
        square = -(first + second)
        inside = inside & (square > 0)
        gap = np.sqrt(np.where(inside, square, 1.0))
        u = -first / gap, second / gap
        return [(u, inside), ((-u[0], -u[1]), inside)]

    def log_slope(self, u: Scores) -> np.ndarray:
        """log |d(entries of F)/d(scores)|, the keys' difference given where untied."""
        first, second = self.scores(u)
        # a (1 - a) = exp(-|l|) / (1 + exp(-|l|))^2 keeps its digits where a rounds to 0 or 1.
        decay = sum(-np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x))) for x in (first, second))
        size = 2 * (u[0] - u[1]) ** 2 if self.tied else u[2] ** 2
        return decay + np.log(size) + 2 * np.log(np.abs(self.readout * self.coefficient))


def mixing_product(link: LinkFunction) -> LevelSet | Refusal:
    """The chart of a product of two-token mixing matrices of rank-one layers."""
    found = _match(link.program)
    if isinstance(found, Refusal):
        return found
    layers = found
    inputs = [link.program.inputs.index(field) for layer in layers for field in layer.fields]
    # Sheets list the rows layer by layer, queries before keys, whatever the order of the inputs.
    solved = tuple(link.row_inputs.index(i) for i in inputs)
    if sorted(solved) != list(range(link.fields)):
        return Refusal("the layers share fields, or leave some out")
    count = sum(2 if layer.tied else 3 for layer in layers) - 2

    def coordinates(observation: Observation) -> Coordinates:
        y = observation.y
        return Coordinates(np.stack([y[:, 0, 1], y[:, 1, 0]], axis=1), np.zeros(len(y)))

    pair = _pair(layers)

    def solve(free: Arrays, latent: Arrays, u: Arrays) -> Sheets:
        if pair is not None:
            return sheets_without_border(*pair, latent, u)
        total = 1.0
        for layer in layers:
            total *= layer.sum
        y = _Two(total, u[0], u[1])
        sheets = Sheets([], [], [])
        for chosen in range(len(layers)):
            for scores, inside, reach in _sheets(layers, chosen, latent, y):
                _append(sheets, layers, scores, inside, reach)
        return sheets

    branches = sum(2 if layer.tied else 1 for layer in layers)
    directions = sum(not layer.tied for layer in layers)
    straight, compiled = programmed(solve, Counts(0, count, 2, branches, 2 * len(solved), directions))
    return LevelSet(
        rule="product of mixing matrices on two tokens",
        free_rows=(),
        solved_rows=solved,
        branches=branches,
        dimension=2,
        coordinates=coordinates,
        solve=compiled,
        steps=(_step(layers) if pair is None else _pair_step(),),
        latents=(FLAT,) * count,
        directions=directions,
        smooth=pair is not None,
        shared=pair is None,
        bordered=pair is not None,
        complete=True,
        program=straight,
        reading=(EntryReading(StraightLine(("y1", "y2", "y3", "y4"), (), ("y2", "y3")), ratios=False),),
    )


def _pair(layers: list[_Layer]) -> tuple[Factor, Factor] | None:
    """Two layers whose level set has coordinates without a border; None for all others."""
    if len(layers) != 2 or not all(layer.tied and layer.shift == (0.0, 0.0) for layer in layers):
        return None
    first, second = (Factor(one.skip, one.readout, one.coefficient) for one in layers)
    return (first, second) if borderless(first, second) else None


def _match(program: Program) -> list[_Layer] | Refusal:
    """The layers, the first one first."""
    if len(program.outputs) > 1 or program.tokens != 2 or tuple(map(int, program.output.shape)) != (2, 2):
        return Refusal("the output is not one mixing matrix on two tokens")
    definitions = program.definitions
    factors = square_factors(definitions[program.output], definitions)[::-1]
    if len(factors) < 2:
        return Refusal("the output is not a product of mixing matrices")
    layers = []
    for number, factor in enumerate(factors):
        layer = _layer(program, factor, factors[:number])
        if isinstance(layer, Refusal):
            return layer
        if layer.sum == 0:
            return Refusal(f"the row sums of the factor {factor} are zero: it cannot be inverted")
        layers.append(layer)
    return layers


def _layer(program: Program, factor: sp.MatrixSymbol, before: list[sp.MatrixSymbol]) -> _Layer | Refusal:
    definitions = program.definitions
    core = core_of(program, factor) if isinstance(factor, sp.MatrixSymbol) else None
    if core is None or not core.softmax or core.expression.mask is not None:
        return Refusal(f"the factor {factor} is not a multiple of the identity and one unmasked softmax")
    skip = core.constant[0, 0]
    if np.abs(core.constant - skip * np.eye(2)).max() > 0:
        return Refusal(f"the factor {factor} has a constant that is no multiple of the identity")
    constant, rest = split_constant(core.expression.arg)
    product = product_factor(resolve(rest, definitions, product_factor))
    if product is None:
        return Refusal(f"the scores under {factor} are not k U V^T")
    coefficient, left, right = product
    if int(left.shape[1]) > 1 or not coefficient.is_positive:
        return Refusal(f"the scores under {factor} have a rank above one, or a coefficient that is not positive")
    fields = []
    for side in (left,) if left == right else (left, right):
        part = linear_in_one_field(program, side)
        if isinstance(part, Refusal):
            return part
        below = square_factors(part[1], definitions)
        if below[::-1] != before:
            return Refusal(f"the scores under {factor} are not mixed by the layers before")
        fields.append(part[0])
    shift = (0.0, 0.0)
    if constant is not None:
        shift = float(constant[0, 1] - constant[0, 0]), float(constant[1, 0] - constant[1, 1])
    return _Layer(float(skip), core.coefficient, float(coefficient), shift, tuple(fields))


def _sheets(
    layers: list[_Layer], chosen: int, latent: Arrays, y: _Two
) -> list[tuple[list[Scores], np.ndarray, np.ndarray | float]]:
    """Scores of all layers with ``chosen`` solved for: (scores, where they exist, log of the scale of the latents)."""
    given = iter(latent)
    scores: list[Scores] = []
    scale, reach = 1.0, 0.0
    kappa = None
    for number, layer in enumerate(layers):
        own = _REACH * scale
        if number == chosen:
            scores.append(())
            if not layer.tied:
                kappa = own * next(given)
                reach += np.log(own)
        else:
            size = 2 if layer.tied else 3
            scores.append(tuple(own * next(given) for _ in range(size)))
            reach += size * np.log(own)
        scale *= max(abs(layer.sum), 1.0)
    rest = y
    for layer, u in zip(layers[:chosen], scores[:chosen], strict=True):
        rest = rest @ layer.mix(u).inverse()
    for layer, u in zip(layers[:chosen:-1], scores[:chosen:-1], strict=True):
        rest = layer.mix(u).inverse() @ rest
    found = layers[chosen].invert(rest, kappa)
    return [([*scores[:chosen], u, *scores[chosen + 1 :]], inside, reach) for u, inside in found]


def _append(sheets: Sheets, layers: list[_Layer], scores: list[Scores], inside: np.ndarray, reach: object) -> None:
    """One sheet: fields, directions of the keys' common shift, and its share of the level set."""
    chosen = len(sheets.solved)
    owners = [number for number, layer in enumerate(layers) for _ in range(2 if layer.tied else 1)]
    mixes = [layer.mix(u) for layer, u in zip(layers, scores, strict=True)]
    before = [_Two(1.0, np.zeros(()), np.zeros(()))]
    for mix in mixes:
        before.append(mix @ before[-1])
    weight = np.zeros(())
    solved: Arrays = []
    directions: list[Arrays] = []
    rows = sum(len(layer.fields) for layer in layers)
    logs = []
    for number, (layer, u) in enumerate(zip(layers, scores, strict=True)):
        B = before[number]
        back = B.inverse()
        weight = weight - len(layer.fields) * B.log_det()
        solved += back.apply(u[0], u[1])
        if not layer.tied:
            solved += back.apply(-0.5 * u[2], 0.5 * u[2])
            vector = [np.zeros(())] * (len(solved) - 2) + [np.asarray(1 / B.s)] * 2
            directions.append(vector + [np.zeros(())] * (2 * rows - len(vector)))
        above = _above(mixes[number + 1 :])
        # A column is moved by what comes after, a row with sum zero by the other eigenvalue of what came before.
        logs.append(layer.log_slope(u) + above.log_det() + 2 * np.log(np.abs(B.other)))
    total = functools.reduce(np.logaddexp, [2 * log for log in logs])
    weight = weight + logs[owners[chosen]] - total + reach
    there = inside & np.isfinite(weight)
    for value in solved:
        there = there & np.isfinite(value)
    sheets.solved.append([np.where(there, value, 0.0) for value in solved])
    sheets.log_weight.append(np.where(there, weight, -np.inf))
    sheets.directions.append(directions)


def _above(mixes: list[_Two]) -> _Two:
    total = _Two(1.0, np.zeros(()), np.zeros(()))
    for mix in mixes:
        total = mix @ total
    return total


def _pair_step() -> Step:
    return Step(
        "chart",
        "A product of two mixing matrices on two tokens",
        "The output is $F_2 F_1$, two mixing matrices $F_l = c_l I + o_l A_l$ ($c_l$ the skip, $o_l$ the readout, "
        "$A_l$ the attention, $a_l$ and $b_l$ its entries off the diagonal) with constant row sums $S_l$; layer $l$ "
        "sees the mixed fields $u_1, u_2$ of its two tokens. In the plane of the entries "
        "$(a, b) = (a_1, b_1)$ off the diagonal of the first layer's attention all conditions on both layers are "
        "straight lines, and the level set is what they enclose, four times, for the signs of both. Coordinates on the "
        "whole plane are $\\tau$ and a logistic function of $X + Y$ between its ends; $\\tau$ is measured from the "
        "points at which one layer's attention is stationary, in units of $u_1 - u_2$ there, so that no weight is "
        "singular.",
        (
            Formula(r"a_2", r"S_2 o_1 (a_{\max} - a) / (o_2 \lambda_1), \qquad a_{\max} = y_{12} / (S_2 o_1)"),
            Formula(r"\lambda_l", r"c_l + o_l (1 - a_l - b_l), \qquad \lambda_1 \lambda_2 = S_1 S_2 - y_{12} - y_{21}"),
            Formula(r"X, Y", r"\log \frac{a}{a_{\max} - a},\ \log \frac{b}{b_{\max} - b}, \qquad \tau = X - Y"),
            Formula(
                r"w",
                r"\left|\frac{\partial (u_1, u_2)}{\partial (a_1, b_1)}\right| "
                r"\left|\frac{\partial (u_1, u_2)}{\partial (a_2, b_2)}\right| \frac{1}{o_2^2 \lambda_1^2 |\det F_1|}",
                "weight of each sheet, with da db for dx: x = (a, b)",
            ),
        ),
        source=SOURCE,
    )


def _step(layers: list[_Layer]) -> Step:
    return Step(
        "chart",
        "A product of mixing matrices on two tokens",
        f"The output is the product of {len(layers)} mixing matrices with constant row sums. Given the scores of all "
        "layers but one, that one is $F_l = P^{-1} y\\, S^{-1}$ ($P$ the factors after it, $S$ those before), and its "
        "scores follow from the log-ratios of its attention matrix. Each layer in turn is solved for, and the "
        "solutions share the level set in proportion to the squares of their Jacobians: no weight is singular. "
        "The common shift of the keys of an untied layer is integrated in closed form.",
        (
            Formula(r"y", r"F_L \cdots F_1, \qquad F_l = c_l I + o_l A_l"),
            Formula(
                r"(F_l)_{12}, (F_l)_{21}", r"o_l a_l,\ o_l b_l", "entries of the attention matrix off the diagonal"
            ),
            Formula(
                r"J_l",
                r"\left|\frac{\partial (a_l, b_l)}{\partial u_l}\right| o_l^2\, |\det P_l|\, \lambda(S_l)^2",
                "slope of y in the scores of layer l; lambda is the eigenvalue beside the row sum",
            ),
            Formula(r"w_l", r"\frac{J_l}{\sum_m J_m^2} \prod_k |\det B_{k-1}|^{-n_k}", "$n_k$ rows in layer $k$"),
        ),
        source=SOURCE,
    )
