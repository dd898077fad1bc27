"""Sums over all pairs of rows and columns as in :mod:`smisym.kernels.pairs`, for lattices that do not stay in the cache.

Columns come in blocks that do, each of which meets all rows before the next one; exponents of a row are kept relative to
the largest so far.  Columns may stand for two sheets that differ in the sign of some features:

    exponent(i, j, +-) = sum_even coefficients[i, f] features[f, j] +- sum_odd coefficients[i, f] features[f, j] + ...

so that what both share is computed once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

from smisym.base.backends import NUMBA, backend
from smisym.kernels.numba_code import HEADER, load

# Columns of one block: with a dozen features they fill half of a first-level cache of 48 kB.
_BLOCK = 256


def compiled_blocks(features: int, fields: int, odd: tuple[int, ...], products: bool) -> Callable[..., None] | None:
    """``blocks(coefficients, features, log_weight, starts, top, found, second)``; None for numpy.

    odd: features that differ in sign between two sheets of every column; none where columns are single.
    coefficients (n, F), features (F, N), log_weight (N,), starts (sets + 1,) where sets of columns begin.
    Written: top (sets, n) largest exponents, -inf for a set without weight; found (sets, 1 + fields, n) sums of weights
    exp(exponent - top) and of the last ``fields`` features; second (sets, n, fields, fields) sums of their products.
    """
    if backend().loops != NUMBA:
        return None
    return _loaded(features, fields, odd, products)


@cache
def _loaded(features: int, fields: int, odd: tuple[int, ...], products: bool) -> Callable[..., Any]:
    found: Callable[..., Any] = load(blocks_source(features, fields, odd, products)).blocks
    return found


def blocks_source(features: int, fields: int, odd: tuple[int, ...], products: bool) -> str:
    """The text of a module with ``blocks`` for these numbers."""
    first = features - fields
    both = list(itertools.combinations_with_replacement(range(fields), 2)) if products else []
    signed = [f + first in odd for f in range(fields)]

    def product(which: list[int]) -> str:
        return " + ".join(f"c{f} * features[{f}, j]" for f in which)

    def share(alternates: bool) -> str:
        return "d" if alternates else "w"

    even = product([f for f in range(features) if f not in odd])
    write = [f"                e[j - start] = {even} + log_weight[j]"]
    weigh = ["                w = weight(e[j - start] - most)"]
    if odd:
        write += [
            f"                o[j - start] = {product(list(odd))}",
            "                h[j - start] = e[j - start] + abs(o[j - start])",
        ]
        weigh = [
            "                up, down = e[j - start] + o[j - start] - most, e[j - start] - o[j - start] - most",
            "                plus, minus = weight(up), weight(down)",
            "                w, d = plus + minus, plus - minus",
        ]
    sums = ["a", *(f"a{f}" for f in range(fields)), *(f"b{a}_{b}" for a, b in both)]
    places = [f"found[g, {k}, i]" for k in range(1 + fields)] + [f"second[g, i, {a}, {b}]" for a, b in both]
    lines = [
        "@numba.njit('void(float64[:,::1], float64[:,::1], float64[::1], int64[::1], float64[:,::1], '",
        "            'float64[:,:,::1], float64[:,:,:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract', 'reassoc', 'nsz'})",
        "def blocks(coefficients, features, log_weight, starts, top, found, second):",
        f"    e, o, h = np.empty({_BLOCK}), np.empty({_BLOCK}), np.empty({_BLOCK})",
        "    for g in range(starts.shape[0] - 1):",
        "        for i in range(coefficients.shape[0]):",
        "            top[g, i] = -inf",
        *(f"            {place} = 0.0" for place in places),
        f"        for begin in range(starts[g], starts[g + 1], {_BLOCK}):",
        "            start = np.uint64(begin)",
        f"            stop = np.uint64(min(begin + {_BLOCK}, starts[g + 1]))",
        "            for i in range(coefficients.shape[0]):",
        *(f"              c{f} = coefficients[i, {f}]" for f in range(features)),
        "              for j in range(start, stop):",
        *write,
        f"              most = largest({'h' if odd else 'e'}, 0, stop - start)",
        "              if most == -inf:",
        "                  continue",
        "              most = most if most > top[g, i] else top[g, i]",
        f"              {' = '.join(sums)} = 0.0",
        "              for j in range(start, stop):",
        *weigh,
        *(f"                u{f} = {share(signed[f])} * features[{first + f}, j]" for f in range(fields)),
        "                a += w",
        *(f"                a{f} += u{f}" for f in range(fields)),
        *(
            f"                b{a}_{b} += {share(signed[a] != signed[b])} * features[{first + a}, j]"
            f" * features[{first + b}, j]"
            for a, b in both
        ),
        "              less = math.exp(top[g, i] - most)",
        "              top[g, i] = most",
        *(f"              {place} = {place} * less + {name}" for name, place in zip(sums, places, strict=True)),
        *(
            line
            for a, b in both
            if a != b
            for line in (
                "        for i in range(coefficients.shape[0]):",
                f"            second[g, i, {b}, {a}] = second[g, i, {a}, {b}]",
            )
        ),
    ]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"
