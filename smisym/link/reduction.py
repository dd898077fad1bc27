"""A network as its first layers and a shallower network: what is left behind a cut, in mixed fields.

Behind a cut at which one square matrix C passes, many programs see it only in products with later fields: with
U = h C^T in their place the rest is the program of a network without the first layers,

    behind(C, h) = behind(I, h C^T).

The output then says nothing of C beside U: whoever integrates has points on the level set of the shallower network,
and the first fields enter through the Gaussian of h = U C^{-T} alone.  Seen from the program, never from its name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.kernels.expanding import NotWrittenOut, expanded
from smisym.kernels.straight_line import StraightLine
from smisym.kernels.tracing import Untraceable, trace
from smisym.link.interfaces import Interface, entries_of, find_cuts, scalar_code
from smisym.link.linking import LinkFunction, sublink
from smisym.link.program import Assign, Program

_FIELDS, _SEED = 16, 20261123
# Angles between which exponents are looked at for a change of sign.
_ANGLES = 720
# How often fields are moved by some roundings: where attention switches, in deep networks, few of these show how far.
_MOVES = 16
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Reduction:
    """A link in two: rows of Z before the cut, and the link of the rows behind it where nothing was mixed before.

    early, late
        Rows of Z, in their order.
    mixing
        Entries of the early fields (N, n), row by row, to C (N, T, T).
    link
        The shallower network: outputs from U = h C^T, the late fields mixed.
    interface
        The cut.
    """

    early: tuple[int, ...]
    late: tuple[int, ...]
    mixing: Callable[[np.ndarray], np.ndarray]
    link: LinkFunction
    interface: Interface


def find_reductions(link: LinkFunction) -> tuple[Reduction, ...]:
    """All cuts behind which a shallower network is left, the earliest first."""
    return tuple(_reductions(link, link.interfaces))


def _reductions(link: LinkFunction, cuts: Iterable[Interface]) -> Iterator[Reduction]:
    """One after the other, as each costs time."""
    for interface in cuts:
        one = _reduction(link, interface)
        if one is not None:
            yield one


@dataclass(frozen=True)
class Layer:
    """One part of the first fields: its rows, and what one more mixing by it does to the product C so far.

    mixing: entries of its mixed fields U = h C^T (N, n), row by row, to A (N, T, T); then C becomes A C.
    program: the same, as a straight-line program of the entries; None where it is more than arithmetic.
    row_sum: what the rows of A sum to, where that is a constant and no entry is negative; else None.
    """

    rows: tuple[int, ...]
    mixing: Callable[[np.ndarray], np.ndarray]
    program: StraightLine | None
    row_sum: float | None

    def flips(self, tokens: int) -> np.ndarray:
        """(G, rows): signs of its rows that its mixing does not see, the first of them all one; random fields are
        asked."""
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=len(self.rows))))
        U = np.random.default_rng(_SEED).standard_normal((_FIELDS, len(self.rows) * tokens))
        A = self.mixing(U)
        seen = [np.abs(self.mixing(U * np.repeat(own, tokens)) - A).max() for own in signs]
        return signs[np.array(seen) <= 1e-12 * np.abs(A).max()]

    def apart(self, tokens: int) -> np.ndarray:
        """(rows,) of which rows its mixing sees differences of tokens alone, as softmax does of keys; random fields are
        asked."""
        U = np.random.default_rng(_SEED).standard_normal((_FIELDS, len(self.rows) * tokens))
        A = self.mixing(U)
        moved = [U + np.repeat(own, tokens) for own in np.eye(len(self.rows))]
        seen = [np.abs(self.mixing(one) - A).max() for one in moved]
        return np.array(seen) <= 1e-12 * np.abs(A).max()


def creases(program: StraightLine) -> np.ndarray:
    """(n,) angles in the plane of two mixed fields, below pi, of the lines along which an exponential is one.

    Where exponents are homogeneous of the second degree, as scores of one row are: there attention is steep, the more
    so the farther out, and smooth between them.  None where an exponent is anything else.
    """
    if len(program.arguments) != 2:
        return np.empty(0)
    exponents = tuple(line.operands[0] for line in program.lines if line.operation in ("exp", "tanh"))
    run = StraightLine(program.arguments, program.lines, exponents).compile()

    def at(angle: np.ndarray, radius: float = 1.0) -> np.ndarray:
        values = run(radius * np.cos(angle), radius * np.sin(angle))
        return np.stack([np.broadcast_to(value, angle.shape) for value in values])

    grid = (np.arange(_ANGLES) + 0.5) * np.pi / _ANGLES
    with np.errstate(all="ignore"):
        values = at(grid) if exponents else np.empty((0, _ANGLES))
        if not exponents or np.abs(at(grid, 2.0) - 4.0 * values).max() > 1e-9 * np.abs(values).max():
            return np.empty(0)
        found: list[float] = []
        for row, own in enumerate(np.concatenate([values, values[:, :1]], axis=1)):
            for k in np.flatnonzero(own[1:] * own[:-1] < 0):
                low, high, left = grid[k], grid[k] + np.pi / _ANGLES, own[k]
                for _ in range(60):
                    middle = 0.5 * (low + high)
                    low, high = (middle, high) if at(np.array([middle]))[row, 0] * left > 0 else (low, middle)
                found.append(0.5 * (low + high) % np.pi)
    ordered = np.sort(found)
    apart = np.diff(ordered, prepend=ordered[-1] - np.pi) if len(ordered) else ordered
    return np.asarray(ordered[apart > 1e-9])


def layers_before(link: LinkFunction, reduction: Reduction) -> tuple[Layer, ...]:
    """The first fields of a reduction in as many parts as there are cuts; what is left of them is its network.

    Each is the first cut of the network that the one before leaves.
    """
    found: list[Layer] = []
    rows = np.arange(link.fields)
    while len(rows) > len(reduction.late):
        cuts = _reductions(link, find_cuts(link.program))
        first = next((one for one in cuts if len(one.late) >= len(reduction.late)), None)
        if first is None:
            break
        mine = tuple(int(r) for r in rows[list(first.early)])
        found.append(Layer(mine, first.mixing, _program(first.interface.before), _row_sum(first, link.tokens)))
        rows, link = rows[list(first.late)], first.link
    return tuple(found)


def _program(before: Program) -> StraightLine | None:
    """Entries of the inputs, matrix by matrix, to the entries of all outputs."""
    count = sum(int(symbol.shape[0]) * int(symbol.shape[1]) for symbol in before.inputs)
    try:
        return expanded(trace(scalar_code(before), [f"u{k}" for k in range(count)]))
    except (Untraceable, NotWrittenOut):
        return None


def _row_sum(first: Reduction, tokens: int) -> float | None:
    """Of a bounded interface, what all rows sum to; random fields, small and large, are asked."""
    if not first.interface.bounded:
        return None
    Z = np.random.default_rng(_SEED).standard_normal((4 * _FIELDS, len(first.early) * tokens))
    A = first.mixing(Z * np.repeat([0.1, 1.0, 5.0, 30.0], _FIELDS)[:, None])
    sums = A.sum(axis=-1)
    even = np.isfinite(A).all() and A.min() >= 0 and np.ptp(sums) <= 1e-12 * sums.max()
    return float(sums.mean()) if even else None


def _reduction(link: LinkFunction, interface: Interface) -> Reduction | None:
    T = link.tokens
    if len(interface.carried) != 1 or interface.carried[0].symbol.shape != (T, T):
        return None
    early_inputs = {link.program.inputs.index(symbol) for symbol in interface.earlier}
    early = tuple(r for r, i in enumerate(link.row_inputs) if i in early_inputs)
    late = tuple(r for r, i in enumerate(link.row_inputs) if i not in early_inputs)
    reduced = sublink(_without(interface), tuple(link.rows[r] for r in late), link.slices)
    before = entries_of(interface.before)

    def mixing(Z: np.ndarray) -> np.ndarray:
        return before(Z).reshape(len(Z), T, T)

    one = Reduction(early, late, mixing, reduced, interface)
    return one if apart(link, one) <= 1 else None


def _without(interface: Interface) -> Program:
    """The program behind a cut where the identity passes through."""
    C, behind = interface.carried[0].symbol, interface.behind
    unit = {C: sp.Identity(int(C.shape[0]))}
    assigns = tuple(Assign(a.target, a.value.xreplace(unit).doit()) for a in behind.assigns)
    return Program(interface.later, assigns, behind.output, behind.more_outputs)


def apart(link: LinkFunction, reduction: Reduction) -> float:
    """Largest difference of the outputs of a link and of the shallower network at the mixed fields.

    At random fields, in units of what rounding may make of it, which a steep network enlarges.
    """
    rng = np.random.default_rng(_SEED)
    Z = rng.standard_normal((_FIELDS, link.fields, link.tokens))
    C = reduction.mixing(Z[:, reduction.early].reshape(_FIELDS, -1))
    U = np.einsum("npt,nst->nps", Z[:, reduction.late], C)

    def outputs(one: LinkFunction, fields: np.ndarray) -> np.ndarray:
        return one.raw(fields).reshape(_FIELDS, -1)

    with np.errstate(invalid="ignore", over="ignore"):
        whole, other = outputs(link, Z), outputs(reduction.link, U)
        moved = near = np.zeros_like(whole)
        # Entry by entry: a common factor leaves cancellations as they are, which rounding in deep networks does not.
        for _ in range(_MOVES):
            shift, beside = (1 + 8 * _EPS * rng.standard_normal(F.shape) for F in (Z, U))
            moved = np.maximum(moved, np.abs(outputs(link, shift * Z) - whole))
            near = np.maximum(near, np.abs(outputs(reduction.link, beside * U) - other))
        finite = np.isfinite(whole).all(axis=1) & np.isfinite(moved).all(axis=1) & np.isfinite(other).all(axis=1)
        rounding = np.maximum(moved, near).max(axis=1, keepdims=True)
        allowed = 64 * _EPS * np.maximum(np.abs(whole), 1.0) + 64 * rounding
        off = np.abs(other - whole) / allowed
    # Where no field can tell, nothing is claimed.
    return float(off[finite].max()) if finite.any() else np.inf


def record_layers(link: LinkFunction, layers: tuple[Layer, ...], reduction: Reduction, derivation: Derivation) -> None:
    """What passes from layer to layer, and how it was held against the link."""
    record_reduction(reduction, derivation)
    off = _layered(link, layers, reduction)
    if not off <= 1e-9:
        raise ArithmeticError(f"the product of {len(layers)} mixings misses what passes through the cut by {off:.1e}")
    rows = ", ".join("{" + ", ".join(str(row + 1) for row in layer.rows) + "}" for layer in layers)
    derivation.add(
        Step(
            "link",
            "What passes from layer to layer",
            f"The first fields are {counted(len(layers), 'layer')}, of rows {rows}; each multiplies the product "
            "so far. On two tokens, with rows that sum to a constant s and no entry below zero, "
            "the product is two numbers in a "
            "compact set, so that the posterior is a chain: each layer is integrated given what passes below it.",
            (
                Formula("C_k", r"A_k(h_k C_{k-1}^{\top})\, C_{k-1}, \qquad C_0 = I"),
                Formula(
                    "C",
                    r"s \begin{pmatrix} 1 - q & q \\ p & 1 - p \end{pmatrix}, \qquad x = p / \delta, \quad "
                    r"y = q / \delta, \quad \delta = 1 - p - q",
                    "x and y are entries of the inverse, in which the exponent behind the last layer is quadratic: the "
                    "logarithm of what follows is a polynomial in them, known on a grid",
                ),
                Formula(
                    r"\beta_k(C)",
                    r"\int dh\, \mathcal{N}(h; \omega_k, V_k)\, \beta_{k+1}(A_k(h C^{\top})\, C), \qquad "
                    r"p(y) = \beta_1(I)",
                    "moments of all layers follow from the same recursion with h inserted, forward and backward",
                ),
            ),
            (("the product of the mixings", f"what passes through the cut, at {_FIELDS} random fields: {off:.0e}"),),
            source="derived here",
        )
    )


def _layered(link: LinkFunction, layers: tuple[Layer, ...], reduction: Reduction) -> float:
    """Largest relative difference of the product of mixings, layer by layer, from what passes through the cut."""
    Z = np.random.default_rng(_SEED).standard_normal((_FIELDS, link.fields, link.tokens))
    C = np.tile(np.eye(link.tokens), (_FIELDS, 1, 1))
    for layer in layers:
        U = np.einsum("npt,nst->nps", Z[:, list(layer.rows)], C)
        C = layer.mixing(U.reshape(_FIELDS, -1)) @ C
    whole = reduction.mixing(Z[:, list(reduction.early)].reshape(_FIELDS, -1))
    return float(np.abs(C - whole).max() / np.abs(whole).max())


def record_reduction(reduction: Reduction, derivation: Derivation) -> None:
    """What was found, and how it was held against the link."""
    interface = reduction.interface
    C = sp.latex(interface.carried[0].symbol)
    later = ", ".join(sp.latex(symbol) for symbol in interface.later)
    derivation.add(
        Step(
            "link",
            "The network behind its first fields is a shallower one",
            f"${C}$, made of {counted(interface.dimension, 'number')}, enters the output only in products with "
            f"the later fields ${later}$: in mixed fields $U = h\\,{C}^{{\\top}}$ "
            "the rest is a network that begins there.",
            (
                Formula(rf"f_{{\mathrm{{behind}}}}({C}, h)", rf"f_{{\mathrm{{behind}}}}(I, h\,{C}^{{\top}})"),
                *(Formula(a.target, a.value) for a in reduction.link.program.assigns),
            ),
            (("the shallower network at mixed fields", f"outputs of the whole one at {_FIELDS} random fields"),),
            source="data flow of the program; derived here",
        )
    )
