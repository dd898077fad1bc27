"""A program in two, held against the whole, and what passes through its cuts written down."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Derivation, Formula, Step
from smisym.link.interfaces import FIELDS, SEED, Interface, entries_of, find_interfaces
from smisym.link.program import Program

# How often fields are moved by some roundings: a tie is decided the same way each time with probability 2^-32.
_TRIES = 32
_EPS = float(np.finfo(float).eps)
_SOURCE = "data flow of the program"
Entries = Callable[[np.ndarray], np.ndarray]


def apart(program: Program, interface: Interface, at_once: Entries | None = None) -> float:
    """Largest difference of the outputs of the program in two and in one, in units of what rounding may make of it.

    At random fields. Rounding is that of the outputs, and of the fields and of what the cut carries, which a steep
    network enlarges: two scores that tie are decided by it, one way or the other each time. at_once: the program as
    :func:`smisym.link.interfaces.entries_of` has it, where it is held against several cuts.
    """
    rng = np.random.default_rng(SEED)
    Z = {symbol: rng.standard_normal((FIELDS, int(symbol.shape[0] * symbol.shape[1]))) for symbol in program.inputs}
    earlier, later = (
        np.concatenate([Z[one] for one in group], axis=1) for group in (interface.earlier, interface.later)
    )
    before, behind = entries_of(interface.before), entries_of(interface.behind)
    at_once = entries_of(program) if at_once is None else at_once
    everything = np.concatenate([Z[one] for one in program.inputs], axis=1)
    carried = np.concatenate([before(earlier), later], axis=1)
    whole, two = at_once(everything), behind(carried)
    moved = _spread(at_once, everything, whole, rng)
    finite = np.isfinite(whole).all(axis=1) & np.isfinite(moved)
    moved = np.fmax(moved, _spread(behind, carried, two, rng))
    allowed = 64 * _EPS * np.maximum(np.abs(whole), 1.0) + 64 * moved[:, None]
    off = np.abs(two[finite] - whole[finite]) / allowed[finite]
    return float(np.max(np.where(np.isnan(off), np.inf, off), initial=0.0))


def _spread(evaluate: Entries, x: np.ndarray, base: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Largest change of any output, a row, when each entry of x moves by some roundings, tried again and again."""
    factors = 1 + 8 * _EPS * rng.choice((-1.0, 1.0), (_TRIES, *x.shape))
    moved = evaluate((factors * x).reshape(-1, x.shape[1])).reshape(_TRIES, *base.shape)
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.abs(moved - base).max(axis=(0, 2))
    return found


def record_interfaces(program: Program, derivation: Derivation) -> None:
    """The cuts of a program, written down when somebody reads them; nothing of one input, or of one assignment."""
    if len(program.inputs) > 1 and len(program.assigns) > 1:
        derivation.add(partial(_step, program))


def _step(program: Program) -> Step:
    found = find_interfaces(program)
    if not found:
        return Step(
            "link",
            "What later fields see of earlier ones",
            "All of them: no cut lets fewer numbers through.",
            source=_SOURCE,
        )
    checks, at_once = [], entries_of(program)
    for interface in found:
        off = apart(program, interface, at_once)
        if off > 1:
            raise ArithmeticError(f"cut behind {interface.earlier} the program misses itself by {off:.1e} roundings")
        names = ", ".join(f"${sp.latex(one.symbol)}$" for one in interface.carried)
        checks.append((f"outputs from {names} and the later fields", f"equal to those of the whole at {FIELDS} fields"))
    return Step(
        "link",
        "What later fields see of earlier ones",
        "By the data flow of the program alone: what is computed of the earlier fields and read behind them. How many "
        f"numbers these are is the rank of their derivative at {FIELDS} random fields.",
        tuple(formula for interface in found for formula in _formulas(interface)),
        tuple(checks),
        source=_SOURCE,
    )


def _formulas(interface: Interface) -> list[Formula]:
    seen = ", ".join(sp.latex(symbol) for symbol in interface.earlier)
    formulas = []
    for one in interface.carried:
        total = one.row_sum if one.nonnegative else None
        bound = "" if total is None else f"; no entry is negative, and rows sum to {float(total):g}"
        text = (
            f"behind ${seen}$: {counted(interface.dimension, 'number')} of {interface.numbers}"
            + (", all together" if len(interface.carried) > 1 else "")
            + bound
        )
        formulas.append(Formula(one.symbol, interface.before.definitions[one.symbol], text))
    return formulas
