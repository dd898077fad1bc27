"""A network as its first layers and a shallower network: what is left behind a cut, in mixed fields.

Behind a cut at which one square matrix C passes, many programs see it only in products with later fields: with
U = h C^T in their place the rest is the program of a network without the first layers,

    behind(C, h) = behind(I, h C^T).

The output then says nothing of C beside U: whoever integrates has points on the level set of the shallower network,
and the first fields enter through the Gaussian of h = U C^{-T} alone.  Seen from the program, never from its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import sympy as sp

from smisym.base.derivation import Derivation, Formula, Step
from smisym.link.interfaces import Interface, entries_of
from smisym.link.linking import LinkFunction, sublink
from smisym.link.program import Assign, Program

_FIELDS, _SEED = 16, 20261123
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
    found = (_reduction(link, interface) for interface in link.interfaces)
    return tuple(one for one in found if one is not None)


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
    Z = np.random.default_rng(_SEED).standard_normal((_FIELDS, link.fields, link.tokens))
    C = reduction.mixing(Z[:, reduction.early].reshape(_FIELDS, -1))
    U = np.einsum("npt,nst->nps", Z[:, reduction.late], C)
    whole, moved = (link.raw(f * Z).reshape(_FIELDS, -1) for f in (1.0, 1 + 8 * _EPS))
    with np.errstate(invalid="ignore", over="ignore"):
        other = reduction.link.raw(U).reshape(_FIELDS, -1)
        near = np.abs(reduction.link.raw((1 + 8 * _EPS) * U).reshape(_FIELDS, -1) - other)
        finite = np.isfinite(whole).all(axis=1) & np.isfinite(moved).all(axis=1) & np.isfinite(other).all(axis=1)
        rounding = np.maximum(np.abs(moved - whole), near).max(axis=1, keepdims=True)
        allowed = 64 * _EPS * np.maximum(np.abs(whole), 1.0) + 64 * rounding
        off = np.abs(other - whole) / allowed
    # Where no field can tell, nothing is claimed.
    return float(off[finite].max()) if finite.any() else np.inf


def record_reduction(reduction: Reduction, derivation: Derivation) -> None:
    """What was found, and how it was held against the link."""
    interface = reduction.interface
    C = sp.latex(interface.carried[0].symbol)
    later = ", ".join(sp.latex(symbol) for symbol in interface.later)
    derivation.add(
        Step(
            "link",
            "The network behind its first fields is a shallower one",
            f"${C}$, made of {interface.dimension} number(s), enters the output only in products with the later fields "
            f"${later}$: in mixed fields $U = h\\,{C}^{{\\top}}$ the rest is a network that begins there.",
            (
                Formula(rf"f_{{\mathrm{{behind}}}}({C}, h)", rf"f_{{\mathrm{{behind}}}}(I, h\,{C}^{{\top}})"),
                *(Formula(a.target, a.value) for a in reduction.link.program.assigns),
            ),
            (("the shallower network at mixed fields", f"outputs of the whole one at {_FIELDS} random fields"),),
            source="data flow of the program; derived here",
        )
    )
