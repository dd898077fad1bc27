"""Sums over orthogonal matrices of three rows at products of nodes, in compiled loops: what
:mod:`smisym.integrate.near_rotations` does in arrays, without an array of all matrices.

A node is a quaternion, (sqrt(x) cos a, sqrt(y) cos b, sqrt(y) sin b, sqrt(x) sin a).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from smisym.kernels.numba_code import HEADER
from smisym.kernels.pairs import loop

_ENTRIES = [f"{k}{m}" for k in range(3) for m in range(3)]
# Exponents below the largest by more add nothing.
_DEPTH = 50.0


def compiled_turns() -> Callable[..., None] | None:
    """``turns(log_x, root_x, root_y, log_a, cos_a, sin_a, log_b, cos_b, sin_b, starts, D0, S, W, found)``; None for
    numpy.

    log_x, root_x, root_y (N,): log-weights of the nodes x, and roots of x and y.  log_a (N, A), cos_a, sin_a; log_b
    (N, B), cos_b, sin_b: of the angles, of b those of even places first; starts (3,) where these begin.  D0, S, W
    (3, 3).  Written: found (63,), the largest exponent, eight sums of weights by the parities of x, a and b, those of
    the nine entries of D = M - D0, and of the products of any two of these, of which 45 are different.
    """
    return loop("turns", turns_source)


def turns_source() -> str:
    """The text of the module with ``turns``."""
    pairs = list(itertools.combinations_with_replacement(range(9), 2))
    entries = (
        "p0 * p0 + p1 * p1 - p2 * p2 - p3 * p3", "2.0 * (p1 * p2 - p0 * p3)", "2.0 * (p1 * p3 + p0 * p2)",
        "2.0 * (p1 * p2 + p0 * p3)", "p0 * p0 - p1 * p1 + p2 * p2 - p3 * p3", "2.0 * (p2 * p3 - p0 * p1)",
        "2.0 * (p1 * p3 - p0 * p2)", "2.0 * (p2 * p3 + p0 * p1)", "p0 * p0 - p1 * p1 - p2 * p2 + p3 * p3",
    )  # fmt: skip
    left = {f"{k}{m}": " + ".join(f"s{k}{j} * d{j}{m}" for j in range(3)) for k in range(3) for m in range(3)}
    right = {f"{k}{m}": " + ".join(f"d{k}{j} * w{j}{m}" for j in range(3)) for k in range(3) for m in range(3)}
    square = " + ".join(f"({left[k]}) * ({right[k]})" for k in _ENTRIES)
    sums = ["mass", *(f"f{i}" for i in range(9)), *(f"b{i}_{j}" for i, j in pairs)]
    lines = [
        "@numba.njit(nogil=True, cache=True, error_model='numpy', fastmath={'contract', 'reassoc', 'nsz'})",
        "def turns(log_x, root_x, root_y, log_a, cos_a, sin_a, log_b, cos_b, sin_b, starts, D0, S, W, found):",
        "    N, A, B = log_a.shape[0], log_a.shape[1], log_b.shape[1]",
        "    e, d = np.empty(B), np.empty((9, B))",
        *(f"    o{k}, s{k}, w{k} = D0[{k[0]}, {k[1]}], S[{k[0]}, {k[1]}], W[{k[0]}, {k[1]}]" for k in _ENTRIES),
        "    found[:] = 0.0",
        "    top = -inf",
        "    for i in range(N):",
        "        rx, ry = root_x[i], root_y[i]",
        "        for a in range(A):",
        "            p0, p3 = rx * cos_a[i, a], rx * sin_a[i, a]",
        "            here = log_x[i] + log_a[i, a]",
        "            for b in range(np.uint64(0), np.uint64(B)):",
        "                p1, p2 = ry * cos_b[i, b], ry * sin_b[i, b]",
        *(f"                d{k} = {entry} - o{k}" for k, entry in zip(_ENTRIES, entries, strict=True)),
        f"                square = {square}",
        "                e[b] = here + log_b[i, b] - 0.5 * square",
        *(f"                d[{n}, b] = d{k}" for n, k in enumerate(_ENTRIES)),
        "            most = largest(e, 0, B)",
        f"            if not most > top - {_DEPTH}:",
        "                continue",
        "            if most > top:",
        "                scale = math.exp(top - most)",
        "                for k in range(1, found.shape[0]):",
        "                    found[k] *= scale",
        "                top = most",
        "            for g in range(2):",
        f"                {' = '.join(sums)} = 0.0",
        "                for b in range(np.uint64(starts[g]), np.uint64(starts[g + 1])):",
        "                    v = weight(e[b] - top)",
        *(f"                    u{n} = v * d[{n}, b]" for n in range(9)),
        "                    mass += v",
        *(f"                    f{n} += u{n}" for n in range(9)),
        *(f"                    b{n}_{m} += u{n} * d[{m}, b]" for n, m in pairs),
        "                found[1 + 4 * (i % 2) + 2 * (a % 2) + g] += mass",
        *(f"                found[{9 + n}] += f{n}" for n in range(9)),
        *(f"                found[{18 + k}] += b{n}_{m}" for k, (n, m) in enumerate(pairs)),
        "    found[0] = top",
    ]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"
