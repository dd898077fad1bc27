"""The group that leaves the link unchanged, and what it leaves of the overlaps.

Signs are found by pushing the flip of an input through the program, assignment by assignment:
a target keeps its value, changes sign, or the flip is refused.  Nothing is assumed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import sympy as sp

from smisym.derivation import Derivation, Formula, Step
from smisym.link import LinkFunction
from smisym.program import Program


@dataclass(frozen=True)
class Symmetry:
    """Symmetry facts as plain arrays.

    signs
        (G, P), entries +-1: every flip of rows of Z that leaves the link unchanged, the identity first.
    basis
        (k, P, P): Frobenius-orthonormal basis of the symmetric matrices that every flip leaves unchanged.
    """

    signs: np.ndarray
    basis: np.ndarray

    def coordinates(self, Q: np.ndarray) -> np.ndarray:
        """Coordinates (..., k) of the invariant part of Q (..., P, P)."""
        return np.einsum("kij,...ij->...k", self.basis, Q)

    def matrix(self, q: np.ndarray) -> np.ndarray:
        """The overlap (..., P, P) with coordinates q (..., k)."""
        return np.einsum("...k,kij->...ij", q, self.basis)

    def project(self, Q: np.ndarray) -> np.ndarray:
        """The group average of Q (..., P, P)."""
        return self.matrix(self.coordinates(Q))


def sign_symmetry(link: LinkFunction, derivation: Derivation) -> Symmetry:
    """LinkFunction -> Symmetry, by pushing flips through the program; records what it found."""
    program = link.program
    count = len(program.inputs)
    generators: list[np.ndarray] = []
    for flipped in _subsets(count):
        vector = np.ones(count, dtype=int)
        vector[list(flipped)] = -1
        if not _generated(vector, generators) and flip_leaves(program, flipped):
            generators.append(vector)
    group = _close(generators, count)
    signs = group[:, list(link.row_inputs)].astype(float)
    symmetry = Symmetry(signs, invariant_basis(signs))
    names = [", ".join(program.inputs[i].name for i in np.flatnonzero(g < 0)) for g in generators]
    derivation.add(
        Step(
            "symmetry",
            "Signs that the output cannot see",
            "Each flip was pushed through the recursion, one assignment after the other: every target kept its value "
            f"or changed sign, and the output kept its value. The group has {len(group)} elements; it leaves "
            f"{len(symmetry.basis)} overlap(s) free, and all others vanish.",
            tuple(
                Formula(None, _minus(program.inputs, g) + r"\quad\text{leaves } y \text{ unchanged}")
                for g in generators
            ),
            tuple((f"y is unchanged when {name} changes sign", "pushed through the program") for name in names),
        )
    )
    return symmetry


def _minus(inputs: tuple[sp.MatrixSymbol, ...], generator: np.ndarray) -> str:
    flips = [sp.latex(inputs[i]) + r" \to -" + sp.latex(inputs[i]) for i in np.flatnonzero(generator < 0)]
    return ",\\ ".join(flips)


def _subsets(count: int) -> list[tuple[int, ...]]:
    """Sets of inputs to try: all of them while they are few, else singles, pairs and the whole."""
    if count <= 8:
        sizes = range(1, count + 1)
        return [s for size in sizes for s in itertools.combinations(range(count), size)]
    return [*itertools.combinations(range(count), 1), *itertools.combinations(range(count), 2), tuple(range(count))]


def flip_leaves(program: Program, flipped: tuple[int, ...]) -> bool:
    """Whether changing the sign of these inputs leaves the output unchanged, identically."""
    change: dict[sp.Basic, sp.Basic] = {program.inputs[i]: -program.inputs[i] for i in flipped}
    for assign in program.assigns:
        value = assign.value.doit()
        new = assign.value.xreplace(change).doit()
        if new == value:
            continue
        if new == (-value).doit():
            change[assign.target] = -assign.target
            continue
        return False
    return program.output not in change


def _generated(vector: np.ndarray, generators: list[np.ndarray]) -> bool:
    return any((vector == g).all() for g in _close(generators, len(vector)))


def _close(generators: list[np.ndarray], count: int) -> np.ndarray:
    group = [np.ones(count, dtype=int)]
    for g in generators:
        group += [g * e for e in group if not any((g * e == other).all() for other in group)]
    return np.array(group)


def invariant_basis(signs: np.ndarray) -> np.ndarray:
    """Orthonormal basis (k, P, P) of symmetric matrices M with M = S M S for every row S of ``signs``."""
    P = signs.shape[1]
    basis = []
    for i in range(P):
        for j in range(i, P):
            if (signs[:, i] * signs[:, j] == 1).all():
                matrix = np.zeros((P, P))
                matrix[i, j] = matrix[j, i] = 1.0 if i == j else np.sqrt(0.5)
                basis.append(matrix)
    return np.array(basis)


def jacobian_rank(link: LinkFunction, rows: tuple[int, ...], rng: np.random.Generator, samples: int = 16) -> float:
    """Mean rank of df/dZ restricted to the given rows of Z, at random standard normal fields.

    The derivative is taken by complex steps on the log-ratios (or on the output where it is not a softmax),
    exact to rounding.  Used by the counting bound of perfect recovery.
    """
    Z = rng.standard_normal((samples, link.fields, link.tokens))
    columns = []
    step = 1e-30
    for p, t in itertools.product(rows, range(link.tokens)):
        shifted = Z.astype(complex)
        shifted[:, p, t] += 1j * step
        columns.append(link.raw(shifted).imag.reshape(samples, -1) / step)
    jacobian = np.stack(columns, axis=-1)
    values = np.linalg.svd(jacobian, compute_uv=False)
    return float((values > 1e-9 * values[:, :1]).sum(axis=1).mean())
