"""The symbols of one model in LaTeX: its rows, its overlap in the blocks that symmetries leave, its sizes."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import sympy as sp

from smisym.base.counting import counted
from smisym.base.derivation import Formula
from smisym.link.symmetry import Symmetry
from smisym.model.compiled import Model

# Rows up to which matrices are written out.
READABLE = 8


def rows(model: Model) -> tuple[str, ...]:
    """LaTeX of each row of Z, as the program names its input: one of several rows of an input has its number."""
    inputs, seen = model.link.program.inputs, dict[int, int]()
    names = []
    for k in model.link.row_inputs:
        name, rank = sp.latex(inputs[k]), int(inputs[k].shape[0])
        seen[k] = seen.get(k, 0) + 1
        names.append(name if rank == 1 else rf"\left({name}\right)_{{{seen[k]}}}")
    return tuple(names)


def fields(model: Model) -> Formula:
    """Z as the column of its rows."""
    names = rows(model)
    shown = names if len(names) <= READABLE else (*names[:3], r"\vdots", names[-1])
    size = rf"\mathbb{{R}}^{{{model.fields} \times {model.tokens}}}"
    if len(shown) == 1:
        return Formula("Z", rf"{shown[0]} \in {size}", "the fields, one column a token")
    stacked = r" \\ ".join(shown)
    return Formula("Z", rf"\begin{{pmatrix}} {stacked} \end{{pmatrix}} \in {size}", "rows of the fields")


@lru_cache(maxsize=4096)
def exact(value: float) -> sp.Expr:
    """A number that is a small fraction, or the root of one or of a quadratic equation in small integers, as such
    (cos(pi/8)^2 = 1/2 + sqrt(2)/4); else as it is, in 15 digits."""
    for power in (1, 2):
        near = Fraction(abs(value) ** power).limit_denominator(64)
        if abs(abs(value) - math.pow(near, 1 / power)) < 1e-12:
            root = sp.Rational(near.numerator, near.denominator) ** sp.Rational(1, power)
            return root if value >= 0 else -root
    # By chance one number in 10^6 solves such an equation this well, for 8256 of them are tried.
    a, b = np.mgrid[1:65, -64:65]
    rest = a * value**2 + b * value
    off = np.abs(rest - np.round(rest))
    if abs(value) < 2 and off.min() < 1e-12:
        a, b, c = (int(x.ravel()[off.argmin()]) for x in (a, b, np.round(rest)))
        ends = [(-b + sign * sp.sqrt(b**2 + 4 * a * c)) / (2 * a) for sign in (1, -1)]
        return min((sp.expand(end) for end in ends), key=lambda end: abs(float(end) - value))
    return sp.Float(value, 15)


def block_symbols(symmetry: Symmetry, letter: str = "q") -> tuple[sp.Symbol, ...]:
    """One symbol for each matrix of the invariant basis."""
    count = len(symmetry.basis)
    return tuple(sp.Symbol(letter if count == 1 else f"{letter}_{k + 1}", real=True) for k in range(count))


def overlap_matrix(symmetry: Symmetry, letter: str = "q") -> sp.ImmutableDenseMatrix:
    """The overlap (P, P) that symmetries leave, in its own coordinates: sum of q_k times the basis."""
    P = symmetry.basis.shape[-1]
    total = sp.zeros(P, P)
    for symbol, matrix in zip(block_symbols(symmetry, letter), symmetry.basis, strict=True):
        total += symbol * sp.Matrix(P, P, [exact(x) if abs(x) > 1e-12 else 0 for x in np.asarray(matrix).ravel()])
    return sp.ImmutableDenseMatrix(total)


def overlap(model: Model) -> tuple[Formula, ...]:
    """The overlap in its invariant blocks, written out where it is small."""
    symmetry = model.symmetry
    count = len(symmetry.basis)
    sizes = ", ".join(str(len(D)) for D in symmetry.directions)
    parts = len(symmetry.directions)
    note = f"{counted(count, 'number')}, in {counted(parts, 'part')} of dimension {sizes}: all that symmetries leave"
    if model.fields > READABLE:
        size = rf"\mathbb{{R}}^{{{model.fields} \times {model.fields}}}"
        right = rf"\sum_{{k=1}}^{{{count}}} q_k\, \Pi_k, \qquad \Pi_k \in {size}"
        return (Formula("Q", right, note),)
    return (Formula("Q", overlap_matrix(symmetry), note),)


def samples(model: Model) -> str:
    """What multiplies averages over outputs: alpha, or H alpha where H slices of the embedding share the samples."""
    shared = model.prior.multiplicity
    return r"\alpha" if shared == 1 else rf"{shared}\alpha"


def gaussian(model: Model) -> bool:
    """Whether weights are Gaussian, so that what the data make of them is written out; else it is the prior's F and
    Psi, of its own steps: F(1 / Q_hat) is left of weights seen in noise of variance 1 / Q_hat, Psi' = (1 - F) / 2."""
    return model.prior.precision is not None


def given(model: Model) -> str:
    """p(y | Z) of this model in one formula."""
    if model.noise:
        return rf"\mathcal{{N}}\left(y;\, f(Z),\, {model.noise:g}\, I\right)"
    return r"\delta\left(y - f(Z)\right)"


def in_a_product(number: str) -> str:
    """A number, in brackets where it is a fraction."""
    return f"({number})" if "/" in number else number
