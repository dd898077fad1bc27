"""What is proved by algebra rather than tried: the matrix calculus of the free entropy, on a model's own overlap."""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.polys.matrices import DomainMatrix

from smisym.link.symmetry import Symmetry
from smisym.trail.notation import overlap_matrix

# The largest of these take four seconds (two times three rows, coupled).
MOST_ROWS, MOST_NUMBERS = 6, 6


def affordable(symmetry: Symmetry) -> bool:
    """Whether the overlap is small enough for algebra, and written in numbers that are known exactly: no sums of roots
    such as 1/2 + sqrt(2)/4, with which polynomials take sympy minutes."""
    small = symmetry.basis.shape[-1] <= MOST_ROWS and len(symmetry.basis) <= MOST_NUMBERS
    return small and not any(_is_hard(entry) for entry in overlap_matrix(symmetry))


def _is_hard(entry: sp.Expr) -> bool:
    factors = [entry.diff(symbol) for symbol in entry.free_symbols]
    return any(factor.has(sp.Float) or factor.is_Add for factor in factors)


def stationary_in_conjugate(symmetry: Symmetry) -> sp.ImmutableDenseMatrix:
    """d/dQ_hat of -tr(Q Q_hat)/2 + tr(Q_hat)/2 - log det(I + Q_hat)/2 in the coordinates of Q_hat, at Q =
    Q_hat (I + Q_hat)^{-1}: simplified, (k, 1); it should be zero."""
    Q_hat, Q, widened = _rational(symmetry)
    fractions = widened.domain
    det = widened.det()
    # Q is held while Q_hat moves.
    slopes = []
    for symbol in sorted(Q_hat.free_symbols, key=str):
        moved = DomainMatrix.from_Matrix(Q_hat.diff(symbol)).convert_to(fractions)
        log_det = fractions.from_sympy(fractions.to_sympy(det).diff(symbol)) / det
        slopes.append(fractions.to_sympy(_trace(moved) - _trace(Q * moved) - log_det) / 2)
    return sp.ImmutableDenseMatrix(slopes)


def eliminated(symmetry: Symmetry) -> sp.Expr:
    """The terms in Q_hat at that point less tr(Q)/2 + log det(I - Q)/2, through exponentials: their ratio, which should
    be one, with the traces apart, which should agree."""
    matrix, Q, widened = _rational(symmetry)
    fractions = widened.domain
    one, Q_hat = DomainMatrix.eye(Q.shape[0], fractions), DomainMatrix.from_Matrix(matrix).convert_to(fractions)
    traces = _trace(Q_hat - Q * Q_hat - Q)
    determinants = widened.det() * (one - Q).det()
    found: sp.Expr = fractions.to_sympy(traces + determinants - fractions.one)
    return found


def _rational(symmetry: Symmetry) -> tuple[sp.Matrix, DomainMatrix, DomainMatrix]:
    """Q_hat; Q = Q_hat (I + Q_hat)^{-1} and I + Q_hat, whose entries are fractions of polynomials.

    The largest entry of each matrix of the basis is one, since fractions of polynomials with roots take sympy long.
    """
    Q_hat = overlap_matrix(symmetry, "r")
    for symbol in Q_hat.free_symbols:
        Q_hat = Q_hat.subs(symbol, symbol / max(Q_hat.diff(symbol), key=abs))
    widened = DomainMatrix.from_Matrix(sp.eye(Q_hat.shape[0]) + Q_hat, extension=True).to_field()
    return Q_hat, DomainMatrix.from_Matrix(Q_hat).convert_to(widened.domain) * widened.inv(), widened


def _trace(matrix: DomainMatrix) -> Any:
    """Element of the field that entries are of."""
    return sum((matrix[i, i].element for i in range(matrix.shape[0])), matrix.domain.zero)


def steins_remainder(size: int = 2) -> list[sp.Expr]:
    """What both diffusions leave of Z log Z, less Z g g^T / 2 with g the gradient of log Z, for a free function Z of
    omega: zero for each pair of rows."""
    omega = sp.symbols(f"w1:{size + 1}", real=True)
    Z = sp.Function("Z", positive=True)(*omega)
    found = []
    for p in range(size):
        for q in range(p, size):
            widened = (Z * sp.log(Z)).diff(omega[p], omega[q])
            narrowed = (1 + sp.log(Z)) * Z.diff(omega[p], omega[q])
            score = Z.diff(omega[p]) * Z.diff(omega[q]) / Z
            found.append(sp.simplify(sp.expand(widened - narrowed - score)))
    return found


def heat_equations(size: int = 2) -> list[sp.Expr]:
    """dN/dV_pq less (2 - delta_pq)/2 d^2 N/d omega_p d omega_q of a Gaussian density, over the density: zero each."""
    z = sp.symbols(f"z1:{size + 1}", real=True)
    omega = sp.symbols(f"w1:{size + 1}", real=True)
    V = sp.Matrix(size, size, lambda p, q: sp.Symbol(f"v{min(p, q) + 1}{max(p, q) + 1}", real=True))
    gap = sp.Matrix(size, 1, [a - b for a, b in zip(z, omega, strict=True)])
    log_density = -(gap.T * V.inv() * gap)[0] / 2 - sp.log(V.det()) / 2
    found = []
    for p in range(size):
        for q in range(p, size):
            first = log_density.diff(V[p, q])
            second = log_density.diff(omega[p], omega[q]) + log_density.diff(omega[p]) * log_density.diff(omega[q])
            factor = sp.Rational(1, 2) if p == q else sp.Integer(1)
            found.append(sp.cancel(sp.together(first - factor * second)))
    return found
