"""Chebyshev grids and polynomials.

A part of the text of the module that :mod:`smisym.kernels.chains` generates; never imported.
"""


@numba.njit(**options)
def grid(first, second, side, x, y):
    """Nodes of the grid in a box, two ends along each axis, the first coordinate slowest, into x and y from 0 on."""
    for a in range(side):
        node = math.cos(math.pi * (a + 0.5) / side)
        for b in range(side):
            x[a * side + b] = 0.5 * (first[0] + first[1]) + 0.5 * (first[1] - first[0]) * node
            y[b * side + a] = 0.5 * (second[0] + second[1]) + 0.5 * (second[1] - second[0]) * node


@numba.njit(**options)
def coefficients(values, side, cosines, half, found):
    """Of the polynomial through values (side^2,) at the nodes; cosines (side, side)."""
    for i in range(side):
        for b in range(side):
            total = 0.0
            for a in range(side):
                total += cosines[i, a] * values[a * side + b]
            half[i, b] = total
    for i in range(side):
        for j in range(side):
            total = 0.0
            for b in range(side):
                total += half[i, b] * cosines[j, b]
            found[i, j] = total


@numba.njit(**options)
def weights_of_nodes(sums, side, cosines, half, found):
    """From sums of products of polynomials (side, side) to what each node counts for, into found (side^2,)."""
    for a in range(side):
        for j in range(side):
            total = 0.0
            for i in range(side):
                total += cosines[i, a] * sums[i, j]
            half[a, j] = total
    for a in range(side):
        for b in range(side):
            total = 0.0
            for j in range(side):
                total += half[a, j] * cosines[j, b]
            found[a * side + b] = total


@numba.njit(**options)
def polynomials(values, start, count, low, high, side, found):
    """Chebyshev polynomials (side, count) of a coordinate in a box, at ``count`` values from ``start`` on."""
    middle, width = 0.5 * (low + high), 0.5 * (high - low)
    scale = 1.0 / width if width > 0.0 else 0.0
    for k in range(np.uint64(count)):
        found[0, k] = 1.0
        found[1, k] = (values[np.uint64(start) + k] - middle) * scale
    for i in range(2, side):
        for k in range(np.uint64(count)):
            found[i, k] = 2.0 * found[1, k] * found[i - 1, k] - found[i - 2, k]


# Many parameters: arrays, which compiled loops take one by one.
@numba.njit(**reordered)
def interpolated(c, side, first, second, count, row, fine, value, rest):
    """The polynomial of coefficients c at ``count`` points, and the part of it of the two highest degrees."""
    for k in range(np.uint64(count)):
        value[k] = 0.0
        rest[k] = 0.0
    for i in range(side):
        for k in range(np.uint64(count)):
            row[k] = c[i, 0]
            fine[k] = c[i, side - 2] * second[side - 2, k] + c[i, side - 1] * second[side - 1, k]
        j = 1
        while j + 3 < side - 2:
            c0, c1, c2, c3 = c[i, j], c[i, j + 1], c[i, j + 2], c[i, j + 3]
            for k in range(np.uint64(count)):
                row[k] += (c0 * second[j, k] + c1 * second[j + 1, k]) + (c2 * second[j + 2, k] + c3 * second[j + 3, k])
            j += 4
        while j < side - 2:
            c0 = c[i, j]
            for k in range(np.uint64(count)):
                row[k] += c0 * second[j, k]
            j += 1
        if i >= side - 2:
            for k in range(np.uint64(count)):
                high = first[i, k] * (row[k] + fine[k])
                value[k] += high
                rest[k] += high
        else:
            for k in range(np.uint64(count)):
                high = first[i, k] * fine[k]
                value[k] += first[i, k] * row[k] + high
                rest[k] += high


@numba.njit(**reordered)
def spread(share, count, first, second, side, row, sums):
    """Add the products of polynomials, weighted by shares, to sums (side, side)."""
    for i in range(side):
        for k in range(np.uint64(count)):
            row[k] = share[k] * first[i, k]
        for j in range(side):
            total = 0.0
            for k in range(np.uint64(count)):
                total += row[k] * second[j, k]
            sums[i, j] += total


@numba.njit(**reordered)
def added(w, count, features, start, rows, sums):
    """Add the sums of features (rows, ...) from ``start`` on, weighted by w, to sums (rows,)."""
    for f in range(rows):
        total = 0.0
        for k in range(np.uint64(count)):
            total += w[k] * features[f, np.uint64(start) + k]
        sums[f] += total


@numba.njit(**reordered)
def dotted(values, start, count, weights, at):
    """Sum of products of ``count`` numbers of two arrays, from places of each on."""
    found = 0.0
    for k in range(np.uint64(count)):
        found += values[np.uint64(start) + k] * weights[np.uint64(at) + k]
    return found
