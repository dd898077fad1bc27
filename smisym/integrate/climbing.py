"""Local maxima of posteriors by Levenberg and Marquardt in compiled loops, one start after the other: what
:func:`smisym.integrate.modes.levenberg` does with arrays, by the same steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from smisym.base.levenberg import Rule
from smisym.integrate.loops import from_program, names_of, program_text
from smisym.kernels.points import PointProgram

# A residual that is no number.
LOST = 1e150
# Step of a forward difference, relative.
SHIFT = 1e-6
# Of a sum of squares: what a step must gain for another one to follow, if it is damped by no more than that; and the
# damping with which no step is any better.
GAIN, FREE, STUCK = 1e-3, 1.0, 1e3

Climb = Callable[[np.ndarray, np.ndarray, np.ndarray, int, np.ndarray, np.ndarray], None]


def compiled_climb(point: PointProgram, rule: Rule) -> Climb | None:
    """``climb(owner, x, numbers, steps, value, slopes)``; None where the backend is numpy, or has not all that the
    program calls.

    owner (N,), x (d, B, N) the starts, moved to where they end, numbers (S, k); written: value (B, N) the exponent
    there, slopes (B, N, m, d) of the residuals there.
    """
    return from_program("climb", point, lambda: climb_source(point, rule))


def climb_source(point: PointProgram, rule: Rule) -> str:
    """The text of ``climb``."""
    d, m, B, k = point.dim, point.residuals, point.branches, point.parameters
    r, w, v = names_of(point)
    arguments = [*(f"x[{i}]" for i in range(d)), *(f"p[{q}]" for q in range(k))]
    own = [_of_branch([f"r{b}_{j}" for b in range(B)]) for j in range(m)]
    weight = _of_branch([f"lw{b if point.weights > 1 else 0}" for b in range(B)])
    values = [
        "@inlined",
        "def values(b, x, p, out):",
        f"    {', '.join([*r, *w, *v])}, = point({', '.join(arguments)})",
        *(f"    out[{j}] = {name}" for j, name in enumerate(own)),
        f"    for j in range({m}):",
        f"        out[j] = out[j] if isfinite(out[j]) else {LOST}",
        f"    return {weight}",
    ]
    numbers = (
        f"D, M, B, K = {d}, {m}, {B}, {k}\n"
        f"FIRST, EASED, TIGHTENED, LEAST = {rule.first}, {rule.eased}, {rule.tightened}, {rule.least}\n"
        f"SHIFT, GAIN, FREE, STUCK = {SHIFT}, {GAIN}, {FREE}, {STUCK}\n"
    )
    return f"{program_text(point)}\n\n" + "\n".join(values) + f"\n\n\n{numbers}{_LOOPS}"


def _of_branch(names: list[str]) -> str:
    """The number of branch b, of one name each."""
    text = names[-1]
    for b in range(len(names) - 2, -1, -1):
        text = f"({names[b]} if b == {b} else {text})"
    return text


_LOOPS = '''

@inlined
def squares(x, r):
    total = 0.0
    for i in range(D):
        total += x[i] * x[i]
    for j in range(M):
        total += r[j] * r[j]
    return total


@inlined
def solve(A, y):
    """A step (D,) from positive equations, in place; whether there is one."""
    good = True
    for i in range(D):
        good = good and isfinite(y[i])
        for j in range(D):
            good = good and isfinite(A[i, j])
    if not good:
        return False
    for i in range(D):
        for a in range(i + 1, D):
            factor = A[a, i] / A[i, i]
            for j in range(i, D):
                A[a, j] -= factor * A[i, j]
            y[a] -= factor * y[i]
    for i in range(D - 1, -1, -1):
        for j in range(i + 1, D):
            y[i] -= A[i, j] * y[j]
        y[i] /= A[i, i]
        good = good and isfinite(y[i])
    return good


@inlined
def differences(b, x, p, r, other, J):
    """The slopes (M, D) of residuals that are r at x."""
    for i in range(D):
        shift = SHIFT * (1 + abs(x[i]))
        kept, x[i] = x[i], x[i] + shift
        values(b, x, p, other)
        x[i] = kept
        for j in range(M):
            J[j, i] = (other[j] - r[j]) / shift


@inlined
def damped(J, r, x, damping, A, y):
    """Minus the step (D,) from x, into y: zero where there is none."""
    for i in range(D):
        y[i] = x[i]
        for j in range(M):
            y[i] += J[j, i] * r[j]
        for a in range(D):
            A[i, a] = 1.0 if i == a else 0.0
            for j in range(M):
                A[i, a] += J[j, i] * J[j, a]
    for i in range(D):
        A[i, i] += damping * A[i, i]
    if not solve(A, y):
        for i in range(D):
            y[i] = 0.0


@numba.njit('void(int64[::1], float64[:,:,::1], float64[:,::1], int64, float64[:,::1], float64[:,:,:,::1])',
            nogil=True, cache=True, error_model='numpy', fastmath={'contract'})
def climb(owner, x, numbers, steps, value, slopes):
    at, trial, y, A, J = np.empty(D), np.empty(D), np.empty(D), np.empty((D, D)), np.empty((max(M, 1), D))
    p, r, tried = np.empty(K), np.empty(max(M, 1)), np.empty(max(M, 1))
    for b in range(B):
        for c in range(owner.shape[0]):
            for q in range(K):
                p[q] = numbers[owner[c], q]
            for i in range(D):
                at[i] = x[i, b, c]
            held, damping = values(b, at, p, r), FIRST
            before = squares(at, r)
            for step in range(steps):
                differences(b, at, p, r, tried, J)
                damped(J, r, at, damping, A, y)
                for i in range(D):
                    trial[i] = at[i] - y[i]
                weight = values(b, trial, p, tried)
                after = squares(trial, tried)
                if after < before:
                    gain, before, held, damping = before - after, after, weight, EASED * damping
                    at[:], r[:] = trial, tried
                    if gain <= GAIN and damping <= FREE:
                        break
                else:
                    damping = max(TIGHTENED * damping, LEAST)
                    if damping > STUCK:
                        break
            differences(b, at, p, r, tried, J)
            value[b, c] = held - 0.5 * before if isfinite(before) else -inf
            for i in range(D):
                x[i, b, c] = at[i]
                for j in range(M):
                    slopes[b, c, j, i] = J[j, i]
'''
