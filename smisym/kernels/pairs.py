"""Sums over all pairs of rows and columns of which the exponent is linear in what a column gives, in compiled loops.

    exponent(i, j) = sum_f coefficients[i, f] features[f, j] + log_weight[j]

Sums of the weights, of the last features, and of their products, row by row, over sets of columns: what numpy does by a
matrix product, an exponential and another matrix product, without the matrix of all pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

from smisym.base.backends import NUMBA, backend
from smisym.kernels.numba_code import HEADER, NotCompiled, load


def loop(name: str, source: Callable[..., str], *sizes: int) -> Callable[..., Any] | None:
    """The function of that name in the module whose text is ``source(*sizes)``; None for numpy."""
    if backend().loops != NUMBA:
        return None
    try:
        return _loaded(name, source, sizes)
    except NotCompiled:
        return None


@cache
def _loaded(name: str, source: Callable[..., str], sizes: tuple[int, ...]) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(load(source(*sizes)), name)
    return found


def compiled_pairs(features: int, fields: int, products: bool) -> Callable[..., None] | None:
    """``pairs(coefficients, features, log_weight, border, starts, top, found, second)``; None for numpy.

    coefficients (n, F), features (F, N), log_weight (N,), border (N,), starts (sets + 1,) where sets of columns begin.
    Written: top (n,) largest exponents; found (sets, 2 + fields, n) sums of weights exp(exponent - top), of the last
    ``fields`` features and of border; second (n, fields, fields) sums of their products over all columns.
    """
    return loop("pairs", pairs_source, features, fields, products)


def pairs_source(features: int, fields: int, products: bool) -> str:
    """The text of a module with ``pairs`` for these numbers."""
    first = features - fields
    both = list(itertools.combinations_with_replacement(range(fields), 2)) if products else []
    exponent = " + ".join(f"c{f} * features[{f}, j]" for f in range(features))
    sums = ["a", *(f"a{f}" for f in range(fields)), "edge"]
    lines = [
        "@numba.njit('void(float64[:,::1], float64[:,::1], float64[::1], float64[::1], int64[::1], float64[::1], '",
        "            'float64[:,:,::1], float64[:,:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract', 'reassoc', 'nsz'})",
        "def pairs(coefficients, features, log_weight, border, starts, top, found, second):",
        "    columns = features.shape[1]",
        "    e = np.empty(columns)",
        "    for i in range(coefficients.shape[0]):",
        *(f"        c{f} = coefficients[i, {f}]" for f in range(features)),
        "        for j in range(columns):",
        f"            e[j] = {exponent} + log_weight[j]",
        "        most = largest(e, 0, columns) if columns > 0 else -inf",
        "        top[i] = most",
        "        most = most if most > -inf else 0.0",
        *(f"        b{a}_{b} = 0.0" for a, b in both),
        "        for g in range(starts.shape[0] - 1):",
        f"            {' = '.join(sums)} = 0.0",
        # Unsigned, as a negative place would count from the end, which no vector instruction does.
        "            for j in range(np.uint64(starts[g]), np.uint64(starts[g + 1])):",
        "                w = weight(e[j] - most)",
        *(f"                u{f} = w * features[{first + f}, j]" for f in range(fields)),
        "                a += w",
        *(f"                a{f} += u{f}" for f in range(fields)),
        "                edge += w * border[j]",
        *(f"                b{a}_{b} += u{a} * features[{first + b}, j]" for a, b in both),
        *(f"            found[g, {k}, i] = {name}" for k, name in enumerate(sums)),
        *(f"        second[i, {a}, {b}] = b{a}_{b}" for a, b in both),
        *(f"        second[i, {b}, {a}] = b{a}_{b}" for a, b in both if a != b),
    ]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"


def compiled_scouts(features: int) -> Callable[..., None] | None:
    """``scouts(coefficients, constant, features, log_weight, starts, top, mass, height)``; None for numpy.

    As for :func:`compiled_pairs`; constant (n,) is added to the exponents of a row.  Written: top (n,); mass (n, sets)
    sums of weights; height (N,) the largest exponent that any row has at a column.
    """
    return loop("scouts", scouts_source, features)


def scouts_source(features: int) -> str:
    """The text of a module with ``scouts``."""
    exponent = " + ".join(f"c{f} * features[{f}, j]" for f in range(features))
    lines = [
        "@numba.njit('void(float64[:,::1], float64[::1], float64[:,::1], float64[::1], int64[::1], float64[::1], '",
        "            'float64[:,::1], float64[::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract', 'reassoc', 'nsz'})",
        "def scouts(coefficients, constant, features, log_weight, starts, top, mass, height):",
        "    columns = features.shape[1]",
        "    e = np.empty(columns)",
        "    for j in range(columns):",
        "        height[j] = -inf",
        "    for i in range(coefficients.shape[0]):",
        *(f"        c{f} = coefficients[i, {f}]" for f in range(features)),
        "        rest = constant[i]",
        "        for j in range(columns):",
        f"            value = {exponent} + log_weight[j] + rest",
        "            e[j] = value",
        "            height[j] = larger(value, height[j])",
        "        most = largest(e, 0, columns) if columns > 0 else -inf",
        "        top[i] = most",
        "        most = most if most > -inf else 0.0",
        "        for g in range(starts.shape[0] - 1):",
        "            a = 0.0",
        "            for j in range(np.uint64(starts[g]), np.uint64(starts[g + 1])):",
        "                a += weight(e[j] - most)",
        "            mass[i, g] = a",
    ]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"


def compiled_look(features: int) -> Callable[..., None] | None:
    """``look(coefficients, square, weight, stretch, features, log_weight, moved, most, parity, depth, kept, mass)``.

    For each of S samples: rows (S, R, F), (S, R) each; columns (S, F, B n), (S, B n) each, B sheets of n nodes of a
    lattice with parities (n,).  Written: kept (S, n), whether the exponent may come within ``depth`` of the largest
    within half a step of a node, on any sheet; mass (S, R, sets), sums of weights by parity relative to the largest
    exponent of the sample.  None for numpy.
    """
    return loop("look", look_source, features)


def look_source(features: int) -> str:
    """The text of a module with ``look``."""
    exponent = " + ".join(f"c{f} * features[s, {f}, j]" for f in range(features))
    lines = [
        "@numba.njit('void(float64[:,:,::1], float64[:,::1], float64[:,::1], float64[:,::1], float64[:,:,::1], '",
        "            'float64[:,::1], float64[:,::1], float64[:,::1], int64[::1], float64, boolean[:,::1], '",
        "            'float64[:,:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract', 'reassoc', 'nsz'})",
        "def look(coefficients, square, row_weight, stretch, features, log_weight, moved, most, parity, depth, kept,",
        "         mass):",
        "    samples, rows, columns, nodes = square.shape[0], square.shape[1], features.shape[2], parity.shape[0]",
        "    q, w = np.empty(rows * columns), np.empty(columns)",
        "    reach = np.empty(columns)",
        "    for s in range(samples):",
        "        top = -inf",
        "        for i in range(rows):",
        *(f"            c{f} = coefficients[s, i, {f}]" for f in range(features)),
        "            own, rest = square[s, i], row_weight[s, i]",
        "            first = np.uint64(i * columns)",
        "            for j in range(np.uint64(columns)):",
        f"                value = {exponent} + own",
        "                q[first + j] = value",
        "                w[j] = value + log_weight[s, j] + rest",
        "            highest = largest(w, 0, columns)",
        "            top = highest if highest > top else top",
        "        top = top if top > -inf else 0.0",
        "        for k in range(nodes):",
        "            kept[s, k] = False",
        "        for j in range(columns):",
        "            reach[j] = -inf",
        "        for i in range(rows):",
        "            first, rest, widened = np.uint64(i * columns), row_weight[s, i] - top, stretch[s, i]",
        "            for j in range(np.uint64(columns)):",
        "                deep = 2.0 * (most[s, j] + rest + depth)",
        "                allowed = math.sqrt(deep if deep > 0.0 else 0.0) + widened * moved[s, j]",
        "                value = q[first + j]",
        "                reach[j] = larger(allowed * allowed + 2.0 * value, reach[j])",
        "                w[j] = weight(value + log_weight[s, j] + rest)",
        "            for g in range(mass.shape[2]):",
        "                mass[s, i, g] = 0.0",
        "            for b in range(columns // nodes):",
        "                for k in range(nodes):",
        "                    mass[s, i, parity[k]] += w[b * nodes + k]",
        "        for b in range(columns // nodes):",
        "            for k in range(nodes):",
        "                kept[s, k] |= reach[b * nodes + k] > 0.0",
    ]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"


def compiled_near() -> Callable[..., int] | None:
    """``near(low, step, counts, origin, looked, kept, side, nodes, sets)``; None for numpy.

    Nodes of a lattice (from low (c,), step (c,), counts (c,)) whose nearest node of another one (origin (c,), looked
    (c,), side nodes along each axis) is kept (side^c,).  Written, by the parities of their places: nodes (c, most), and
    how many there are of each parity, sets (2^c,).  Returns how many in all, of which only ``most`` are written.
    """
    return loop("near", near_source)


def near_source() -> str:
    """The text of a module with ``near``."""
    return f"{HEADER}{_NEAR}"


_NEAR = """

@numba.njit('int64(float64[::1], float64[::1], int64[::1], float64[::1], float64[::1], boolean[::1], int64, '
            'float64[:,::1], int64[::1])',
            nogil=True, cache=True, error_model='numpy')
def near(low, step, counts, origin, looked, kept, side, nodes, sets):
    c = low.shape[0]
    total, most = 0, nodes.shape[1]
    place, half = np.empty(c, np.int64), np.empty(c, np.int64)
    for parity in range(sets.shape[0]):
        size = 1
        for a in range(c):
            half[a] = (counts[a] + 1 - (parity >> a & 1)) // 2
            size *= half[a]
        before = total
        for k in range(size):
            rest, at = k, 0
            for a in range(c - 1, -1, -1):
                place[a] = 2 * (rest % half[a]) + (parity >> a & 1)
                rest //= half[a]
            for a in range(c):
                nearest = np.rint((low[a] + place[a] * step[a] - origin[a]) / looked[a])
                nearest = min(max(nearest, 0.0), side - 1.0)
                at = at * side + int(nearest)
            if kept[at]:
                if total < most:
                    for a in range(c):
                        nodes[a, total] = low[a] + place[a] * step[a]
                total += 1
        sets[parity] = total - before
    return total
"""


def compiled_features(rows: int, tokens: int) -> Callable[..., None] | None:
    """``gram(fields, precision, out)``: fields (rows tokens, N); written: entries on and above the diagonal of
    U^T precision U, then U, (F, N).  None for numpy."""
    return loop("gram", features_source, rows, tokens)


def features_source(rows: int, tokens: int) -> str:
    """The text of a module with ``gram``."""
    size = rows * tokens
    pairs = [(t, v) for t in range(tokens) for v in range(t, tokens)]
    lines = [
        "@numba.njit('void(float64[:,::1], float64[:,::1], float64[:,::1])',",
        "            nogil=True, cache=True, error_model='numpy', fastmath={'contract'})",
        "def gram(fields, precision, out):",
        *(f"    p{a}_{b} = precision[{a}, {b}]" for a in range(rows) for b in range(rows)),
        "    for j in range(fields.shape[1]):",
        *(f"        u{k} = fields[{k}, j]" for k in range(size)),
        *(
            f"        w{a * tokens + t} = {' + '.join(f'p{a}_{b} * u{b * tokens + t}' for b in range(rows))}"
            for a in range(rows)
            for t in range(tokens)
        ),
        *(
            f"        out[{k}, j] = {' + '.join(f'u{a * tokens + t} * w{a * tokens + v}' for a in range(rows))}"
            for k, (t, v) in enumerate(pairs)
        ),
        *(f"        out[{len(pairs) + k}, j] = u{k}" for k in range(size)),
    ]
    return HEADER + "\n\n" + "\n".join(lines) + "\n"
